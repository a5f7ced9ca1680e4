package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestRateLimiterSmoke(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/search", Rate: ratelimit.PerSecond(1).WithBurst(10)}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	require.Equal(t, 9, l.Allow("u", "/search").Remaining)
	require.True(t, l.Allow("u", "/other").Allowed)
	fmt.Printf("%+v\n", l.Stats())
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "b", Endpoint: "/search", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(3)}))
	fmt.Printf("%+v\n", l.Allow("u", "/search"))
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Allow("u", "/search") }))
}

func BenchmarkRL(b *testing.B) {
	var rules []ratelimit.Rule
	for i := range 100 {
		rules = append(rules, ratelimit.Rule{Endpoint: fmt.Sprintf("/api/v1/endpoint%d", i), Rate: ratelimit.PerSecond(1000000), Key: []ratelimit.KeyType{"user", "endpoint", "user_endpoint", "ip", "global"}[i%5]})
	}
	rules = append(rules, ratelimit.Rule{Name: "a", Endpoint: "/two", Rate: ratelimit.PerSecond(1000000)}, ratelimit.Rule{Name: "b", Endpoint: "/two", Key: "global", Rate: ratelimit.PerSecond(1000000)})
	l, _ := ratelimit.New(rules, nil)
	for i := range 5 {
		b.Run(string(rules[i].Key), func(b *testing.B) {
			for b.Loop() {
				l.Allow("some user", rules[50+i].Endpoint)
			}
		})
	}
	b.Run("two", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.Allow("some user", "/two")
		}
	})
	tb, _ := ratelimit.NewTokenBucket(ratelimit.PerSecond(1000000))
	b.Run("tb", func(b *testing.B) {
		for b.Loop() {
			tb.Allow("some user")
		}
	})
}

type deadStore struct{}

func (deadStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errors.New("dead")
}
func (deadStore) Reset(context.Context, []ratelimit.Ask) error { return errors.New("dead") }

func BenchmarkDead(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/x", Rate: ratelimit.PerSecond(1000000)}}, nil, ratelimit.WithStore(deadStore{}))
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		l.Allow("some user", "/x")
	}
}
func BenchmarkGeneral(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/x", Rate: ratelimit.PerSecond(1000000), Tiers: map[string]ratelimit.Rate{"a": ratelimit.PerSecond(3)}}}, nil)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		l.Allow("some user", "/x")
	}
}
