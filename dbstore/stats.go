package dbstore

import "sync/atomic"

// stats counts what a Store has done.
type stats struct {
	decisions, swaps, misses, cached atomic.Uint64
}

// Stats are totals of a [Store] since it was made.
type Stats struct {
	Decisions    uint64 // calls that needed the database
	Transactions uint64 // calls of Backend.Swap
	Misses       uint64 // how often another process had changed a row of a group first, so that the Store decided again
	CacheHits    uint64 // denials without a call of the database, see WithDenialCache
}

// Stats returns the totals of s.
func (s *Store) Stats() Stats {
	if s == nil {
		return Stats{}
	}
	return Stats{s.stats.decisions.Load(), s.stats.swaps.Load(), s.stats.misses.Load(), s.stats.cached.Load()}
}
