package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

const api = "http://api.example.com/items"

// A wire is a RoundTripper that answers by itself, and notes the requests that it gets.
type wire struct {
	answer func(*http.Request) *http.Response // nil: 200

	mu   sync.Mutex
	sent []*http.Request
	at   []time.Time
	idle int
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.at = append(w.sent, r), append(w.at, time.Now())
	if r.Body != nil {
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	if r.URL == nil || r.URL.Host == "" {
		return nil, errors.New("no host")
	}
	if w.answer != nil {
		return w.answer(r), nil
	}
	return response(http.StatusOK), nil
}

func (w *wire) CloseIdleConnections() { w.idle++ }

// count returns how many requests were sent.
func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sent)
}

// response returns a response with these header lines, in pairs.
func response(status int, header ...string) *http.Response {
	res := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	for i := 0; i < len(header); i += 2 {
		res.Header.Add(header[i], header[i+1])
	}
	return res
}

// once returns an answer that gives each response once, in turn, and then 200.
func once(all ...*http.Response) func(*http.Request) *http.Response {
	return func(*http.Request) *http.Response {
		if len(all) == 0 {
			return response(http.StatusOK)
		}
		res := all[0]
		all = all[1:]
		return res
	}
}

// A body notes that it was closed.
type body struct {
	io.Reader
	closed int
}

func (b *body) Close() error { b.closed++; return nil }

// post returns a request with a body.
func post(ctx context.Context, t testing.TB, target string) (*http.Request, *body) {
	t.Helper()
	b := &body{Reader: strings.NewReader("body")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, b)
	require.NoError(t, err)
	return r, b
}

// send sends a request to target, and requires that its body is closed once. It returns how long
// that took.
func send(ctx context.Context, t testing.TB, tr *httplimit.Transport, target string) (time.Duration, error) {
	t.Helper()
	r, b := post(ctx, t, target)
	began := time.Now()
	res, err := tr.RoundTrip(r)
	took := time.Since(began)
	require.Equal(t, 1, b.closed, "the body")
	if err != nil {
		require.Nil(t, res)
		return took, err
	}
	require.NoError(t, res.Body.Close())
	return took, nil
}

// heldFor requires that tr holds api for exactly d: a deadline at that time is too early, and
// one a nanosecond later is not. Nothing is left for a spread then.
func heldFor(t testing.TB, tr *httplimit.Transport, d time.Duration, why ...any) {
	t.Helper()
	if d > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		took, err := send(ctx, t, tr, api)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, why...)
		require.Zero(t, took, "it fails at once")
	}
	ctx, cancel := context.WithTimeout(t.Context(), d+1)
	defer cancel()
	took, err := send(ctx, t, tr, api)
	require.NoError(t, err, why...)
	require.Equal(t, d, took, why...)
}

// inBubble returns the time of a bubble of synctest, plus d, as a header has it.
func inBubble(d time.Duration) string {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(http.TimeFormat)
}

