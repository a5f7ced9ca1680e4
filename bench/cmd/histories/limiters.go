package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A limiter has the methods that all five limiters of the package have.
type limiter interface {
	ratelimit.Limiter
	Peek(key string) ratelimit.Result
	Wait(ctx context.Context, key string, n int) (ratelimit.Result, error)
	Reset(key string) error
	SetRate(r ratelimit.Rate) error
	Rate() ratelimit.Rate
	Len() int
}

// The variable algorithms holds the names of the five algorithms.
var algorithms = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
}

// newLimiter returns a limiter with the given algorithm and rate.
func newLimiter(a ratelimit.Algorithm, r ratelimit.Rate, opts ...ratelimit.Option) (l limiter, err error) {
	switch a {
	case ratelimit.AlgorithmTokenBucket:
		l, err = ratelimit.NewTokenBucket(r, opts...)
	case ratelimit.AlgorithmFixedWindow:
		l, err = ratelimit.NewFixedWindow(r, opts...)
	case ratelimit.AlgorithmSlidingWindowLog:
		l, err = ratelimit.NewSlidingWindowLog(r, opts...)
	case ratelimit.AlgorithmSlidingWindowCounter:
		l, err = ratelimit.NewSlidingWindowCounter(r, opts...)
	default:
		l, err = ratelimit.NewLeakyBucket(r, opts...)
	}
	return l, err
}

// windowed reports whether the given algorithm counts in windows. The rates of such an algorithm
// have no burst.
func windowed(a ratelimit.Algorithm) bool {
	return a != "" && a != ratelimit.AlgorithmTokenBucket && a != ratelimit.AlgorithmLeakyBucket
}

// drawRate returns a random rate for the given algorithm. Some of these rates are invalid. If the
// given duration is not 0, the field Per of the rate usually has this duration.
func (h *history) drawRate(a ratelimit.Algorithm, per time.Duration) ratelimit.Rate {
	if per == 0 || h.chance(1) {
		per = oneOf(h, time.Second, time.Second, time.Minute, 100*time.Millisecond, 10*time.Second, 7*time.Millisecond)
	}
	r := ratelimit.Rate{Requests: 1 + h.IntN(5), Per: per}
	if h.chance(10) {
		r.Requests = oneOf(h, 10, 100, 13, 1000)
	}
	if !windowed(a) && h.chance(40) || h.chance(1) {
		r.Burst = 1 + h.IntN(8)
	}
	switch {
	case h.chance(2):
		return oneOf(h, ratelimit.Rate{}, ratelimit.Rate{Requests: -1, Per: per}, ratelimit.Rate{Requests: 3}, ratelimit.Unlimited,
			ratelimit.Rate{Requests: 1, Per: 400 * 24 * time.Hour}, ratelimit.Rate{Requests: math.MaxInt32, Per: per})
	case h.chance(1):
		return ratelimit.Rate{Requests: 1 + h.IntN(9), Per: 365 * 24 * time.Hour}
	}
	return r
}

// drawCount returns a random number of units for a call to request. It may be invalid, such as -1.
func (h *history) drawCount() int {
	if h.chance(70) {
		return h.IntN(3)
	}
	return oneOf(h, 3, 4, 5, 7, 10, 100, 10_000, -1, math.MaxInt, math.MinInt, math.MaxInt32)
}

var errEnded = errors.New("the call was given up")

// drawContext returns a random context. Most of these contexts have not ended. When the caller no
// longer needs the context, it must call the returned function.
func (h *history) drawContext() (ctx context.Context, done func()) {
	switch n := h.IntN(20); n {
	case 0:
		return nil, func() {}
	case 1:
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return ended, func() {}
	case 2:
		ended, cancel := context.WithDeadline(context.Background(), epoch)
		return ended, cancel
	case 3:
		ended, cancel := context.WithCancelCause(context.Background())
		cancel(errEnded)
		return ended, func() {}
	}
	return context.Background(), func() {}
}

// due returns a context whose deadline comes after the duration d, by the clock of the history. The
// context ends as soon as its method Done is called. So a limiter that waits for the end of the context
// does not block.
func (h *history) due(d time.Duration) *deadline {
	return &deadline{Context: context.Background(), at: h.clock.Now().Add(d), done: make(chan struct{})}
}

// A deadline is a context with a deadline, for use by one goroutine. The context ends as soon as its
// method Done is called. So a limiter that waits for the end of the context does not block.
type deadline struct {
	context.Context
	at   time.Time
	done chan struct{}
	err  error
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }
func (d *deadline) Err() error                  { return d.err }

func (d *deadline) Done() <-chan struct{} {
	d.end(context.DeadlineExceeded)
	return d.done
}

func (d *deadline) end(err error) {
	if d.err == nil {
		d.err = err
		close(d.done)
	}
}

