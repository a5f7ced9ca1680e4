package verify

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A far is a RoundTripper that answers with the headers that it has, in turn, and then with 200.
type far struct {
	slow chan string // answers to requests for /slow

	mu      sync.Mutex
	answers []string
	sent    []*http.Request
	at      []time.Time
}

// next notes r, and returns the next answer.
func (f *far) next(r *http.Request) (text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent, f.at, text = append(f.sent, r), append(f.at, time.Now()), "200"
	if len(f.answers) > 0 && r.URL.Path != "/slow" {
		text, f.answers = f.answers[0], f.answers[1:]
	}
	return text
}

func (f *far) RoundTrip(r *http.Request) (*http.Response, error) {
	text := f.next(r)
	if r.URL.Path == "/slow" {
		text = <-f.slow
	}
	lines := strings.Split(text, "\n")
	res := &http.Response{Header: http.Header{}, Body: http.NoBody}
	if _, err := fmt.Sscan(lines[0], &res.StatusCode); err != nil {
		return nil, err
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		res.Header.Add(name, value)
	}
	return res, nil
}

// A closer counts how often a body is closed.
type closer struct {
	io.Reader
	closed int
}

func (c *closer) Close() error { c.closed++; return nil }

// goes sends a request to target by tr, with a deadline after patience unless that is 0. It returns
// how long that took.
func goes(t *testing.T, tr *httplimit.Transport, target string, patience time.Duration) (time.Duration, error) {
	t.Helper()
	ctx := t.Context()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	body := &closer{Reader: strings.NewReader("x")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, body)
	require.NoError(t, err)
	before, began := *r, time.Now()
	res, err := tr.RoundTrip(r)
	took := time.Since(began)
	require.Equal(t, before, *r, "the request is not changed")
	if err != nil {
		require.Equal(t, 1, body.closed)
		return took, err
	}
	return took, res.Body.Close()
}

const there = "http://a.example/"

// TestTransportHolds holds for exactly as long as a response asks for.
func TestTransportHolds(t *testing.T) {
	date := func(d time.Duration) string { return time.Unix(1_700_000_000, 0).Add(d).UTC().Format(http.TimeFormat) }
	for answer, want := range map[string]time.Duration{
		"429\nRetry-After: 5": 5 * time.Second,
		"503\nRetry-After: 5": 5 * time.Second,
		"301\nRetry-After: 5": 0,
		"429":                 time.Second,
		"503":                 0,
		"429\nRetry-After: 5\nRateLimit: \"a\";r=0;t=30":                                 5 * time.Second,
		"429\nRetry-After: 5\nRetry-After: 50":                                           5 * time.Second,
		"429\nRetry-After: -5":                                                           time.Second,
		"429\nRetry-After: 1000000":                                                      10 * time.Minute,
		"429\nRetry-After: 99999999999":                                                  time.Second,
		"429\nRetry-After: 99999999999999999999":                                         time.Second,
		"429\nRetry-After: 7\nAge: 1":                                                    0,
		"429\nRetry-After: 7\nAge: 0":                                                    7 * time.Second,
		"304\nRateLimit: \"a\";r=0;t=30":                                                 0,
		"200\nRateLimit: \"a\";r=0;t=30":                                                 30 * time.Second,
		"200\nRateLimit: \"a\";r=0;t=3\nRateLimit: b;a=0;w=8":                            8 * time.Second,
		"200\nRateLimit: \"a\";r=1;t=30":                                                 0,
		"200\nRateLimit: \"a\";r=0;t=999999999999999,b;r=0;t=2":                          2 * time.Second,
		"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30":                           30 * time.Second,
		"200\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 30":                           0,
		"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1e400":                        0,
		"429\nRetry-After: " + date(9*time.Second) + "\nDate: " + date(0):                9 * time.Second,
		"429\nRetry-After: " + date(-9*time.Second) + "\nDate: " + date(0):               time.Second,
		"200\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1700000009\nDate: " + date(0): 9 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{answers: []string{answer}}, MaxWait: time.Hour}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			if want > 0 {
				took, err := goes(t, tr, there, want)
				require.ErrorIs(t, err, context.DeadlineExceeded, answer)
				require.Zero(t, took, "at once")
			}
			took, err := goes(t, tr, there, want+1)
			require.NoError(t, err, answer)
			require.Equal(t, want, took, answer)
		})
	}
}