// TestHolds has all that a server can say, and how long that holds requests.
func TestHolds(t *testing.T) {
	const minute = time.Minute
	for _, row := range []struct {
		why    string
		status int
		want   time.Duration
		header []string
	}{
		{"seconds", 429, 5 * time.Second, []string{"Retry-After", "5"}},
		{"seconds, by 503", 503, 5 * time.Second, []string{"Retry-After", "5"}},
		{"other statuses mean something else by it", 301, 0, []string{"Retry-After", "5"}},
		{"none, by 429", 429, time.Second, nil},
		{"none, by 503", 503, 0, nil},
		{"at once", 429, 0, []string{"Retry-After", "0"}},
		{"leading zeros", 429, 7 * time.Second, []string{"Retry-After", "0000000000000000000000007"}},
		{"a date, by another clock", 429, minute, []string{"Retry-After", inBubble(time.Hour + minute), "Date", inBubble(time.Hour)}},
		{"a date, by a clock that is late", 503, minute, []string{"Retry-After", inBubble(minute - time.Hour), "Date", inBubble(-time.Hour)}},
		{"a date without Date", 429, minute, []string{"Retry-After", inBubble(minute)}},
		{"a date with a malformed Date", 429, minute, []string{"Retry-After", inBubble(minute), "Date", "today"}},
		{"an older form of a date", 429, minute, []string{"Retry-After", "Saturday, 01-Jan-00 00:01:00 GMT"}},
		{"a date of now", 429, 0, []string{"Retry-After", inBubble(0)}},
		{"a date that has passed is ignored", 429, time.Second, []string{"Retry-After", inBubble(-minute)}},
		{"a date in 7,999 years is ignored", 429, time.Second, []string{"Retry-After", "Fri, 31 Dec 9999 23:59:59 GMT"}},
		{"malformed", 429, time.Second, []string{"Retry-After", "soon"}},
		{"malformed, by 503", 503, 0, []string{"Retry-After", "soon"}},
		{"a fraction", 429, time.Second, []string{"Retry-After", "5.5"}},
		{"a sign", 429, time.Second, []string{"Retry-After", "+5"}},
		{"negative", 429, time.Second, []string{"Retry-After", "-5"}},
		{"a list", 429, time.Second, []string{"Retry-After", "5, 6"}},
		{"more than any float", 429, time.Second, []string{"Retry-After", "1e400"}},
		{"more than 292 years", 429, time.Second, []string{"Retry-After", "9223372037"}},
		{"292 years", 429, 10 * minute, []string{"Retry-After", "9223372036"}},
		{"more than any integer", 429, time.Second, []string{"Retry-After", "99999999999999999999999999"}},
		{"the first line", 429, 5 * time.Second, []string{"Retry-After", "5", "Retry-After", "60"}},
		{"the first line, though it is malformed", 429, time.Second, []string{"Retry-After", "x", "Retry-After", "60"}},
		{"the cap", 429, 10 * minute, []string{"Retry-After", "1000000"}},

		{"RateLimit", 200, 30 * time.Second, []string{"RateLimit", `"default";r=0;t=30`}},
		{"RateLimit of the draft to come", 200, 30 * time.Second, []string{"RateLimit", `default;a=0;w=30`}},
		{"RateLimit with units left", 200, 0, []string{"RateLimit", `"default";r=1;t=30`}},
		{"RateLimit without a time", 200, 0, []string{"RateLimit", `"default";r=0`}},
		{"RateLimit without a time, by 429", 429, time.Second, []string{"RateLimit", `"default";r=0`}},
		{"RateLimit, by 429", 429, 30 * time.Second, []string{"RateLimit", `"default";r=0;t=30`}},
		{"RateLimit below a second, by 429", 429, time.Second, []string{"RateLimit", `"default";r=0;t=0`}},
		{"the longest policy that has nothing left", 200, 30 * time.Second,
			[]string{"RateLimit", `"a";r=0;t=5, "b";r=9;t=99`, "RateLimit", `"c";r=0;t=30`}},
		{"a malformed line spoils the field", 200, 0, []string{"RateLimit", `"a";r=0;t=5`, "RateLimit", `"b`}},
		{"RateLimit of an old draft", 200, 0, []string{"RateLimit", `limit=100, remaining=0, reset=30`}},
		{"RateLimit, the cap", 200, 10 * minute, []string{"RateLimit", `"a";r=0;t=86400`}},
		{"RateLimit, overflowing", 200, 5 * time.Second, []string{"RateLimit", `"a";r=0;t=999999999999999, "b";r=0;t=5`}},
		{"RateLimit-Policy alone says nothing", 200, 0, []string{"RateLimit-Policy", `"a";q=0;w=30`}},

		{"X-RateLimit, in seconds", 200, 30 * time.Second, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}},
		{"X-RateLimit, with units left", 200, 0, []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "30"}},
		{"X-RateLimit, without units", 200, 0, []string{"X-RateLimit-Reset", "30"}},
		{"X-RateLimit, malformed", 200, 0, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3x"}},
		{"X-RateLimit, negative", 200, 0, []string{"X-RateLimit-Remaining", "-0", "X-RateLimit-Reset", "30"}},
		{"X-RateLimit, since 1970, by another clock", 200, minute,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1700000060", "Date",
				time.Unix(1700000000, 0).UTC().Format(http.TimeFormat)}},
		{"X-RateLimit, since 1970, without Date", 200, 10 * minute, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000300"}},
		{"X-RateLimit, since 1970, before Date", 200, 0,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1700000060", "Date",
				time.Unix(1700000060, 0).UTC().Format(http.TimeFormat)}},
		{"X-RateLimit, a second before that is a duration", 200, 10 * minute,
			[]string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1000000000"}},
		{"X-RateLimit, in milliseconds since 1970", 200, 0, []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1700000000000"}},

		{"Retry-After wins over longer ones", 429, 2 * time.Second,
			[]string{"Retry-After", "2", "RateLimit", `"a";r=0;t=30`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"}},
		{"a malformed one does not win", 429, 40 * time.Second,
			[]string{"Retry-After", "x", "RateLimit", `"a";r=0;t=30`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "40"}},
		{"Retry-After of a 200 does not win", 200, 30 * time.Second,
			[]string{"Retry-After", "2", "RateLimit", `"a";r=0;t=30`, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "20"}},

		{"from a cache", 429, 0, []string{"Retry-After", "5", "Age", "1"}},
		{"from a cache, for longer than can be said", 429, 0, []string{"Retry-After", "5", "Age", "99999999999999999999"}},
		{"by way of a cache", 429, 5 * time.Second, []string{"Retry-After", "5", "Age", "0"}},
		{"a malformed Age", 429, 5 * time.Second, []string{"Retry-After", "5", "Age", "old"}},
		{"not modified", 304, 0, []string{"RateLimit", `"a";r=0;t=30`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{answer: once(response(row.status, row.header...))}
			tr := &httplimit.Transport{Base: w, MaxWait: time.Hour}
			took, err := send(t.Context(), t, tr, api)
			require.NoError(t, err, "a %d is no error", row.status)
			require.Zero(t, took)
			heldFor(t, tr, row.want, row.why)
		})
	}
}

// TestHoldCap has a MaxHold of less than a second, and one of more than the default.
func TestHoldCap(t *testing.T) {
	for _, row := range []struct{ most, want time.Duration }{
		{time.Nanosecond, time.Nanosecond}, {time.Hour, time.Hour}, {0, 10 * time.Minute}, {1000 * time.Hour, 99999 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &httplimit.Transport{Base: &wire{answer: once(response(429, "Retry-After", "99999"))}, MaxWait: 1000 * time.Hour,
				MaxHold: row.most}
			_, err := send(t.Context(), t, tr, api)
			require.NoError(t, err)
			heldFor(t, tr, row.want)
		})
	}
}

// A slow RoundTripper answers requests for /slow when it is told what, and others at once.
type slow struct {
	*wire
	answers chan *http.Response
}

func (s *slow) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.wire.RoundTrip(r)
	if r.URL.Path == "/slow" {
		res = <-s.answers
	}
	return res, err
}

