package ratelimit_test

import (
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// TestMemoryStoreConforms runs the kit that every Store is to pass.
func TestMemoryStoreConforms(t *testing.T) {
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			return ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		},
		// A MemoryStore tells 292 years on either side of its making apart.
		Starts: []time.Time{epoch.Add(789012345), epoch, time.Unix(0, 0), time.Unix(-1, 7)},
	})
}
