package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A nested is a schedule about the keys of one rule, "ours". It is also a custom limiter beside it,
// which does a few steps of the schedule and then denies, or grants.
type nested struct {
	t       *testing.T
	r       *rand.Rand
	a       algorithm
	l       *ratelimit.RateLimiter
	clock   *manualClock
	rate    ratelimit.Rate
	changes int  // 0: the rate never changes; 1: its speed changes; 2: the burst or the limit too
	full    bool // whether the table has a slot for one key, which is "holder"
	decide  func() bool
	depth   int
	steps   int
}

// receiptPer is the Per of the rates of a nested: a prime, so that no change of the rate rounds.
const receiptPer = 997

// newNested returns the schedule of 60 steps with this seed, in this process or in a MemoryStore. kind
// makes it another one than that of the same seed elsewhere.
func newNested(t *testing.T, a algorithm, seed, kind uint64, stored bool) *nested {
	s := &nested{t: t, r: rand.New(rand.NewPCG(seed, kind)), a: a, clock: &manualClock{starts[0]}, steps: 60}
	s.changes, s.full = int(seed%3), seed%4 == 3 && !stored // of one key, a store lets one charge come back
	s.rate = s.first()
	opts := []ratelimit.Option{ratelimit.WithClock(s.clock)}
	if a.name == "LeakyBucket" {
		// When its burst is raised, a queue that was never used has all of it, and one that was
		// forgotten must earn the difference.
		s.changes = min(s.changes, 1)
	}
	if s.full {
		s.changes = 0
		opts = append(opts, ratelimit.WithMaxKeys(1))
	}
	if stored {
		store, err := ratelimit.NewMemoryStore(opts...)
		require.NoError(t, err)
		s.changes = 0
		opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("test"))
	}
	var err error
	s.l, err = ratelimit.New([]ratelimit.Rule{
		{Name: "ours", Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name), Rate: s.rate}, {Name: "custom", Limiter: s},
	}, nil, opts...)
	require.NoError(t, err)
	return s
}

// Take makes a nested the custom limiter of its rules.
func (s *nested) Take(context.Context, string, int) (ratelimit.Result, error) {
	if s.decide() {
		return ratelimit.Result{Allowed: true, Limit: 1 << 30, Remaining: 1 << 30}, nil
	}
	return ratelimit.Result{Limit: 1, RetryAfter: time.Hour}, nil
}

// Allow is not used.
func (s *nested) Allow(string) ratelimit.Result { return ratelimit.Result{} }

// first returns the rate at which every account begins.
func (s *nested) first() ratelimit.Rate {
	r := ratelimit.Rate{Requests: 3, Per: receiptPer}
	if s.a.bucket {
		r.Burst = 5
	}
	return r
}

// key draws a key.
func (s *nested) key() string {
	key := fmt.Sprint("k", s.r.IntN(3))
	if s.full && s.r.IntN(2) == 0 {
		key = "holder"
	}
	return key
}

// accountOf returns the name of the account of key: if the table is full, the keys without a slot
// share one.
func (s *nested) accountOf(key string) string {
	if s.full && key != "holder" {
		return "shared"
	}
	return key
}

// clientOf returns a key that the account of this name is of.
func clientOf(account string) string {
	if account == "shared" {
		return "k0"
	}
	return account
}

// change changes the rate, and reports whether it is another one then.
func (s *nested) change() bool {
	old := s.rate
	s.rate = ratelimit.Rate{Requests: 1 + s.r.IntN(9), Per: receiptPer, Burst: old.Burst}
	switch {
	case s.changes == 2 && s.a.bucket:
		s.rate.Burst = 1 + s.r.IntN(9)
	case s.changes == 1 && !s.a.bucket:
		s.rate = old
	}
	require.NoError(s.t, s.l.UpdateRate("ours", s.rate))
	return s.rate != old
}

// crowd asks for enough new keys that those that owe nothing are forgotten, and returns how many.
func (s *nested) crowd() int {
	const keys = 30
	for range keys {
		_, err := s.l.Check(context.Background(), ratelimit.Request{Client: fmt.Sprint("noise", s.r.Uint64()), Rules: []string{"ours"}})
		require.NoError(s.t, err)
	}
	return keys
}

// resetOwn makes the key of a client as good as new, unless it shares the debt of others.
func resetOwn(l *ratelimit.RateLimiter, client string) error {
	err := l.Reset(context.Background(), ratelimit.Request{Client: client, Endpoint: "/"})
	if errors.Is(err, ratelimit.ErrNotReset) {
		return nil
	}
	return err
}