const slowly = "http://api.example.com/slow"

// TestHoldsOnlyGrow has a shorter hold after a longer one, and a longer one after it.
func TestHoldsOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := &slow{&wire{}, make(chan *http.Response)}
		tr := &httplimit.Transport{Base: base, MaxWait: time.Hour}
		for range 3 {
			go func() {
				_, err := send(t.Context(), t, tr, slowly)
				assert.NoError(t, err)
			}()
		}
		synctest.Wait()
		for _, seconds := range []string{"20", "5", "30"} {
			base.answers <- response(429, "Retry-After", seconds)
		}
		synctest.Wait()
		heldFor(t, tr, 30*time.Second)
	})
}

// TestNewerHold lets a request that waits meet a hold that has come meanwhile, while it waits for
// the server and while it waits in the Limiter.
func TestNewerHold(t *testing.T) {
	for _, limited := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			base := &slow{&wire{}, make(chan *http.Response)}
			tr := &httplimit.Transport{Base: base}
			if limited {
				tr.Limiter = perFive(t)
			}
			go func() { // under way, with the unit of the Limiter
				_, err := send(t.Context(), t, tr, slowly)
				assert.NoError(t, err)
			}()
			synctest.Wait()
			if !limited {
				base.answer = once(response(429, "Retry-After", "5"))
				_, err := send(t.Context(), t, tr, api)
				require.NoError(t, err)
			}
			took := make(chan time.Duration)
			go func() {
				d, err := send(t.Context(), t, tr, api)
				assert.NoError(t, err)
				took <- d
			}()
			time.Sleep(time.Second)
			base.answers <- response(429, "Retry-After", "20")
			d := <-took
			assert.GreaterOrEqual(t, d, 21*time.Second, "limited: %t", limited)
			assert.Less(t, d, 22*time.Second)
		})
	}
}

