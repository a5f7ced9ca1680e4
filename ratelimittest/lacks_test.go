package ratelimittest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A bare limiter has the methods of ratelimit.Limiter and no others.
type bare struct{ ratelimit.Limiter }

// An idle limiter has a Reset, a SetRate, a Wait, a Peek and a Len that do nothing.
type idle struct{ bare }

func (idle) Peek(string) ratelimit.Result { return ratelimit.Result{} }
func (idle) Reset(string) error           { return nil }
func (idle) SetRate(ratelimit.Rate) error { return nil }
func (idle) Len() int                     { return 0 }
func (idle) Wait(context.Context, string, int) (ratelimit.Result, error) {
	return ratelimit.Result{}, nil
}

// TestLacks checks that the kit skips the methods that a limiter does not have, and says so, that
// a limiter whose methods do nothing fails, and that those of this module pass.
func TestLacks(t *testing.T) {
	genuine := func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
		return ratelimit.NewTokenBucket(r, ratelimit.WithClock(clock))
	}
	kitOf := func(wrap func(ratelimit.Limiter) ratelimit.Limiter) *kit {
		k, err := newKit(Config{New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
			l, err := genuine(r, clock)
			return wrap(l), err
		}, Rates: []ratelimit.Rate{{Requests: 2, Per: time.Minute}, {Requests: 3, Per: time.Minute}}})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	lacks := kitOf(func(l ratelimit.Limiter) ratelimit.Limiter { return bare{l} })
	idles := kitOf(func(l ratelimit.Limiter) ratelimit.Limiter { return idle{bare{l}} })
	whole := kitOf(func(l ratelimit.Limiter) ratelimit.Limiter { return l })
	for _, x := range extras {
		if skip, err := lacks.extra(x); err != nil || !strings.Contains(skip, "has no "+x.name) {
			t.Errorf("a limiter without %s: %q, %v", x.name, skip, err)
		}
		if skip, err := idles.extra(x); err == nil || skip != "" {
			t.Errorf("a limiter whose %s does nothing passes: %q", x.name, skip)
		}
		if skip, err := whole.extra(x); err != nil || skip != "" {
			t.Errorf("a limiter that has %s: %q, %v", x.name, skip, err)
		}
	}
	for _, promise := range []string{"reset", "rate-change", "same-rate"} {
		if lacks.lacking(promise) == "" || whole.lacking(promise) != "" {
			t.Errorf("%s: %q, %q", promise, lacks.lacking(promise), whole.lacking(promise))
		}
	}
	if whole.KeepRate = true; whole.lacking("same-rate") == "" {
		t.Error("a rate that may not change is not changed")
	}
	t.Run("kit", func(t *testing.T) {
		TestLimiter(t, Config{New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
			l, err := genuine(r, clock)
			return bare{l}, err
		}, Schedules: 1})
	})
}