// TestTransportWaits has the rules about waiting, one at a time.
func TestTransportWaits(t *testing.T) {
	const five = "503\nRetry-After: 5"
	limiter := func(t *testing.T) *ratelimit.RateLimiter {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: 5 * time.Second}})
		require.NoError(t, err)
		return l
	}
	for name, f := range map[string]func(t *testing.T){
		"MaxWait": func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{answers: []string{five}}, MaxWait: 5*time.Second - 1}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			_, err = goes(t, tr, there, 0)
			require.Equal(t, &httplimit.HoldError{Host: "http://a.example:80", Wait: 5 * time.Second}, err)
		},
		"MaxWait in the limiter": func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{}, MaxWait: 5 * time.Second, Limiter: limiter(t)}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			took, err := goes(t, tr, there, 0)
			require.Equal(t, &httplimit.HoldError{Host: "http://a.example:80", Wait: 5 * time.Second}, err)
			require.Zero(t, took)
		},
		"MaxWait of both": func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{answers: []string{"503\nRetry-After: 2"}}, MaxWait: 4 * time.Second, Limiter: limiter(t)}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			_, err = goes(t, tr, there, 0)
			require.ErrorAs(t, err, new(*httplimit.HoldError))
		},
		"a deadline in the limiter": func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{}, MaxWait: time.Second, Limiter: limiter(t)}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			took, err := goes(t, tr, there, 2*time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Zero(t, took)
			_, err = goes(t, tr, there, 0)
			require.ErrorAs(t, err, new(*httplimit.HoldError))
		},
		"a newer hold in the limiter": func(t *testing.T) {
			base := &far{slow: make(chan string)}
			tr := &httplimit.Transport{Base: base, Limiter: limiter(t)}
			go func() { _, _ = goes(t, tr, there+"slow", 0) }()
			synctest.Wait()
			time.AfterFunc(time.Second, func() { base.slow <- "503\nRetry-After: 20" })
			took, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, 21*time.Second)
		},
		"a newer hold in a hold": func(t *testing.T) {
			base := &far{slow: make(chan string), answers: []string{five}}
			tr := &httplimit.Transport{Base: base}
			go func() { _, _ = goes(t, tr, there+"slow", 0) }()
			synctest.Wait()
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			time.AfterFunc(time.Second, func() { base.slow <- "503\nRetry-After: 20" })
			took, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, 21*time.Second)
		},
		"a hold is not made shorter": func(t *testing.T) {
			base := &far{slow: make(chan string), answers: []string{"503\nRetry-After: 20"}}
			tr := &httplimit.Transport{Base: base}
			go func() { _, _ = goes(t, tr, there+"slow", 0) }()
			synctest.Wait()
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			base.slow <- five
			synctest.Wait()
			took, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			require.GreaterOrEqual(t, took, 20*time.Second)
		},
		"the spread": func(t *testing.T) {
			for hold, spread := range map[int]time.Duration{2: 200 * time.Millisecond, 300: time.Second} {
				base := &far{answers: []string{fmt.Sprint("503\nRetry-After: ", hold)}}
				tr := &httplimit.Transport{Base: base, MaxWait: time.Hour}
				_, err := goes(t, tr, there, 0)
				require.NoError(t, err)
				ends := time.Now().Add(time.Duration(hold) * time.Second)
				for range 300 {
					go func() { _, _ = goes(t, tr, there, 0) }()
				}
				time.Sleep(time.Duration(hold)*time.Second + spread)
				synctest.Wait()
				require.Len(t, base.at, 301)
				first, last := base.at[1], base.at[300] // they leave in order
				require.False(t, first.Before(ends))
				require.Greater(t, last.Sub(first), spread/2)
			}
		},
		"other hosts": func(t *testing.T) {
			tr := &httplimit.Transport{Base: &far{answers: []string{five}}, MaxWait: 1}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			for _, other := range []string{"http://b.example/", "http://a.example:81/", "https://a.example/"} {
				_, err = goes(t, tr, other, 0)
				require.NoError(t, err, other)
			}
			for _, same := range []string{"http://a.example:80/", "http://A.example/x"} {
				_, err = goes(t, tr, same, 0)
				require.Error(t, err, same)
			}
		},
		"the earliest end leaves": func(t *testing.T) {
			base := &far{}
			tr := &httplimit.Transport{Base: base, MaxWait: 1, MaxHold: time.Hour}
			held := func(host, seconds int) bool {
				base.answers = []string{fmt.Sprint("503\nRetry-After: ", seconds)}
				_, err := goes(t, tr, fmt.Sprintf("http://h%d.example/", host), 0)
				return err != nil
			}
			for i := range 1025 {
				require.False(t, held(i, 100+(i*7+500)%1025))
			}
			const first = 75 // ends first
			require.False(t, held(first, 1), "it has left, and ends too early to come back")
			for i := range 1025 {
				require.Equal(t, i != first, held(i, 0), "%d", i)
			}
		},
		"a fake clock": func(t *testing.T) {
			clock := ratelimit.NewFakeClock(time.Unix(1_700_000_000, 0))
			base := &far{answers: []string{five}}
			tr := &httplimit.Transport{Base: base, Clock: clock}
			_, err := goes(t, tr, there, 0)
			require.NoError(t, err)
			go func() { _, _ = goes(t, tr, there, 0) }()
			time.Sleep(time.Minute)
			require.Len(t, base.sent, 1)
			clock.Advance(5500 * time.Millisecond)
			synctest.Wait()
			require.Len(t, base.sent, 2)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
	}
}