// perFive returns a limiter that grants one request in 5 s, by the machine's clock.
func perFive(t testing.TB) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: 5 * time.Second}})
	require.NoError(t, err)
	return l
}

// TestSpread holds many requests. They leave at different times within a tenth of the hold, and at
// most a second.
func TestSpread(t *testing.T) {
	for _, row := range []struct {
		seconds string
		hold    time.Duration
		spread  time.Duration
	}{{"2", 2 * time.Second, 200 * time.Millisecond}, {"300", 5 * time.Minute, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{answer: once(response(503, "Retry-After", row.seconds))}
			tr := &httplimit.Transport{Base: w, MaxWait: time.Hour}
			_, err := send(t.Context(), t, tr, api)
			require.NoError(t, err)
			ends := time.Now().Add(row.hold)
			const waiters = 1000
			for range waiters {
				go func() {
					_, err := send(t.Context(), t, tr, api)
					assert.NoError(t, err)
				}()
			}
			time.Sleep(row.hold + row.spread)
			synctest.Wait()
			different := map[time.Time]bool{}
			first, last := ends.Add(time.Hour), ends
			for _, at := range w.at[1:] {
				different[at] = true
				if at.Before(first) {
					first = at
				}
				if at.After(last) {
					last = at
				}
			}
			require.Len(t, w.at, 1+waiters)
			assert.False(t, first.Before(ends), "nobody comes early")
			assert.True(t, last.Before(ends.Add(row.spread)))
			// Of 1,000 independent times, that any of ten parts has none is a chance below 10^-44.
			parts := map[int64]bool{}
			for at := range different {
				parts[int64(at.Sub(ends)*10/row.spread)] = true
			}
			assert.Len(t, parts, 10, "the whole spread is used")
		})
	}
}

// TestMaxWait has a hold, a Limiter and both that last as long as MaxWait, and a nanosecond longer.
func TestMaxWait(t *testing.T) {
	const host = "http://api.example.com:80"
	for _, row := range []struct {
		why     string
		maxWait time.Duration
		hold    string
		limited bool
		took    time.Duration
		err     error
	}{
		{"exactly MaxWait", 5 * time.Second, "5", false, 5 * time.Second, nil},
		{"a nanosecond less", 5*time.Second - 1, "5", false, 0, &httplimit.HoldError{Host: host, Wait: 5 * time.Second}},
		{"the default is 30 s", 0, "30", false, 30 * time.Second, nil},
		{"and no more", 0, "31", false, 0, &httplimit.HoldError{Host: host, Wait: 31 * time.Second}},
		{"never to wait", 1, "1", false, 0, &httplimit.HoldError{Host: host, Wait: time.Second}},
		{"never to wait, and no need to", 1, "0", false, 0, nil},
		{"the Limiter", 5*time.Second + 1, "0", true, 5 * time.Second, nil},
		{"the Limiter, for too long", 5 * time.Second, "0", true, 0, &httplimit.HoldError{Host: host, Wait: 5 * time.Second}},
		{"the hold is as long, and the Limiter has filled up", 5 * time.Second, "5", true, 5 * time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{answer: once(response(503, "Retry-After", row.hold))}
			tr := &httplimit.Transport{Base: w, MaxWait: row.maxWait}
			if row.limited {
				tr.Limiter = perFive(t)
			}
			_, err := send(t.Context(), t, tr, api)
			require.NoError(t, err, row.why)
			took, err := send(t.Context(), t, tr, api)
			assert.Equal(t, row.err, err, row.why)
			assert.Equal(t, row.took, took, row.why)
			sent := 2
			if err != nil {
				sent = 1
			}
			assert.Equal(t, sent, w.count(), row.why)
		})
	}
	assert.EqualError(t, &httplimit.HoldError{Host: host, Wait: time.Minute},
		"httplimit: a request to http://api.example.com:80 was not sent: it would wait for 1m0s")
}

