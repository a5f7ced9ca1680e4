package pgstore

import (
	"context"

	"github.com/ratelimit-go/ratelimit/dbstore"
)

// Sweep looks at the next pages of the table, as the sweeper does once a second.
func (s *Store) Sweep(ctx context.Context) (many bool, err error) { return s.sweeper.sweep(ctx) }

// Backend returns the Backend of s.
func (s *Store) Backend() dbstore.Backend { return s.backend }

// Sweeps reports whether s deletes rows that have expired.
func (s *Store) Sweeps() bool { return s.sweeper != nil }
