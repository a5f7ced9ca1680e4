package verify

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// An emptyStore fails or answers that nothing of any key is used.
type emptyStore struct{ fails bool }

func (s *emptyStore) Take(_ context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.fails {
		return nil, errDead
	}
	results := make([]ratelimit.Result, len(asks))
	for i := range results {
		results[i] = ratelimit.Result{Allowed: true, Limit: math.MaxInt32, Remaining: math.MaxInt32}
	}
	return results, nil
}

func (*emptyStore) Reset(context.Context, []ratelimit.Ask) error  { return nil }
func (*emptyStore) Settle(context.Context, []ratelimit.Ask) error { return nil }
func (*emptyStore) Accepts(ratelimit.Ask) error                   { return nil }

// A fallbackPlayer sends the same requests to a limiter whose store fails now and then, and to a limiter without a store.
// The latter gets only the requests that a policy has answered, and must answer them alike.
type fallbackPlayer struct {
	clock    *ratelimit.FakeClock
	store    emptyStore
	remote   *ratelimit.RateLimiter
	local    *ratelimit.RateLimiter
	denies   bool // whether the custom limiter of both denies
	reserved [][2]*ratelimit.Reservation
	byPolicy int
	settled  int
}

func newFallbackPlayer(t *rapid.T) *fallbackPlayer {
	p := &fallbackPlayer{clock: ratelimit.NewFakeClock(starts[0])}
	one := rapid.SampledFrom(ratelimit.Algorithms())
	rules := []ratelimit.Rule{
		{Name: "one", Algorithm: one.Draw(t, "one"), Rate: ratelimit.Rate{Requests: 5, Per: 10 * time.Second}},
		{Name: "two", Algorithm: one.Draw(t, "two"), Rate: ratelimit.Rate{Requests: 8, Per: 7 * time.Second}, Key: ratelimit.KeyGlobal},
		{Name: "custom", Limiter: (*customAnswer)(&p.denies)},
	}
	var err error
	p.remote, err = ratelimit.New(rules, nil, ratelimit.WithClock(p.clock), ratelimit.WithStore(&p.store), ratelimit.WithName("n"))
	require.NoError(t, err)
	p.local, err = ratelimit.New(rules, nil, ratelimit.WithClock(p.clock))
	require.NoError(t, err)
	return p
}

// A customAnswer is a limiter that denies every request, or grants every request.
type customAnswer bool

func (c *customAnswer) Allow(string) ratelimit.Result {
	if *c {
		return ratelimit.Result{Limit: 9, RetryAfter: time.Second, ResetAfter: time.Second}
	}
	return ratelimit.Result{Allowed: true, Limit: 9, Remaining: 9}
}

func (c *customAnswer) Take(_ context.Context, key string, _ int) (ratelimit.Result, error) {
	return c.Allow(key), nil
}

// request draws a request for one rule or for both.
func (p *fallbackPlayer) request(t *rapid.T) ratelimit.Request {
	names := [][]string{{"one"}, {"two"}, {"one", "two"}}
	return ratelimit.Request{
		Client: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "client"),
		Rules:  rapid.SampledFrom(names).Draw(t, "rules"),
		Cost:   rapid.IntRange(1, 4).Draw(t, "cost"),
	}
}

// same requires that a policy has answered as the limiter without a store does.
func (p *fallbackPlayer) same(t *rapid.T, want, got ratelimit.Result, err error) {
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.True(t, got.Degraded)
	if !want.Allowed && want.Rule != "custom" {
		want.Reason = ratelimit.ReasonPolicy
	}
	got.Degraded = false
	require.Equal(t, want, got)
	p.byPolicy++
}

// step makes one step: a request, a settlement, a change, or time that goes by.
func (p *fallbackPlayer) step(t *rapid.T) {
	ctx := context.Background()
	req := p.request(t)
	p.store.fails = true
	switch rapid.IntRange(0, 12).Draw(t, "verb") {
	case 0: // the store answers
		p.store.fails = false
		p.clock.Advance(time.Second)
		res, err := p.remote.Check(ctx, req)
		require.NoError(t, err)
		require.False(t, res.Degraded)
	case 1:
		p.clock.Advance(time.Duration(rapid.IntRange(1, 9000).Draw(t, "ms")) * time.Millisecond)
	case 2:
		require.NoError(t, p.remote.Reset(ctx, req))
		require.NoError(t, p.local.Reset(ctx, req))
	case 3:
		rate := ratelimit.Rate{Requests: rapid.IntRange(4, 9).Draw(t, "requests"), Per: 10 * time.Second}
		require.NoError(t, p.remote.UpdateRate("one", rate))
		require.NoError(t, p.local.UpdateRate("one", rate))
	case 4, 5:
		got, err := p.remote.Reserve(ctx, req, time.Minute)
		want, unexpected := p.local.Reserve(ctx, req, time.Minute)
		require.NoError(t, unexpected)
		p.same(t, want.Result(), got.Result(), err)
		p.reserved = append(p.reserved, [2]*ratelimit.Reservation{got, want})
	case 6:
		if len(p.reserved) > 0 {
			i, used := rapid.IntRange(0, len(p.reserved)-1).Draw(t, "which"), rapid.IntRange(0, 6).Draw(t, "used")
			for _, r := range p.reserved[i] {
				if err := r.Settle(used); !errors.Is(err, ratelimit.ErrSettled) {
					require.NoError(t, err)
				}
			}
			p.settled++
		}
	case 7:
		got, err := p.remote.Peek(ctx, req)
		want, unexpected := p.local.Peek(ctx, req)
		require.NoError(t, unexpected)
		p.same(t, want, got, err)
	case 8:
		got, err := p.remote.Explain(ctx, req)
		want, unexpected := p.local.Explain(ctx, req)
		require.NoError(t, unexpected)
		p.same(t, want.Result, got.Result, err)
	default:
		if rapid.Bool().Draw(t, "custom") {
			req.Rules = append(req.Rules, "custom")
			p.denies = rapid.Bool().Draw(t, "denies")
		}
		got, err := p.remote.Check(ctx, req)
		want, unexpected := p.local.Check(ctx, req)
		require.NoError(t, unexpected)
		p.same(t, want, got, err)
	}
}

// TestPropertiesOfFailLocal proves that what FailLocal has granted counts until it is earned, whatever the store answers
// in between: a store that always answers that nothing is used has no influence on the answers of the policy.
func TestPropertiesOfFailLocal(t *testing.T) {
	byPolicy, settled := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := newFallbackPlayer(t)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			p.step(t)
		}
		byPolicy, settled = byPolicy+p.byPolicy, settled+p.settled
	})
	require.Positive(t, byPolicy)
	require.Positive(t, settled)
}
