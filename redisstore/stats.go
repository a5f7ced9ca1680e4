package redisstore

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats counts the calls and decisions of a [Store] since it was made. [Store.Stats] returns it.
type Stats struct {
	// Decisions is the number of requests for a decision, including those that failed.
	Decisions uint64

	// RoundTrips is how many times the store has sent commands and waited for the replies. Calls is the
	// number of these commands. On average, Calls / RoundTrips commands were sent together.
	RoundTrips, Calls uint64

	// Coalesced is the number of decisions that were made in the call of another decision for the same key.
	Coalesced uint64

	// CacheHits is the number of denials that were made without a call; see
	// [WithDenialCache].
	CacheHits uint64

	// LeaseHits is the number of decisions that were granted from units taken ahead. Leased
	// is the number of units that were taken ahead, and Returned the number of those that
	// were given back; see [WithLeases].
	LeaseHits, Leased, Returned uint64

	// NoScripts is how many times the server did not know a script by its hash, so that the
	// text of the script was sent.
	NoScripts uint64

	// Retries is the number of calls that were repeated because the server had certainly
	// not run them.
	Retries uint64

	// Errors is the number of decisions and other calls of the store, such as resets, that failed, by class
	// of failure.
	Errors map[Class]uint64
}

// counters contains the counts from which the method Stats makes its result. The field decisions does not
// include decisions that were made without a call.
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

// Stats returns the counts of the store since it was made.
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