// TestMaxWaitOfAllWaits waits for the server, and then too long for the Limiter.
func TestMaxWaitOfAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: once(response(503, "Retry-After", "5"))}
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: 10 * time.Second}})
		require.NoError(t, err)
		tr := &httplimit.Transport{Base: w, MaxWait: 9 * time.Second, Limiter: l}
		_, err = send(t.Context(), t, tr, api)
		require.NoError(t, err)
		took, err := send(t.Context(), t, tr, api)
		var held *httplimit.HoldError
		require.ErrorAs(t, err, &held)
		assert.Equal(t, 10*time.Second, held.Wait+took, "the Limiter would have granted it then")
		assert.Equal(t, 1, w.count())
	})
}

// TestDeadline has deadlines that come before the end of a hold and before a grant of the Limiter.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: once(response(503, "Retry-After", "20"), response(200))}
		tr := &httplimit.Transport{Base: w}
		_, err := send(t.Context(), t, tr, api)
		require.NoError(t, err)
		late := func(tr *httplimit.Transport, d time.Duration, text string) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			took, err := send(ctx, t, tr, api)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.EqualError(t, err, text)
			require.NotErrorAs(t, err, new(*httplimit.HoldError))
			require.Zero(t, took)
		}
		late(tr, 20*time.Second, "httplimit: a request to http://api.example.com:80 was not sent: a wait of 20s outlasts the deadline: "+
			"context deadline exceeded")

		limited := &httplimit.Transport{Base: w, Limiter: perFive(t), MaxWait: time.Second}
		_, err = send(t.Context(), t, limited, api)
		require.NoError(t, err)
		late(limited, 900*time.Millisecond,
			"httplimit: a request to http://api.example.com:80 was not sent: a wait of 5s outlasts the deadline: context deadline exceeded")
		late(limited, 3*time.Second, "httplimit: a request to http://api.example.com:80 was not sent: a wait of 5s outlasts the deadline: "+
			"context deadline exceeded")
		assert.Equal(t, 2, w.count())

		// A Client says that it is a timeout, though its own has not passed.
		c := &http.Client{Transport: tr, Timeout: 10 * time.Second}
		r, _ := post(t.Context(), t, api)
		_, err = c.Do(r) //nolint:bodyclose // there is none
		var wrapped *url.Error
		require.ErrorAs(t, err, &wrapped)
		assert.True(t, wrapped.Timeout())
	})
}

// TestCancel ends the context of requests that wait for the server and in the Limiter, and of one
// that has not come yet.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reason := errors.New("the user has left")
		for _, limited := range []bool{false, true} {
			w := &wire{answer: once(response(503, "Retry-After", map[bool]string{false: "5", true: "0"}[limited]))}
			tr := &httplimit.Transport{Base: w}
			if limited {
				tr.Limiter = perFive(t)
			}
			_, err := send(t.Context(), t, tr, api)
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(reason) })
			took, err := send(ctx, t, tr, api)
			require.Equal(t, reason, err)
			require.Equal(t, time.Second, took)
			took, err = send(ctx, t, tr, api)
			require.Equal(t, reason, err)
			require.Zero(t, took)
			require.Equal(t, 1, w.count())
		}
	})
}

