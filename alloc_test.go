package ratelimit_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestNoAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	ctx := t.Context()
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l, err := a.make(ratelimit.PerSecond(1000), ratelimit.WithClock(clock))
			require.NoError(t, err)
			for range 2000 { // the log's ring grows to its full size
				clock.Advance(ms)
				l.Allow("granted")
			}
			spend(t, l, "denied", 1000)
			assertNoAllocs := func(what string, f func()) {
				t.Helper()
				assert.Zero(t, testing.AllocsPerRun(2000, f), what)
			}
			assertNoAllocs("Allow, granted", func() { clock.Advance(2 * ms); ok(t, l.Allow("granted"), true) })
			assertNoAllocs("Take, granted", func() {
				clock.Advance(2 * ms)
				res, _ := l.Take(ctx, "granted", 1)
				ok(t, res, true)
			})
			assertNoAllocs("Peek, granted", func() { clock.Advance(2 * ms); ok(t, l.Peek("granted"), true) })
			require.NoError(t, l.Reset("denied"))
			_, err = l.Take(ctx, "denied", 1000)
			require.NoError(t, err)
			assertNoAllocs("Allow, denied", func() { ok(t, l.Allow("denied"), false) })
			assertNoAllocs("Take, denied", func() {
				res, _ := l.Take(ctx, "denied", 1)
				ok(t, res, false)
			})
			assertNoAllocs("Take, never to be granted", func() {
				res, _ := l.Take(ctx, "granted", 1001)
				ok(t, res, false)
			})
			assertNoAllocs("Peek, denied", func() { ok(t, l.Peek("denied"), false) })
			assertNoAllocs("Peek, unknown key", func() { ok(t, l.Peek("unknown"), true) })
		})
	}
}

func TestNoAllocsOnMachineClock(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, a := range algorithms {
		l, err := a.make(ratelimit.PerHour(60_000))
		require.NoError(t, err)
		spend(t, l, "key", 40_000) // the log's ring grows beyond what follows
		assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Allow("key"), true) }), a.name)
		assert.Zero(t, testing.AllocsPerRun(1000, func() { ok(t, l.Peek("key"), true) }), a.name)
	}
}

// ok fails the test if res is not what it should be.
func ok(t *testing.T, res ratelimit.Result, allowed bool) {
	if res.Allowed != allowed {
		t.Errorf("allowed %t, want %t", res.Allowed, allowed)
	}
}
