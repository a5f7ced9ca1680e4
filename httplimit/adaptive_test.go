package httplimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// adaptive returns a Transport that sends up to ten requests a second, and whose server gives these answers.
func adaptive(a httplimit.Adaptive, answer func(*http.Request) *http.Response) (*httplimit.Transport, *wire) {
	w := &wire{answer: answer}
	return &httplimit.Transport{Base: w, Adaptive: &a, MaxWait: time.Hour}, w
}

var tenASecond = httplimit.Adaptive{Max: ratelimit.PerSecond(10)}

// gaps returns the times between the requests that were sent.
func (w *wire) gaps() (gaps []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := 1; i < len(w.at); i++ {
		gaps = append(gaps, w.at[i].Sub(w.at[i-1]))
	}
	return gaps
}

// sendAll sends n requests, one after the other.
func sendAll(t *testing.T, tr *httplimit.Transport, n int) {
	t.Helper()
	for range n {
		_, err := send(t.Context(), t, tr, api)
		require.NoError(t, err)
	}
}

// TestAdaptiveFalls has a server that denies three requests. 429 also begins a hold, 503 without Retry-After does not.
func TestAdaptiveFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := response(http.StatusServiceUnavailable)
		tr, w := adaptive(tenASecond, once(response(200), response(200), down, down, down))
		sendAll(t, tr, 6)
		assert.Equal(t, []time.Duration{
			100 * time.Millisecond,
			100 * time.Millisecond,
			200 * time.Millisecond, // half of Max
			400 * time.Millisecond, // a quarter
			time.Second*100/120 + 1,
		}, w.gaps())

		tr, w = adaptive(httplimit.Adaptive{Max: ratelimit.PerMinute(1)}, once(response(http.StatusTooManyRequests, "Retry-After", "200")))
		sendAll(t, tr, 2)
		assert.GreaterOrEqual(t, w.gaps()[0], 200*time.Second, "the hold, which is longer than two minutes")
		assert.LessOrEqual(t, w.gaps()[0], 201*time.Second)
		sendAll(t, tr, 1)
		assert.Equal(t, 2*time.Minute*50/51+1, w.gaps()[1], "half of Max, and a step that the success has brought")
	})
}

// TestAdaptiveNeutral has answers and errors that change nothing.
func TestAdaptiveNeutral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := adaptive(tenASecond, once(response(500), response(502), response(404), response(304), response(301)))
		sendAll(t, tr, 5)
		_, err := send(t.Context(), t, tr, "http://")
		require.Error(t, err)
		sendAll(t, tr, 1)
		for _, gap := range w.gaps() {
			assert.LessOrEqual(t, gap, 100*time.Millisecond)
		}

		tr, w = adaptive(httplimit.Adaptive{Max: ratelimit.PerSecond(10), Recover: time.Millisecond},
			once(response(http.StatusServiceUnavailable), response(500), response(500), response(501)))
		sendAll(t, tr, 5)
		for _, gap := range w.gaps() {
			assert.Equal(t, 200*time.Millisecond, gap, "they do not raise the rate either")
		}
	})
}

// TestAdaptiveTogether denies five requests that were sent together: the rate falls once.
func TestAdaptiveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan *http.Response)
		tr := &httplimit.Transport{Base: answers(answer), Adaptive: &httplimit.Adaptive{Max: ratelimit.PerSecond(10).WithBurst(5)}}
		var sent sync.WaitGroup
		for range 5 {
			sent.Go(func() {
				_, err := send(context.WithoutCancel(t.Context()), t, tr, api)
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		for range 5 {
			answer <- response(http.StatusServiceUnavailable)
		}
		sent.Wait()
		began := time.Now()
		go func() { answer <- response(200) }()
		sendAll(t, tr, 1)
		assert.Equal(t, 200*time.Millisecond, time.Since(began), "half of Max")
	})
}