// TestLimiterErrors has a Limiter that cannot grant, that fails, and whose rules change.
func TestLimiterErrors(t *testing.T) {
	w := &wire{}
	tr := &httplimit.Transport{Base: w, Limiter: perFive(t),
		Request: func(*http.Request) ratelimit.Request { return ratelimit.Request{Cost: 2} }}
	_, err := send(t.Context(), t, tr, api)
	require.ErrorIs(t, err, ratelimit.ErrExceedsLimit)
	require.EqualError(t, err, "httplimit: a request to http://api.example.com:80 was not sent: ratelimit: count exceeds the limit")
	tr.Request = func(*http.Request) ratelimit.Request { return ratelimit.Request{Rules: []string{"no such rule"}} }
	_, err = send(t.Context(), t, tr, api)
	require.ErrorIs(t, err, ratelimit.ErrUnknownRule)
	tr.Request = func(*http.Request) ratelimit.Request { panic("in Request") }
	r, b := post(t.Context(), t, api)
	require.PanicsWithValue(t, "in Request", func() { _, _ = tr.RoundTrip(r) }) //nolint:bodyclose // there is none
	require.Equal(t, 1, b.closed, "also then")
	require.Zero(t, w.count())

	for policy, want := range map[ratelimit.FailurePolicy]int{ratelimit.FailOpen: 1, ratelimit.FailClosed: 0} {
		synctest.Test(t, func(t *testing.T) {
			l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1), OnStoreError: policy},
				ratelimit.WithStore(brokenStore{errors.New("down")}), ratelimit.WithName("test"))
			require.NoError(t, err)
			w := &wire{}
			tr := &httplimit.Transport{Base: w, Limiter: l, MaxWait: 3500 * time.Millisecond}
			_, err = send(t.Context(), t, tr, api)
			if want == 1 {
				require.NoError(t, err)
			} else {
				require.ErrorAs(t, err, new(*httplimit.HoldError), "the store stays down")
			}
			require.Equal(t, want, w.count())
		})
	}
}

// TestRulesChange makes a rule much slower while a request waits that was to be granted in time.
func TestRulesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := perFive(t)
		tr := &httplimit.Transport{Base: &wire{}, Limiter: l}
		_, err := send(t.Context(), t, tr, api)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { assert.NoError(t, l.UpdateRate("default", ratelimit.PerDay(6))) })
		took, err := send(t.Context(), t, tr, api)
		require.ErrorAs(t, err, new(*httplimit.HoldError))
		assert.Equal(t, time.Second, took, "as soon as it is known")
	})
}

// A liar is a Limiter that denies, and says each time that a second is enough.
type liar struct{}

func (liar) Allow(string) ratelimit.Result {
	return ratelimit.Result{Limit: 1, RetryAfter: time.Second}
}

func (l liar) Take(context.Context, string, int) (ratelimit.Result, error) { return l.Allow(""), nil }

// TestBehindOthers waits in line behind a request that has much more patience.
func TestBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "*", Limiter: liar{}}}, nil)
		require.NoError(t, err)
		w := &wire{}
		for _, most := range []time.Duration{time.Hour, 5 * time.Second, 200 * time.Millisecond} {
			go func() {
				tr := &httplimit.Transport{Base: w, Limiter: l, MaxWait: most}
				began := time.Now()
				_, err := send(t.Context(), t, tr, api)
				assert.ErrorAs(t, err, new(*httplimit.HoldError))
				assert.LessOrEqual(t, time.Since(began), most)
				assert.GreaterOrEqual(t, time.Since(began), most-time.Second)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, w.count())
	})
}

