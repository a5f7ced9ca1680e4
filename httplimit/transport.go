package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Transport is an [http.RoundTripper] that waits before it sends a request: for as long as the
// server has asked clients to wait, and until the Limiter grants the request. The zero Transport
// is ready for use. Its fields must not be changed after the first request, and it must not be
// copied.
//
// Servers are told apart by origin, such as "https://api.example.com:443". A response holds all
// later requests to its origin back
//
//   - for its Retry-After, in seconds or as a date, if its status is 429 or 503;
//   - for a second, if its status is 429 without Retry-After;
//   - for the t or w of its RateLimit, if r or a is 0 there;
//   - until its X-RateLimit-Reset, if its X-RateLimit-Remaining is 0. A Reset above 10⁹ is in
//     seconds since 1970, any other in seconds from now.
//
// Retry-After wins over the others, and of these the longest counts. Dates are compared with the
// Date of the response. What is malformed, negative or longer than 292 years is ignored, and so is
// everything in a response with the status 304 or an Age above 0, as it was said to somebody else,
// or some time ago. A hold is never made shorter. Transport remembers 1,024 of them.
//
// If the deadline of its context would pass before a request may be sent, RoundTrip fails at once
// with an error that matches [context.DeadlineExceeded]. If the request would wait for longer than
// MaxWait, the error is a [*HoldError]. An error that matches [ratelimit.ErrExceedsLimit] or another
// one of package ratelimit is that of the Limiter. In each case the request was not sent, and its
// body is closed; what the Limiter has granted stays charged.
//
// RoundTrip does not change a request, and sends it once. A response with the status 429 is no
// error. Each redirect is a request of its own. Requests that were held leave spread over a tenth
// of the hold, and at most a second.
type Transport struct {
	// Base sends the requests. If it is nil, [http.DefaultTransport] does.
	Base http.RoundTripper

	// Limiter grants requests. If it is nil, only what servers say counts.
	Limiter *ratelimit.RateLimiter

	// Request returns what the Limiter is asked. If it is nil, Client and Endpoint are
	// the origin. It must not read the body.
	Request func(*http.Request) ratelimit.Request

	// MaxWait is the longest time that a request waits, for the server and for the
	// Limiter together. 0 means 30 s. What is shorter than a Store takes to
	// answer leaves it no time.
	MaxWait time.Duration

	// MaxHold is the longest time for which a server is believed. 0 means 10 minutes.
	MaxHold time.Duration

	// Clock tells the time, and ends the waits if it has the method After that
	// [ratelimit.Clock] describes. It must be that of the Limiter. If it is nil, it is the
	// machine's clock.
	Clock ratelimit.Clock

	once    sync.Once
	invalid error // what is wrong with the fields
	maxWait time.Duration
	maxHold time.Duration
	time    engine.Timeline
	holds   holds
}

// A HoldError reports a request that was not sent, because it would have waited for longer than
// [Transport.MaxWait].
type HoldError struct {
	// Host is the origin of the server, such as "https://api.example.com:443".
	Host string

	// Wait is how much longer the request would have waited at least.
	Wait time.Duration
}

// Error returns a text with the server and the wait.
func (e *HoldError) Error() string {
	return fmt.Sprintf("httplimit: a request to %s was not sent: it would wait for %v", e.Host, e.Wait)
}

// A lateError reports a request that was not sent, because its deadline would have passed.
type lateError struct {
	host string
	wait time.Duration
}

func (e *lateError) Error() string {
	return fmt.Sprintf("httplimit: a request to %s was not sent: a wait of %v outlasts the deadline: %v", e.host, e.wait, context.DeadlineExceeded)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *lateError) Unwrap() error { return context.DeadlineExceeded }

// Timeout returns true. A [url.Error] asks for it.
func (e *lateError) Timeout() bool { return true }

// The defaults.
const (
	defaultMaxWait = 30 * time.Second
	defaultMaxHold = 10 * time.Minute
)

// begin fills in the defaults, and notes what is wrong with the fields.
func (t *Transport) begin() {
	var problems []error
	if t.MaxWait < 0 {
		problems = append(problems, wrong("maxWait", t.MaxWait, "must not be negative; 0 means 30 s, and 1 ns never to wait"))
	}
	if t.MaxHold < 0 {
		problems = append(problems, wrong("maxHold", t.MaxHold, "must not be negative; 0 means 10 min, and 1 ns to believe nobody"))
	}
	t.invalid = errors.Join(problems...)
	t.maxWait = cmp.Or(t.MaxWait, defaultMaxWait)
	t.maxHold = cmp.Or(t.MaxHold, defaultMaxHold)
	t.time = engine.NewTimeline(t.Clock, nil)
	t.time.OnRestart(t.holds.forget)
}

