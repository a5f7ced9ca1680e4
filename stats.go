package ratelimit

// RuleStats are the totals of one rule since it was made. A change that keeps its
// keys' state keeps its totals.
type RuleStats struct {
	Rule string // the rule's name

	// A request that only other rules denied is in none of these.
	Allowed      uint64 // requests charged to the rule
	Denied       uint64 // requests that it denied
	ShadowDenied uint64 // requests that it would have denied, in [ModeShadow]

	Degraded uint64 // requests that its failure policy answered
	Errors   uint64 // calls of the store for it that failed

	LiveKeys   int    // keys that have state in this process
	Evicted    uint64 // keys that were forgotten, being as good as new
	Overflowed uint64 // requests charged to what unseen keys share at the bound on keys
}

// Stats returns the totals of each rule, in the order of the rules; the default rule
// comes last. It costs nothing to those who ask: they are kept where a decision
// writes anyway.
func (l *RateLimiter) Stats() []RuleStats {
	set := l.set.Load()
	if set == nil {
		return nil
	}
	stats := make([]RuleStats, len(set.rules))
	for i, r := range set.rules {
		stats[i] = r.stats()
	}
	return stats
}

func (r *activeRule) stats() RuleStats {
	s := RuleStats{
		Rule:         r.Name,
		Allowed:      r.totals.allowed.Load(),
		Denied:       r.totals.denied.Load(),
		ShadowDenied: r.totals.shadowed.Load(),
		Degraded:     r.totals.degraded.Load(),
		Errors:       r.totals.errors.Load(),
	}
	if r.here == nil {
		return s
	}
	counts := r.here.counts()
	s.Allowed += counts.Allowed
	s.Denied += counts.Denied
	s.ShadowDenied += counts.Shadowed
	if r.remote != nil { // while the store did not answer
		s.Degraded += counts.Allowed + counts.Denied + counts.Shadowed
	}
	s.LiveKeys, s.Evicted, s.Overflowed = r.here.len(), counts.Evicted, counts.Overflowed
	return s
}

// StoreStats say how a [Store] answers. A store without a method Part is one part.
type StoreStats struct {
	Parts     int    // parts that have been asked
	Open      int    // of these, parts that are not asked but to find out whether they are back
	Opened    uint64 // how often that began, of all parts together
	LastError error  // why it last did, or nil; it matches ErrStore
}

// StoreStats returns how the store answers, or the zero StoreStats if there is none.
func (l *RateLimiter) StoreStats() (s StoreStats) {
	bs := l.breakers
	if bs == nil {
		return s
	}
	for part := range each(bs.asked.Load()) {
		s.Parts++
		if bs.list[part].pause.Load() != nil {
			s.Open++
		}
	}
	bs.mu.Lock()
	defer bs.mu.Unlock()
	s.Opened, s.LastError = bs.opened, bs.last
	return s
}