// TestAdaptiveRecovers lets the rate fall to Min, and rise to Max. It rises by a step in each hundredth of Recover.
func TestAdaptiveRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denies := true
		tr, w := adaptive(httplimit.Adaptive{Max: ratelimit.PerSecond(10), Min: ratelimit.PerSecond(2), Recover: 10 * time.Second},
			func(*http.Request) *http.Response {
				if denies {
					return response(http.StatusServiceUnavailable)
				}
				return response(200)
			})
		sendAll(t, tr, 10)
		gaps := w.gaps()
		assert.Equal(t, 500*time.Millisecond, gaps[len(gaps)-1], "Min")
		denies = false
		began, n := time.Now(), w.count()
		for time.Since(began) < 8*time.Second-100*time.Millisecond {
			sendAll(t, tr, 1)
		}
		assert.Greater(t, w.gaps()[w.count()-2], 100*time.Millisecond, "from a fifth to Max takes eight seconds")
		assert.Less(t, w.count()-n, 60)
		for time.Since(began) < 17*time.Second { // each success is a step, and at a fifth of Max only two come in a second
			sendAll(t, tr, 1)
		}
		assert.Equal(t, 100*time.Millisecond, w.gaps()[w.count()-2], "Max")
	})
}

// TestAdaptiveSteps has successes that come faster than the rate may rise, and one right after a fall.
func TestAdaptiveSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, w := adaptive(httplimit.Adaptive{Max: ratelimit.PerSecond(10), Recover: 100 * time.Second},
			once(response(200), response(http.StatusServiceUnavailable)))
		sendAll(t, tr, 1)
		time.Sleep(10 * time.Second)
		sendAll(t, tr, 9)
		fifth := time.Second / 5
		assert.Equal(t, []time.Duration{
			10 * time.Second, fifth, fifth, fifth, fifth, fifth, // a step may come a second after the fall
			time.Second*100/510 + 1, time.Second*100/510 + 1, time.Second*100/510 + 1,
		}, w.gaps())
	})
}

// TestAdaptiveBound sends requests by many goroutines to a server that denies at random. In any time of length d, at most
// Burst + d·Max are sent.
func TestAdaptiveBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 3
		l, err := ratelimit.New(nil, &ratelimit.Rule{
			Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.Rate{Requests: 5, Per: 2 * time.Second},
		})
		require.NoError(t, err)
		for _, limiter := range []*ratelimit.RateLimiter{nil, l} {
			random := rand.New(rand.NewPCG(1, 2))
			tr, w := adaptive(httplimit.Adaptive{Max: ratelimit.PerSecond(10).WithBurst(burst), Recover: time.Second},
				func(*http.Request) *http.Response {
					if random.IntN(20) == 0 {
						return response(http.StatusServiceUnavailable)
					}
					return response(200)
				})
			tr.Limiter = limiter
			var sending sync.WaitGroup
			for range 8 {
				sending.Go(func() {
					for range 40 {
						_, err := send(context.WithoutCancel(t.Context()), t, tr, api)
						assert.NoError(t, err)
					}
				})
			}
			sending.Wait()
			require.Len(t, w.at, 320)
			for i := range w.at {
				for j := i; j < len(w.at); j++ {
					if n, d := j-i+1, w.at[j].Sub(w.at[i]); time.Duration(n-burst)*100*time.Millisecond > d {
						require.Fail(t, "too many", "%d requests in %v", n, d)
					}
				}
			}
		}
	})
}

// TestAdaptiveScope has one rate for each scope, and keeps 1,024 of them.
func TestAdaptiveScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _ := adaptive(tenASecond, func(r *http.Request) *http.Response {
			if r.URL.Path == "/down" {
				return response(http.StatusServiceUnavailable)
			}
			return response(200)
		})
		tr.Scope = httplimit.PathScope
		took := func(path string) time.Duration {
			took, err := send(t.Context(), t, tr, origin+path)
			require.NoError(t, err)
			return took
		}
		assert.Zero(t, took("/down"))
		assert.Zero(t, took("/up"))
		assert.Equal(t, 100*time.Millisecond, took("/up"))
		assert.Equal(t, 100*time.Millisecond, took("/down"), "200 ms after the first")
		for i := range 1022 {
			took(fmt.Sprintf("/%d", i))
		}
		assert.Equal(t, 400*time.Millisecond, took("/down"), "1,024 rates are kept")
		took("/new")
		assert.Equal(t, 833333334*time.Nanosecond, took("/down"), "another was used least recently")
		took("/up")
		for i := range 1024 {
			took(fmt.Sprintf("/more/%d", i))
		}
		assert.Zero(t, took("/down"), "forgotten")
		assert.Equal(t, 200*time.Millisecond, took("/down"), "from Max to half")
	})
}

