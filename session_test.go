package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A session is a limiter with one key, whose calls are made one by one.
type session struct {
	t     *testing.T
	clock *ratelimit.FakeClock
	l     limiter
}

// begin starts a session at the epoch.
func begin(t *testing.T, make func(ratelimit.Rate, ...ratelimit.Option) (limiter, error), r ratelimit.Rate) *session {
	t.Helper()
	clock := ratelimit.NewFakeClock(epoch)
	l, err := make(r, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return &session{t, clock, l}
}

// at sets the clock to d after the epoch.
func (s *session) at(d time.Duration) *session {
	s.clock.Set(epoch.Add(d))
	return s
}

// take asks for n units; the answer must be want.
func (s *session) take(n int, want ratelimit.Result, why string) *session {
	s.t.Helper()
	got, err := s.l.Take(s.t.Context(), "key", n)
	require.NoError(s.t, err, why)
	require.Equal(s.t, want, got, why)
	return s
}

// look is take of none.
func (s *session) look(want ratelimit.Result, why string) *session {
	s.t.Helper()
	return s.take(0, want, why)
}

// set changes the rate.
func (s *session) set(r ratelimit.Rate) *session {
	s.t.Helper()
	require.NoError(s.t, s.l.SetRate(r))
	require.Equal(s.t, r, s.l.Rate())
	return s
}

// pass lets d pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }
