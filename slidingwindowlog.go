package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/packed"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A SlidingWindowLog is a [Limiter] that keeps the instant of each granted unit, and grants while a key has at most
// [Rate.Requests] units within the last [Rate.Per].
//
// Bound: a key is granted at most Requests units in any half-open interval of length Per. No request within that bound is denied.
//
// Memory: 72 bytes per key, up to 58 bytes more for the table that holds the keys, and a ring buffer that doubles when full. The
// buffer has 16 bytes for each instant in the last Per at which units were granted. To bound it, Requests is at most 65,536.
//
// It has no windows with a fixed beginning: each unit stops counting exactly Per after it was granted.
//
// Choose a SlidingWindowLog for a small limit that must hold in every interval of length Per, and a [SlidingWindowCounter] for a large one.
//
// The zero SlidingWindowLog denies everything; [NewSlidingWindowLog] makes one to use.
type SlidingWindowLog struct{ slidingLogKeys }

// NewSlidingWindowLog returns a SlidingWindowLog that grants the rate r, which must have no Burst and at most 65,536
// Requests. An error matches [ErrInvalidConfig].
func NewSlidingWindowLog(r Rate, opts ...Option) (*SlidingWindowLog, error) {
	l := new(SlidingWindowLog)
	if err := l.init(AlgorithmSlidingWindowLog, r, opts, newSlidingLogConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if key then has at most Requests units within the last Per. A denial changes nothing.
func (l *SlidingWindowLog) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// slidingLogKeys embeds the generic type keyed, so that the documentation of SlidingWindowLog does not show its type arguments.
type slidingLogKeys struct {
	keyed[slidingLogState, *slidingLogConfig]
}

// slidingLogConfig holds a rate and decides for all keys that have this rate.
type slidingLogConfig struct {
	engine.Counts[slidingLogState, *slidingLogConfig]

	requests int64  // largest number of units in any interval that is as long as the field per
	per      uint64 // length of the interval, in nanoseconds
}

func newSlidingLogConfig(r Rate, _ *engine.Timeline) (*slidingLogConfig, error) {
	if err := r.faults(ruleconfig.LogFaults); err != nil {
		return nil, err
	}
	return &slidingLogConfig{requests: int64(r.Requests), per: uint64(r.Per)}, nil
}

// slidingLogState is the state of one key. The zero state has used nothing.
type slidingLogState struct {
	clock     instant // time of the last grant or of the last change of the rate, whichever is later; never decreases
	exact.Log         // the granted units and their instants
}

// Step decides on n units at the time now. If they fit and charge is set, it adds them to the log.
func (c *slidingLogConfig) Step(
	s *slidingLogState, _ *slidingLogConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
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
		s.Trim(recent)
		s.Add(now, n)
		s.clock = now
		used += n
	}
	v.Left = max(c.requests-used, 0) // the difference is negative after the limit was lowered
	if used > 0 {
		v.ResetAfter = time.Duration(c.per - now.Since(s.Last()))
	}
	return v, 0
}

// StepYoung is the method Step for a key that still warms up and has only the portion p of the limit.
func (c *slidingLogConfig) StepYoung(
	s *slidingLogState, _ *slidingLogConfig, p engine.Portion, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	recent := s.Recent(now, c.per)
	used := recent.Units
	switch {
	case n > p.Units-used:
		v.RetryAfter = Never
	case charge:
		s.Trim(recent)
		s.Add(now, n)
		s.clock = now
		used += n
	}
	v.Limit, v.Left = c.requests, max(p.Units-used, 0)
	if used > 0 {
		v.ResetAfter = time.Duration(c.per - now.Since(s.Last()))
	}
	return v, 0
}

// Carry converts the state s from the interval of the old configuration (from) to that of the new one (c). Carry removes
// entries that are older than the old interval, so that they do not count again in a longer interval.
func (c *slidingLogConfig) Carry(s *slidingLogState, from *slidingLogConfig, now instant) {
	if c.per == from.per {
		return
	}
	s.clock = max(now, s.clock)
	s.Trim(s.Recent(s.clock, from.per))
}

// Reached returns the time of the last grant or of the last change of the rate, whichever is later.
func (c *slidingLogConfig) Reached(s *slidingLogState) instant { return s.clock }

// Clone returns a copy of s with a log of its own.
func (c *slidingLogConfig) Clone(s *slidingLogState) slidingLogState {
	return slidingLogState{s.clock, s.Clone()}
}

// Charged returns the instant at which the state s was charged last.
func (c *slidingLogConfig) Charged(s *slidingLogState) instant { return s.Last() }

// GiveBack subtracts the returned units from the entry for the instant of their charge, if the log still has that entry.
func (c *slidingLogConfig) GiveBack(s *slidingLogState, back engine.Returned) {
	s.GiveBack(back.At, back.N)
}

// Exceed charges n units at the time now, even past the limit.
func (c *slidingLogConfig) Exceed(s *slidingLogState, now instant, n int64) {
	now = max(now, s.clock)
	s.Trim(s.Recent(now, c.per))
	s.Exceed(now, n)
	s.clock = now
}

// Pack writes the state s to f, or reads it from f.
func (c *slidingLogConfig) Pack(s *slidingLogState, f *packed.Form) { s.Pack(f, &s.clock) }

// Idle reports whether all entries of the state s are too old to count at the time now.
func (c *slidingLogConfig) Idle(s *slidingLogState, now instant) bool {
	return now >= s.clock && s.Recent(now, c.per).Units == 0
}

// Inherit returns the state of a key that shared the state s with other keys until now. It is not known which entries
// belong to this key, so the new log has a single entry: all recent units of s, at the newest instant.
func (c *slidingLogConfig) Inherit(s *slidingLogState, now instant) slidingLogState {
	recent := s.Recent(max(now, s.clock), c.per)
	return slidingLogState{s.clock, exact.LogOf(s.Last(), recent.Units)}
}