// TestTransportAtOnce has no time to wait, and no need to. Real time passes.
func TestTransportAtOnce(t *testing.T) {
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1)})
	require.NoError(t, err)
	tr := &httplimit.Transport{Base: &far{}, MaxWait: 1, Limiter: l}
	_, err = goes(t, tr, there, 0)
	require.NoError(t, err)
	_, err = goes(t, tr, there, 0)
	require.ErrorAs(t, err, new(*httplimit.HoldError))
}

// TestTransportEnds has many requests to a real server, which waits and breaks off. Many of them end
// while they wait. That no goroutine stays is checked when all tests are over.
func TestTransportEnds(t *testing.T) {
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch served.Add(1) % 3 {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(100)})
	require.NoError(t, err)
	base := &http.Transport{}
	client := &http.Client{Transport: &httplimit.Transport{Base: base, Limiter: l, MaxWait: time.Hour}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader("x"))
			if err != nil {
				return
			}
			if res, err := client.Do(r); err == nil {
				_ = res.Body.Close()
			}
		})
		time.AfterFunc(time.Duration(i)*time.Millisecond, cancel)
	}
	all.Wait()
}

// TestTransportClockFarBack sets the clock back by 590 years while a server is held. The rest of the
// hold is longer than a Duration can be.
func TestTransportClockFarBack(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	f := &far{answers: []string{"200", "429\nRetry-After: 60"}}
	client := &http.Client{Transport: &httplimit.Transport{Base: f, Clock: clock}}
	ask := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://far.example/", nil)
		require.NoError(t, err)
		res, err := client.Do(r)
		if err == nil {
			require.NoError(t, res.Body.Close())
		}
		return err
	}
	require.NoError(t, ask(t.Context()))
	clock.Set(time.Date(2290, 1, 1, 0, 0, 0, 0, time.UTC))
	require.NoError(t, ask(t.Context()))
	clock.Set(time.Date(1709, 1, 1, 0, 0, 0, 0, time.UTC))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(5*time.Second, cancel).Stop() // so that the test ends if it does not fail at once
	var held *httplimit.HoldError
	require.ErrorAs(t, ask(ctx), &held)
	require.Equal(t, ratelimit.Never, held.Wait)
	clock.Set(time.Date(2290, 1, 1, 0, 1, 0, 0, time.UTC))
	require.NoError(t, ask(ctx))
}