// base returns what sends the requests.
func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// CloseIdleConnections closes the idle connections of Base, if it can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip waits until r may be sent, sends it by Base, and returns the response.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := false
	defer func() {
		if !sent && r.Body != nil { // also if a function of the user's has panicked
			_ = r.Body.Close() // the caller gets a better error
		}
	}()
	t.once.Do(t.begin)
	if t.invalid != nil {
		return nil, t.invalid
	}
	host := originOf(r.URL)
	if err := t.wait(r, host); err != nil {
		return nil, err
	}
	sent = true
	res, err := t.base().RoundTrip(r)
	if err == nil && res != nil {
		if d := t.heldBy(res); d > 0 {
			t.time.Renew()
			t.holds.set(host, t.time.Now(), d)
		}
	}
	return res, err
}

// originOf returns the origin of u, with its port.
func originOf(u *url.URL) string {
	if u == nil {
		return "" // Base says what is wrong
	}
	scheme, port := strings.ToLower(u.Scheme), u.Port()
	if port == "" {
		switch scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// wait waits until r may be sent to host.
func (t *Transport) wait(r *http.Request, host string) error {
	ctx := r.Context()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.time.Renew()
	until := t.time.Now().Add(t.maxWait)
	if err := t.waitHeld(ctx, host, until); err != nil {
		return err
	}
	if t.Limiter == nil {
		return nil
	}
	if err := t.waitLimited(r, host, until); err != nil {
		return err
	}
	return t.waitHeld(ctx, host, until) // another response may have come meanwhile
}

// timeTo returns the time from now to until, or 0 if that has passed.
func timeTo(until, now keytable.Instant) time.Duration {
	if until <= now {
		return 0
	}
	return now.Until(until)
}

// waitHeld waits until host is not held.
func (t *Transport) waitHeld(ctx context.Context, host string, until keytable.Instant) error {
	for {
		ends, length := t.holds.of(host)
		now := t.time.Now()
		wait := timeTo(ends, now)
		if wait == 0 {
			return nil
		}
		patience, left := t.time.Patience(ctx), timeTo(until, now)
		switch {
		case wait >= patience && patience < ratelimit.Never:
			return &lateError{host, wait}
		case wait > left:
			return &HoldError{host, wait}
		}
		if spread := min(length/10, time.Second, patience-wait-1, left-wait); spread > 0 {
			wait += rand.N(spread)
		}
		if err := t.time.Sleep(ctx, now, wait, nil); err != nil {
			return context.Cause(ctx)
		}
	}
}

// waitLimited waits until the Limiter grants r.
func (t *Transport) waitLimited(r *http.Request, host string, until keytable.Instant) error {
	req := ratelimit.Request{Client: host, Endpoint: host}
	if t.Request != nil {
		req = t.Request(r)
	}
	ctx := r.Context()
	patience, left := t.time.Patience(ctx), timeTo(until, t.time.Now())
	bounded := left < patience
	within := ctx
	if bounded {
		var stop context.CancelFunc
		within, stop = t.within(ctx, left)
		defer stop()
	}
	res, err := t.Limiter.Wait(within, req)
	switch {
	case err == nil || res.Allowed: // with an error, a failure policy has answered
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("httplimit: a request to %s was not sent: %w", host, err)
	case bounded && res.RetryAfter < patience:
		return &HoldError{host, max(res.RetryAfter, left)}
	}
	return &lateError{host, max(res.RetryAfter, patience)}
}

// leastPatience is how long a context of within lasts at least. One that ends at once could not be
// granted anything.
const leastPatience = time.Second

// within returns a context with the deadline that is left away. The Limiter fails at once what it
// would grant later, and grants what it can grant at once even if nothing is left. On the machine's
// clock the context also ends, for a request that waits in line behind others for longer than was
// known.
func (t *Transport) within(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	deadline, stop := time.Now().Add(left), func() {}
	if t.time.Machine() {
		ctx, stop = context.WithTimeout(ctx, max(left, leastPatience))
	} else if at := t.Clock.Now().Add(left); at.Before(deadline) {
		deadline = at // as it has passed on the machine's clock, it is compared with the Limiter's
	}
	return &bound{ctx, deadline}, stop
}

// A bound is a context that says an earlier deadline than that at which it ends.
type bound struct {
	context.Context
	deadline time.Time
}

// Deadline returns the earlier deadline.
func (b *bound) Deadline() (time.Time, bool) { return b.deadline, true }
