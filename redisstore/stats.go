package redisstore

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats is what a [Store] has done since it was made.
type Stats struct {
	// Decisions is how many were asked for, those included that failed.
	Decisions uint64

	// RoundTrips is how often something was sent and replied to, Calls how many
	// commands that was: Calls / RoundTrips is how many went together.
	RoundTrips, Calls uint64

	// Coalesced is how many decisions were made by a call of another one, for
	// the same key.
	Coalesced uint64

	// CacheHits is how many were denied without a call; see [WithDenialCache].
	CacheHits uint64

	// LeaseHits is how many were granted by units that had been taken ahead,
	// Leased how many units were, and Returned how many of those were given
	// back; see [WithLeases].
	LeaseHits, Leased, Returned uint64

	// NoScripts is how often the server did not know a script, and was sent it.
	NoScripts uint64

	// Retries is how many calls were made again, as they were sure not to have
	// run.
	Retries uint64

	// Errors is how many decisions and resets failed, by the class of it.
	Errors map[Class]uint64
}

// counters counts for Stats. Its decisions are those that were not made here.
type counters struct {
	decisions, roundTrips, calls, coalesced, cacheHits atomic.Uint64
	leaseHits, leased, returned, noScripts, retries    atomic.Uint64

	mu     sync.Mutex
	errors map[Class]uint64
}

func (c *counters) countError(class Class) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = make(map[Class]uint64)
	}
	c.errors[class]++
}

// Stats returns what s has done.
func (s *Store) Stats() Stats {
	if s == nil || s.conn == nil {
		return Stats{}
	}
	c := &s.conn.stats
	stats := Stats{
		Decisions:  c.decisions.Load(),
		RoundTrips: c.roundTrips.Load(),
		Calls:      c.calls.Load(),
		Coalesced:  c.coalesced.Load(),
		CacheHits:  c.cacheHits.Load(),
		LeaseHits:  c.leaseHits.Load(),
		Leased:     c.leased.Load(),
		Returned:   c.returned.Load(),
		NoScripts:  c.noScripts.Load(),
		Retries:    c.retries.Load(),
		Errors:     make(map[Class]uint64),
	}
	stats.Decisions += stats.CacheHits + stats.LeaseHits
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(stats.Errors, c.errors)
	return stats
}
