package verify

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// sentWithin is a RoundTripper whose answers take 50 ms. The fifth answer of host a.example asks clients to
// wait for 15 s.
type sentWithin struct {
	far

	fifth time.Time // when that answer came
}

func (s *sentWithin) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.sent, s.at = append(s.sent, r), append(s.at, time.Now())
	fifth := len(s.of("a.example")) == 5
	s.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	res := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	if fifth && r.URL.Host == "a.example" {
		s.fifth = time.Now()
		res.StatusCode = http.StatusTooManyRequests
		res.Header.Set("Retry-After", "15")
	}
	return res, nil
}

// of returns when requests to this host were sent.
func (s *sentWithin) of(host string) (at []time.Time) {
	for i, r := range s.sent {
		if r.URL.Host == host {
			at = append(at, s.at[i])
		}
	}
	return at
}

// TestTransportRateAfterHold has a hold that begins while requests wait for the limiter.
func TestTransportRateAfterHold(t *testing.T) {
	for name, f := range map[string]func(t *testing.T){
		"a hold saves up no grants": func(t *testing.T) {
			for _, algorithm := range []ratelimit.Algorithm{
				ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket, ratelimit.AlgorithmSlidingWindowLog,
			} {
				l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: algorithm, Rate: ratelimit.PerSecond(5)})
				require.NoError(t, err)
				base := &sentWithin{}
				tr := &httplimit.Transport{Base: base, Limiter: l}
				for range 100 {
					go func() { _, _ = goes(t, tr, there, 0) }()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				at := base.of("a.example")
				require.Greater(t, len(at), 50, "%s: after the hold, requests are sent again", algorithm)
				for i := range at {
					if at[i].After(base.fifth) {
						require.False(t, at[i].Before(base.fifth.Add(15*time.Second)), "%s: sent during the hold", algorithm)
					}
					for j := range i { // at most 5, and 5 a second
						require.LessOrEqual(t, time.Duration(i-j+1-5)*200*time.Millisecond, at[i].Sub(at[j]), "%s: %d to %d", algorithm, j, i)
					}
				}
			}
		},
		"a hold leaves the limiter to other servers": func(t *testing.T) {
			l, err := ratelimit.New(nil, &ratelimit.Rule{Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(5)})
			require.NoError(t, err)
			base := &sentWithin{}
			tr := &httplimit.Transport{Base: base, Limiter: l}
			for range 100 {
				go func() { _, _ = goes(t, tr, there, 0) }()
			}
			time.Sleep(2 * time.Second)
			for range 60 {
				go func() { _, _ = goes(t, tr, "http://b.example/", 0) }()
			}
			time.Sleep(12 * time.Second)
			synctest.Wait()
			require.Len(t, base.of("b.example"), 60, "they get the whole rate")
		},
		"a hold begins before the limiter is asked": func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{}, Limiter: limitedTo(t, func() {})}
			tr.Request = func(r *http.Request) ratelimit.Request {
				if r.URL.Path == "/hold" {
					return ratelimit.Request{Endpoint: "free"}
				}
				hold(t, tr)
				return ratelimit.Request{Endpoint: "limited"}
			}
			took, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, 20*time.Second)
		},
		"a hold begins at the grant": func(t *testing.T) {
			var tr *httplimit.Transport
			granted := 0
			tr = &httplimit.Transport{Base: &far{}, Limiter: limitedTo(t, func() {
				if granted++; granted == 1 {
					hold(t, tr)
				}
			})}
			tr.Request = func(r *http.Request) ratelimit.Request {
				return ratelimit.Request{Endpoint: map[bool]string{true: "free", false: "limited"}[r.URL.Path == "/hold"]}
			}
			took, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, 20*time.Second)
			require.Equal(t, 2, granted, "the limiter is asked again after the hold")
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}

// hold lets the server of tr start a hold of 20 s, by a request that tr does not limit.
func hold(t *testing.T, tr *httplimit.Transport) {
	base := tr.Base.(*far)
	base.mu.Lock()
	first := len(base.sent) == 0
	if first {
		base.answers = []string{"503\nRetry-After: 20"}
	}
	base.mu.Unlock()
	if !first {
		return
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(there, "/")+"/hold", nil)
	require.NoError(t, err)
	res, err := tr.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
}

// observed calls a function for each grant.
type observed func()

func (o observed) Observe(_ context.Context, d ratelimit.Decision) {
	if d.Rule == "limited" && d.Result.Allowed {
		o()
	}
}

// limitedTo returns a limiter of the endpoint "limited" that calls granted for each grant, by which
// a hold can begin at that moment.
func limitedTo(t *testing.T, granted func()) *ratelimit.RateLimiter {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "limited", Rate: ratelimit.PerSecond(5)}}, nil,
		ratelimit.WithObserver(observed(granted)))
	require.NoError(t, err)
	return l
}

// TestTransportOrderAfterHold has requests that come before and during a hold, and a second hold while they leave.
// They are sent in the order in which they came.
func TestTransportOrderAfterHold(t *testing.T) {
	for name, limited := range map[string]bool{"with a limiter": true, "without a limiter": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base := &far{}
				tr := &httplimit.Transport{Base: base, MaxWait: 10 * time.Minute}
				if limited {
					l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(5)})
					require.NoError(t, err)
					tr.Limiter = l
					tr.Request = func(r *http.Request) ratelimit.Request {
						return ratelimit.Request{Client: map[bool]string{true: "other", false: "all"}[r.URL.Path == "/hold"]}
					}
				}
				answer := func(texts ...string) {
					base.mu.Lock()
					base.answers = texts
					base.mu.Unlock()
				}
				const waiters = 200
				sent := 0
				come := func(n int) {
					for range n {
						target := fmt.Sprint(there, sent)
						sent++
						go func() { _, _ = goes(t, tr, target, 0) }()
						time.Sleep(time.Millisecond)
					}
				}
				if limited {
					come(waiters / 4) // 45 of them wait for the limiter when the hold begins
				}
				answer("429\nRetry-After: 20")
				_, err := goes(t, tr, there+"hold", 0)
				require.NoError(t, err)
				come(waiters / 2)
				time.Sleep(20 * time.Second)
				answer("429\nRetry-After: 30") // to one of those who leave now
				time.Sleep(10 * time.Second)
				come(waiters - sent)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				order := -1
				for i, r := range base.sent {
					if r.URL.Path == "/hold" {
						continue
					}
					var number int
					_, err := fmt.Sscan(strings.TrimPrefix(r.URL.Path, "/"), &number)
					require.NoError(t, err)
					require.Equal(t, order+1, number, "%d of %d", i, len(base.sent))
					order = number
				}
				require.Len(t, base.sent, waiters+1)
			})
		})
	}
}
