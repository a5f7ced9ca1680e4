package ratelimit

import (
	"errors"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// maxLogRequests is the largest Requests of a SlidingWindowLog. It bounds the memory of one
// key.
const maxLogRequests = 1 << 16

// A SlidingWindowLog is a [Limiter] that keeps the instant of each granted unit, and grants
// while a key has at most [Rate.Requests] units within the last [Rate.Per].
//
// Bound: a key is granted at most Requests units in any half-open interval of length Per. No
// request within that bound is denied.
//
// Memory: 72 bytes per key, up to four fifths as much again for the table around it, and 16
// bytes for each distinct instant within the last Per except the newest, in a ring that grows
// by doubling. Therefore, Requests is at most 65,536.
//
// There are no boundaries: each unit stops counting exactly Per after it was granted.
//
// Choose a SlidingWindowLog for a small limit that must hold in every interval of length
// Per. Choose a [SlidingWindowCounter] for a large limit.
//
// The zero SlidingWindowLog denies everything; [NewSlidingWindowLog] makes one to use.
type SlidingWindowLog struct{ slidingLogKeys }

// NewSlidingWindowLog returns a SlidingWindowLog that grants the rate r, which must have no
// Burst and at most 65,536 Requests. An error matches [ErrInvalidConfig].
func NewSlidingWindowLog(r Rate, opts ...Option) (*SlidingWindowLog, error) {
	l := new(SlidingWindowLog)
	if err := l.init(AlgorithmSlidingWindowLog, r, opts, newSlidingLogConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the key then has at most Requests units within the last
// Per. A denial changes nothing.
func (l *SlidingWindowLog) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// slidingLogKeys has the methods that all five limiters share.
type slidingLogKeys struct {
	keyed[slidingLogState, *slidingLogConfig]
}

// slidingLogConfig decides for all keys that have the same rate.
type slidingLogConfig struct {
	engine.Counts[slidingLogState, *slidingLogConfig]

	requests int64  // units in any window
	per      uint64 // nanoseconds
}

func newSlidingLogConfig(r Rate, _ time.Time) (*slidingLogConfig, error) {
	err := r.withoutBurst("sliding window log")
	if r.Requests > maxLogRequests {
		err = errors.Join(err, &ConfigError{"requests", r.Requests,
			"must be at most 65536: each is stored; a sliding window counter has no such bound"})
	}
	if err != nil {
		return nil, err
	}
	return &slidingLogConfig{requests: int64(r.Requests), per: uint64(r.Per)}, nil
}

// slidingLogState is the state of one key. The zero state has used nothing.
type slidingLogState struct {
	clock     instant // when the last unit was granted, or the time of a change of the rate after it; never decreases
	exact.Log         // of the granted units
}

// Step decides on n units at now, and adds them to the log if they fit and charge is set.
func (c *slidingLogConfig) Step(s *slidingLogState, _ *slidingLogConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	if now < s.clock {
		return engine.StepAhead(c, s, c, s.clock, now, n, charge)
	}
	recent := s.Recent(now, c.per)
	used := recent.Units
	v.Limit = c.requests
	switch left := c.requests - used; {
	case n > c.requests:
		v.RetryAfter = Never
	case n > left:
		v.RetryAfter = s.TimeToLeave(recent, n-left, now, c.per)
	case charge:
		s.Keep(recent)
		s.Add(now, n)
		s.clock = now
		used += n
	}
	v.Left = max(c.requests-used, 0) // negative if the limit was lowered
	if used > 0 {
		v.ResetAfter = time.Duration(c.per - now.Since(s.Last()))
	}
	return v, 0
}

// Carry brings s, which from has decided on until now, to the per of c. Entries that are
// older than the per of from do not count again.
func (c *slidingLogConfig) Carry(s *slidingLogState, from *slidingLogConfig, now instant) {
	if c.per == from.per {
		return
	}
	s.clock = max(now, s.clock)
	s.Keep(s.Recent(s.clock, from.per))
}

// Reached returns the instant that the clock of s stands at.
func (c *slidingLogConfig) Reached(s *slidingLogState) instant { return s.clock }

// Clone returns a copy of s with a log of its own.
func (c *slidingLogConfig) Clone(s *slidingLogState) slidingLogState {
	return slidingLogState{s.clock, s.Clone()}
}

// Charged returns the instant at which s was charged last.
func (c *slidingLogConfig) Charged(s *slidingLogState) instant { return s.Last() }

// GiveBack takes units off the entry of the instant at which they were charged, if the log still
// has that and not too many later ones.
func (c *slidingLogConfig) GiveBack(s *slidingLogState, back engine.Returned) {
	s.GiveBack(back.At, back.N)
}

// Exceed charges n units at now, past the limit.
func (c *slidingLogConfig) Exceed(s *slidingLogState, now instant, n int64) {
	now = max(now, s.clock)
	s.Keep(s.Recent(now, c.per))
	s.Exceed(now, n)
	s.clock = now
}

// Idle reports whether all entries are at least per old at now.
func (c *slidingLogConfig) Idle(s *slidingLogState, now instant) bool {
	return now >= s.clock && s.Recent(now, c.per).Units == 0
}

// Inherit returns a log with one entry: all units of s, at its newest instant. A key that
// leaves the shared log cannot know which of the entries are its own.
func (c *slidingLogConfig) Inherit(s *slidingLogState, now instant) slidingLogState {
	recent := s.Recent(max(now, s.clock), c.per)
	return slidingLogState{s.clock, exact.LogOf(s.Last(), recent.Units)}
}
