package pgstore

import "context"

// Sweep looks at the next pages of the table, as the sweeper does once a second.
func (s *Store) Sweep(ctx context.Context) (many bool, err error) { return s.sweeper.sweep(ctx) }