// TestFakeClock waits for the server and in the Limiter by a clock that the test moves, and that
// stands at another time than the machine's.
func TestFakeClock(t *testing.T) {
	for _, at := range []time.Time{start, time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)} {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(at)
			l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Per: 20 * time.Second}}, ratelimit.WithClock(clock))
			require.NoError(t, err)
			w := &wire{answer: once(response(200), response(503, "Retry-After", clock.Now().Add(25*time.Second).Format(http.TimeFormat)))}
			tr := &httplimit.Transport{Base: w, Limiter: l, Clock: clock}
			begin := func() {
				go func() {
					_, err := send(t.Context(), t, tr, api)
					assert.NoError(t, err)
				}()
				synctest.Wait()
			}
			advance := func(d time.Duration, sent int, why string) {
				clock.Advance(d)
				synctest.Wait()
				require.Equal(t, sent, w.count(), why)
			}
			begin()
			advance(0, 1, "at once")
			begin()
			advance(20*time.Second-1, 1, "the Limiter's, a nanosecond early")
			advance(1, 2, "on time")
			begin()
			advance(5*time.Second-1, 2, "the server's, which has given a date 5 s later")
			advance(1+500*time.Millisecond, 2, "the Limiter has nothing before 20 s")
			advance(15*time.Second, 3, "now it has")

			tr = &httplimit.Transport{Base: w, Limiter: l, Clock: clock, MaxWait: 19 * time.Second}
			_, err = send(t.Context(), t, tr, api)
			require.ErrorAs(t, err, new(*httplimit.HoldError), "at once: nobody moves the clock")
			clock.Advance(20 * time.Second)
			tr = &httplimit.Transport{Base: w, Limiter: l, Clock: clock, MaxWait: 1}
			_, err = send(t.Context(), t, tr, api)
			require.NoError(t, err, "there is no need to wait")
		})
	}
}

// TestClockSetLate has a clock that is set after the first requests. Holds from before are
// forgotten, and later ones are exact.
func TestClockSetLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := new(ratelimit.FakeClock)
		w := &wire{answer: once(response(503, "Retry-After", "5"), response(503, "Retry-After", "5"))}
		tr := &httplimit.Transport{Base: w, Clock: clock, MaxWait: 5*time.Second - 1}
		for range 2 {
			_, err := send(t.Context(), t, tr, api)
			require.NoError(t, err)
			_, err = send(t.Context(), t, tr, api)
			require.Equal(t, &httplimit.HoldError{Host: "http://api.example.com:80", Wait: 5 * time.Second}, err)
			clock.Set(start)
		}
		require.Equal(t, 2, w.count())
	})
}

// TestTimeOfClockWithoutAfter waits in real time, as a limiter does.
func TestTimeOfClockWithoutAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &httplimit.Transport{Base: &wire{answer: once(response(503, "Retry-After", "5"))}, Clock: bareClock{}}
		_, err := send(t.Context(), t, tr, api)
		require.NoError(t, err)
		heldFor(t, tr, 5*time.Second)
	})
}

type bareClock struct{}

func (bareClock) Now() time.Time { return time.Now() }

// TestBadTransport has fields that cannot be.
func TestBadTransport(t *testing.T) {
	w := &wire{}
	tr := &httplimit.Transport{Base: w, MaxWait: -1, MaxHold: -time.Second}
	for range 2 {
		_, err := send(t.Context(), t, tr, api)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, "ratelimit: maxWait is -1ns: must not be negative; 0 means 30 s, and 1 ns never to wait\n"+
			"ratelimit: maxHold is -1s: must not be negative; 0 means 10 min, and 1 ns to believe nobody")
	}
	require.Zero(t, w.count())
}