// TestAdaptiveDo learns from requests by another protocol, and fails at once if the wait is too long.
func TestAdaptiveDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &httplimit.Transport{Adaptive: &httplimit.Adaptive{Max: ratelimit.PerSecond(10)}, MaxWait: 300 * time.Millisecond}
		do := func(wait time.Duration, err error) error {
			return tr.Do(t.Context(), "db", func() (time.Duration, error) { return wait, err })
		}
		took := func(wait time.Duration, err error) time.Duration {
			began := time.Now()
			require.Equal(t, err, do(wait, err))
			return time.Since(began)
		}
		assert.Zero(t, took(0, context.Canceled))
		assert.Equal(t, 100*time.Millisecond, took(0, nil))
		assert.Equal(t, 100*time.Millisecond, took(time.Nanosecond, nil))
		assert.Equal(t, 200*time.Millisecond, took(time.Nanosecond, nil), "a wait is a denial")
		held := (*httplimit.HoldError)(nil)
		require.ErrorAs(t, do(0, nil), &held)
		assert.Equal(t, &httplimit.HoldError{Host: "db", Wait: 400*time.Millisecond - 1}, held, "the hold has lasted a nanosecond")
	})
}

// TestAdaptiveDoErrors has errors that change nothing.
func TestAdaptiveDoErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &httplimit.Transport{Adaptive: &httplimit.Adaptive{Max: ratelimit.PerSecond(10), Recover: time.Millisecond}}
		began := time.Now()
		require.NoError(t, tr.Do(t.Context(), "db", func() (time.Duration, error) { return time.Nanosecond, nil }))
		for range 5 {
			_ = tr.Do(t.Context(), "db", func() (time.Duration, error) { return 0, context.Canceled })
		}
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// TestAdaptiveClock has a clock that is moved by hand.
func TestAdaptiveClock(t *testing.T) {
	clock := ratelimit.NewFakeClock(start)
	tr, w := adaptive(tenASecond, once(response(http.StatusServiceUnavailable)))
	tr.Clock, tr.MaxWait = clock, time.Nanosecond
	sendAll(t, tr, 1)
	clock.Advance(200*time.Millisecond - 2)
	_, err := send(t.Context(), t, tr, api)
	require.Error(t, err)
	clock.Advance(2)
	sendAll(t, tr, 1)
	assert.Equal(t, 2, w.count())
}

func TestAdaptiveProblems(t *testing.T) {
	for _, row := range []struct {
		a    httplimit.Adaptive
		text string // "": it is valid
	}{
		{httplimit.Adaptive{}, "adaptive.max"},
		{httplimit.Adaptive{Max: ratelimit.Unlimited}, "adaptive.max"},
		{httplimit.Adaptive{Max: ratelimit.Rate{Requests: 1, Per: 25 * time.Hour}}, "must be for at most 24h"},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(1<<24 + 1)}, "at most 16777216 requests"},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(1 << 24)}, ""},
		{httplimit.Adaptive{Max: ratelimit.PerDay(1)}, ""},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(100), Min: ratelimit.PerSecond(1)}, ""},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(100), Min: ratelimit.PerSecond(100)}, ""},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(100), Min: ratelimit.PerMinute(59)}, "adaptive.min"},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(100), Min: ratelimit.PerSecond(101)}, "adaptive.min"},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(100), Min: ratelimit.Rate{Requests: -1, Per: 1}}, "adaptive.min"},
		{httplimit.Adaptive{Max: ratelimit.PerSecond(1), Recover: -1}, "adaptive.recover"},
	} {
		tr := &httplimit.Transport{Base: &wire{}, Adaptive: &row.a}
		_, err := send(t.Context(), t, tr, api)
		if row.text == "" {
			assert.NoError(t, err, "%+v", row.a)
			continue
		}
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%+v", row.a)
		assert.ErrorContains(t, err, row.text)
	}
}