// playLimiter plays a history (a sequence of random calls) with one of the five limiters. The
// limiter may have an observer or a store.
func playLimiter(_ *testing.T, h *history) {
	a := oneOf(h, algorithms...)
	opts := []ratelimit.Option{ratelimit.WithClock(h.clock)}
	keys := oneOf(h, 2, 3, 6, 12)
	if h.chance(50) {
		opts = append(opts, ratelimit.WithMaxKeys(oneOf(h, 1, 2, 3, 8, 100)))
	}
	if h.chance(30) {
		opts = append(opts, ratelimit.WithObserver(h))
	}
	var st *store
	if h.chance(25) {
		st = newStore(h, h.clock)
		opts = append(opts, ratelimit.WithStore(st.drawMethods()), h.drawPolicyOption())
		if h.chance(98) {
			opts = append(opts, ratelimit.WithName("alone"))
		}
	} else if h.chance(5) {
		h.misset()
	}
	if h.chance(2) {
		opts = append(opts, oneOf(h, ratelimit.WithMaxKeys(0), ratelimit.WithName("a:b"), nil, ratelimit.WithClock(nil),
			ratelimit.WithMaxWaiters(-1), ratelimit.WithFailurePolicy(ratelimit.FailLocal(0)), ratelimit.WithStore(nil)))
	}
	var l limiter
	for made := false; !made; {
		r := h.drawRate(a, 0)
		var err error
		l, err = newLimiter(a, r, opts...)
		h.say("new %s %+v with %d options: %s", a, r, len(opts), problem(err))
		if made = err == nil; !made && h.chance(30) {
			return
		}
	}
	if h.chance(1) {
		l = zeroLimiter(a)
	}
	for range 10 + h.IntN(25) {
		h.limiterStep(a, l, st, keys)
	}
}

// zeroLimiter returns the zero value of the limiter type for the given algorithm.
func zeroLimiter(a ratelimit.Algorithm) limiter {
	switch a {
	case ratelimit.AlgorithmTokenBucket:
		return new(ratelimit.TokenBucket)
	case ratelimit.AlgorithmFixedWindow:
		return new(ratelimit.FixedWindow)
	case ratelimit.AlgorithmSlidingWindowLog:
		return new(ratelimit.SlidingWindowLog)
	case ratelimit.AlgorithmSlidingWindowCounter:
		return new(ratelimit.SlidingWindowCounter)
	}
	return new(ratelimit.LeakyBucket)
}

// limiterStep makes one random call of the limiter l and records the result, or it moves the clock.
func (h *history) limiterStep(a ratelimit.Algorithm, l limiter, st *store, keys int) {
	key := fmt.Sprint("k", h.IntN(keys))
	if h.chance(3) {
		key = oneOf(h, "", "\x00", "\xff")
	}
	if st != nil {
		st.faults()
	}
	switch n := h.IntN(100); {
	case n < 30:
		h.try("allow "+key, func() string { return result(l.Allow(key)) })
	case n < 50:
		units := h.drawCount()
		ctx, done := h.drawContext()
		defer done()
		ctx = st.ends(ctx)
		h.try(fmt.Sprintf("take %q %d %v", key, units, ctx == nil), func() string { return answer(l.Take(ctx, key, units)) })
	case n < 58:
		h.try("peek "+key, func() string { return result(l.Peek(key)) })
	case n < 62:
		h.try("reset "+key, func() string { return problem(l.Reset(key)) })
	case n < 67:
		r := h.drawRate(a, oneOf(h, 0, l.Rate().Per))
		h.try(fmt.Sprintf("set rate %+v", r), func() string { return problem(l.SetRate(r)) })
		h.say("rate %+v", l.Rate())
	case n < 70:
		h.try("len", func() string { return fmt.Sprint(l.Len()) })
	case n < 75:
		units, patience := h.drawCount(), oneOf(h, 0, 1, time.Nanosecond, -time.Hour)
		h.try(fmt.Sprintf("wait %q %d %v", key, units, patience), func() string {
			return answer(ratelimit.Wait(st.mayEnd(h.due(patience)), l, key, units))
		})
	case n < 77:
		h.misuse(st)
	default:
		h.step(st != nil)
	}
}

// misuse makes a random call that is invalid or unusual, and records the result.
func (h *history) misuse(st *store) {
	switch {
	case st != nil && h.chance(80):
		st.direct()
	case h.chance(10):
		h.try("memory store", func() string {
			_, err := ratelimit.NewMemoryStore(ratelimit.WithName("x"))
			return problem(err)
		})
	case h.chance(50):
		h.try("wait for nothing", func() string { return answer(ratelimit.Wait(context.Background(), nil, "k", 1)) })
	default:
		var p ratelimit.FailurePolicy
		text := oneOf(h, "open", "closed", "local", "local:4", "inherit", "x", "local:0")
		h.try("policy "+text, func() string { return problem(p.UnmarshalText([]byte(text))) + p.String() })
		h.try("policy", func() string {
			again, err := h.drawPolicy().MarshalText()
			return string(again) + problem(err)
		})
	}
}

// drawPolicy returns a random FailurePolicy, which says how a limiter decides while its store
// fails.
func (h *history) drawPolicy() ratelimit.FailurePolicy {
	return oneOf(h, ratelimit.FailurePolicy{}, ratelimit.FailurePolicy{}, ratelimit.FailOpen, ratelimit.FailClosed,
		ratelimit.FailLocal(1), ratelimit.FailLocal(2), ratelimit.FailLocal(3), ratelimit.FailLocal(1000))
}

func (h *history) drawPolicyOption() ratelimit.Option {
	return ratelimit.WithFailurePolicy(h.drawPolicy())
}