// TestOddRequests has requests that Base refuses, and a Base that breaks its promises.
func TestOddRequests(t *testing.T) {
	tr := &httplimit.Transport{Base: &wire{}, Limiter: perFive(t)}
	_, err := tr.RoundTrip(&http.Request{}) //nolint:bodyclose // there is none
	require.EqualError(t, err, "no host")
	broken := &httplimit.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil,
			nil
	})} //nolint:nilnil // the fault
	r, _ := post(t.Context(), t, api)
	res, err := broken.RoundTrip(r) //nolint:bodyclose // there is none
	require.NoError(t, err)
	require.Nil(t, res)
	failing := &httplimit.Transport{Base: roundTripper(func(*http.Request) (*http.Response, error) {
		return response(429, "Retry-After", "5"), errors.New("broken") // an answer does not count beside an error
	}), MaxWait: 1}
	for range 2 {
		_, err = failing.RoundTrip(r) //nolint:bodyclose // there is none
		require.EqualError(t, err, "broken")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestOrigins has URLs of one origin, and of others.
func TestOrigins(t *testing.T) {
	for _, row := range []struct {
		held, other string
		same        bool
	}{
		{"http://a.example/x", "http://a.example/y?z", true},
		{"http://a.example/x", "http://A.Example:80/", true},
		{"https://a.example/x", "https://u:p@a.example:443/", true},
		{"http://[2001:DB8::1]/x", "http://[2001:db8::1]:80/", true},
		{"http://a.example/x", "https://a.example/x", false},
		{"http://a.example/x", "http://a.example:8080/x", false},
		{"http://a.example/x", "http://b.example/x", false},
		{"https://a.example/x", "https://a.example:80/x", false},
	} {
		tr := &httplimit.Transport{Base: &wire{answer: once(response(503, "Retry-After", "5"))}, MaxWait: 1}
		_, err := send(t.Context(), t, tr, row.held)
		require.NoError(t, err)
		_, err = send(t.Context(), t, tr, row.other)
		if row.same {
			require.ErrorAs(t, err, new(*httplimit.HoldError), row.other)
		} else {
			require.NoError(t, err, row.other)
		}
	}
}

// TestAsked compares what the Limiter is asked with the request.
func TestAsked(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "one", Endpoint: "https://api.example.com:443", Rate: ratelimit.PerHour(1)},
		{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(3)},
	}, nil)
	require.NoError(t, err)
	tr := &httplimit.Transport{Base: &wire{}, Limiter: l, MaxWait: 1}
	results := func(targets ...string) (sent string) {
		for _, target := range targets {
			if _, err := send(t.Context(), t, tr, target); err == nil {
				sent += "+"
			} else {
				require.ErrorAs(t, err, new(*httplimit.HoldError))
				sent += "-"
			}
		}
		return sent
	}
	require.Equal(t, "+-++", results("https://api.example.com/a", "https://api.example.com/b", "https://b.example/",
		"http://api.example.com/"))
	tr = &httplimit.Transport{Base: &wire{}, Limiter: l, MaxWait: 1, Request: func(r *http.Request) ratelimit.Request {
		return ratelimit.Request{Client: r.Header.Get("Tenant"), Rules: []string{"one"}}
	}}
	require.Equal(t, "+-", results("https://api.example.com/a", "https://b.example/"), "one tenant")
}

// TestRequestIsNotChanged compares each request with what Base gets, and with what it was.
func TestRequestIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{answer: once(response(503, "Retry-After", "5"))}
		tr := &httplimit.Transport{Base: w, Limiter: perFive(t)}
		for i := range 3 {
			r, _ := post(t.Context(), t, "http://API.example.com/items?q=1")
			r.Header.Set("Accept", "text/plain")
			before := *r
			header, target := r.Header.Clone(), *r.URL
			res, err := tr.RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, before, *r)
			require.Equal(t, header, r.Header)
			require.Equal(t, target, *r.URL)
			require.Same(t, r, w.sent[i])
		}
	})
}

// TestIdleConnections passes the call on to what has such a method.
func TestIdleConnections(t *testing.T) {
	w := &wire{}
	(&http.Client{Transport: &httplimit.Transport{Base: w}}).CloseIdleConnections()
	require.Equal(t, 1, w.idle)
	(&httplimit.Transport{Base: roundTripper(nil)}).CloseIdleConnections()
	(&httplimit.Transport{}).CloseIdleConnections()
}
