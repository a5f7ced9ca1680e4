package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Transport is an [http.RoundTripper] that waits before it sends a request: for as long as the
// server has asked clients to wait, and until the Limiter grants the request. The zero Transport is
// ready for use. Its fields must not be changed after the first request, and it must not be copied.
//
// A hold is a time during which a Transport sends no requests to a server, because a response of the
// server has asked for that. A server is identified by its origin, such as
// "https://api.example.com:443". With the field Scope, a hold is only for some of the requests to the server.
// A response starts a hold
//
//   - for its Retry-After, in seconds or as a date, if its status is 429 or 503;
//   - for a second, if its status is 429 without Retry-After;
//   - for the time in its RateLimit field, if this field says that nothing is left: its parameter "r"
//     or "a" is 0. The time is its parameter "t" or, if there is no "t", its parameter "w";
//   - until its X-RateLimit-Reset, if its X-RateLimit-Remaining is 0. A Reset above 10⁹ is in
//     seconds since 1970, a smaller Reset in seconds from now.
//
// Retry-After takes precedence. Otherwise the hold is as long as the longest of these times. Dates are
// compared with the Date of the response. Values that are malformed, negative or longer than 292 years
// are ignored. A response with the status 304 or an Age above 0 starts no hold, because its header may
// come from a cache. A later response never shortens a hold. A Transport keeps at most 1,024 holds.
//
// RoundTrip fails at once if the deadline of the context would pass before the request may be sent;
// the error matches [context.DeadlineExceeded]. If the request would wait for longer than MaxWait, the
// error is a [*HoldError]. Errors of the Limiter, such as one that matches
// [ratelimit.ErrExceedsLimit], are wrapped. In all these cases the request was not sent and its body
// is closed. Units that the Limiter has granted stay charged.
//
// If a hold of a server begins while requests to it wait for the Limiter, the requests leave the
// Limiter's queue, and ask the Limiter again after the hold. Otherwise the Limiter would grant many
// requests during the hold, which would all be sent at its end.
//
// RoundTrip does not change a request, and sends it once. A response with the status 429 is not an error. Each redirect
// is a separate request. After the end of a hold, the requests that have waited are sent in the order in which they came.
// The times are random: within a tenth of the length of the hold, but at most within one second.
type Transport struct {
	// Base sends the requests. If it is nil, [http.DefaultTransport] does.
	Base http.RoundTripper

	// Limiter grants requests. If it is nil, requests wait only if a server has asked for that.
	Limiter *ratelimit.RateLimiter

	// Request returns the request that the Limiter decides. If it is nil, the Client and the
	// Endpoint of the Limiter's request are both the origin of the server. The function must not read the body.
	Request func(*http.Request) ratelimit.Request

	// Scope returns the scope of a request, such as its path. If the response to a request starts a hold, the hold is
	// only for requests to the same origin with the same scope. So if one endpoint or one tenant is denied, the others do
	// not wait. See [PathScope] and [HeaderScope]. If Scope is nil, a hold is for all requests to the origin. The
	// function must not read the body.
	Scope func(*http.Request) string

	// Adaptive lowers the rate of requests to a server that denies some of them. If it is nil, only holds and the
	// Limiter make requests wait.
	Adaptive *Adaptive

	// MaxWait is the longest time that a request waits for holds, for the Limiter and for the rate of Adaptive
	// together. 0 means 30 s. If the Limiter has a Store, MaxWait must be longer than the
	// Store takes to answer.
	MaxWait time.Duration

	// MaxHold is the longest time during which no requests are sent to a server. 0 means 10 minutes. If a
	// server asks for a longer time, the Transport waits for MaxHold only.
	MaxHold time.Duration

	// Clock tells the time, and must be the clock of the Limiter. If it has the method After that
	// [ratelimit.Clock] describes, the Transport also waits by this clock; otherwise it waits in real
	// time. If Clock is nil, the Transport uses the clock of the machine.
	Clock ratelimit.Clock

	once    sync.Once
	invalid error // the joined errors of invalid fields, or nil
	maxWait time.Duration
	maxHold time.Duration
	time    engine.Timeline
	holds   holds
	paces   paces
	recover time.Duration // the time of Adaptive.Recover, with its default

	requests atomic.Uint64 // how many calls of RoundTrip and Do have begun to wait; each gets its number from this counter
}

// A HoldError reports a request that was not sent, because it would have waited for longer than
// [Transport.MaxWait].
type HoldError struct {
	// Host is the origin of the server, such as "https://api.example.com:443".
	Host string

	// Wait is the shortest time after which the request could have been sent.
	Wait time.Duration
}

// Error returns the server and the wait as text.
func (e *HoldError) Error() string {
	return fmt.Sprintf("httplimit: a request to %s was not sent: it would wait for %v", e.Host, e.Wait)
}

// A lateError reports a request that was not sent, because it would have waited beyond its deadline.
type lateError struct {
	host string
	wait time.Duration
}

func (e *lateError) Error() string {
	return fmt.Sprintf("httplimit: a request to %s was not sent: a wait of %v outlasts the deadline: %v", e.host, e.wait,
		context.DeadlineExceeded)
}

// Unwrap returns [context.DeadlineExceeded].
func (e *lateError) Unwrap() error { return context.DeadlineExceeded }

// Timeout returns true, so that [url.Error.Timeout] also returns true.
func (e *lateError) Timeout() bool { return true }

// The defaults of MaxWait and MaxHold.
const (
	defaultMaxWait = 30 * time.Second
	defaultMaxHold = 10 * time.Minute
)

// begin fills in the defaults, and stores the errors of invalid fields in t.invalid. The first request
// calls it.
func (t *Transport) begin() {
	var problems []error
	if t.MaxWait < 0 {
		problems = append(problems, wrong("maxWait", t.MaxWait, "must not be negative; 0 means 30 s, and 1 ns never to wait"))
	}
	if t.MaxHold < 0 {
		problems = append(problems, wrong("maxHold", t.MaxHold, "must not be negative; 0 means 10 min, and 1 ns to believe nobody"))
	}
	if t.Adaptive != nil {
		problems = append(problems, t.Adaptive.problems()...)
		t.recover = cmp.Or(t.Adaptive.Recover, time.Minute)
	}
	t.invalid = errors.Join(problems...)
	t.maxWait = cmp.Or(t.MaxWait, defaultMaxWait)
	t.maxHold = cmp.Or(t.MaxHold, defaultMaxHold)
	t.time = engine.NewTimeline(t.Clock, nil)
	t.time.OnRestart(t.holds.forget)
}

// base returns the RoundTripper that sends the requests.
func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// CloseIdleConnections closes the idle connections of Base, if Base has a method for this.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip waits until r may be sent, sends it by Base, and returns the response.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := false
	defer func() {
		if !sent && r.Body != nil { // this also closes the body if the function t.Request has panicked
			_ = r.Body.Close() // the error of Close is dropped, because RoundTrip already returns an error
		}
	}()
	t.once.Do(t.begin)
	if t.invalid != nil {
		return nil, t.invalid
	}
	to := t.targetOf(r)
	if err := t.wait(r.Context(), r, to); err != nil {
		return nil, err
	}
	sent = true
	p := t.pace(to)
	falls := p.fallen()
	res, err := t.base().RoundTrip(r)
	if err == nil && res != nil {
		t.hold(to, t.heldBy(res))
		t.learn(p, falls, outcomeOf(res.StatusCode))
	}
	return res, err
}

// Do is for protocols other than HTTP. It waits until a request to the given server may be sent, and then calls send, which
// sends the request. If the server answers that clients should wait, send returns for how long. This wait begins a hold, at
// most MaxHold long, for all calls of Do with the same server, and counts as a denial for Adaptive. The name of a server is
// any text. The Limiter gets this name as the Client and as the Endpoint. Do does not use Base, Request and Scope.
//
// Do returns the error of send. If the request may not be sent, Do does not call send, and returns an error as RoundTrip
// does.
func (t *Transport) Do(ctx context.Context, server string, send func() (wait time.Duration, err error)) error {
	t.once.Do(t.begin)
	if t.invalid != nil {
		return t.invalid
	}
	to := target{server, server}
	if err := t.wait(ctx, nil, to); err != nil {
		return err
	}
	p := t.pace(to)
	falls := p.fallen()
	wait, err := send()
	t.hold(to, wait)
	switch {
	case wait > 0:
		t.learn(p, falls, denied)
	case err == nil:
		t.learn(p, falls, granted)
	}
	return err
}

// Hold begins a hold for calls of [Transport.Do] with the same server, as if a call of send had returned this wait. It is
// for answers that arrive after send has returned, such as the end of a stream.
func (t *Transport) Hold(server string, wait time.Duration) {
	t.once.Do(t.begin)
	t.hold(target{server, server}, wait)
}

// The method hold begins a hold of at most t.maxHold, unless d is 0 or less.
func (t *Transport) hold(to target, d time.Duration) {
	if d > 0 {
		t.time.Renew()
		t.holds.set(to.key, t.time.Now(), min(d, t.maxHold))
	}
}

// A target is where a request is sent to.
type target struct {
	host string // the origin of the server
	key  string // which requests share a hold: the origin and, if Transport.Scope is set, a space and the scope
}

// targetOf returns the target of the request r.
func (t *Transport) targetOf(r *http.Request) target {
	host := originOf(r.URL)
	if t.Scope == nil {
		return target{host, host}
	}
	return target{host, host + " " + t.Scope(r)}
}

// PathScope is a function for [Transport.Scope] that returns the path of the URL, so that each path of a server has its
// own holds. For paths with IDs, use a function that returns one name for all of them.
func PathScope(r *http.Request) string {
	if r.URL == nil {
		return ""
	}
	return r.URL.Path
}

// HeaderScope returns a function for [Transport.Scope] that returns the value of the header field with this name, such
// as "Authorization" for a server that limits each API key.
func HeaderScope(name string) func(*http.Request) string {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// originOf returns the origin of the URL u, always with a port.
func originOf(u *url.URL) string {
	if u == nil {
		return "" // Base will return an error for this URL
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

// wait waits until the request r may be sent. The request is nil in a call of Do.
func (t *Transport) wait(ctx context.Context, r *http.Request, to target) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.time.Renew()
	number, until := t.requests.Add(1), t.time.Now().Add(t.maxWait)
	for {
		if err := t.waitHeld(ctx, to, number, until); err != nil || t.Limiter == nil && t.Adaptive == nil {
			return err
		}
		if err := t.waitLimited(ctx, r, to, until); !errors.Is(err, errHeld) {
			return err
		}
	}
}

// waitLimited waits until the Limiter and then the rate of Adaptive grant the request r. The rate of Adaptive grants
// last, right before r is sent. So this rate bounds how many requests are sent in any period. If a hold of the server
// begins meanwhile, waitLimited returns errHeld.
func (t *Transport) waitLimited(ctx context.Context, r *http.Request, to target, until keytable.Instant) error {
	if t.Limiter != nil {
		req := ratelimit.Request{Client: to.host, Endpoint: to.host}
		if t.Request != nil && r != nil {
			req = t.Request(r)
		}
		limited := func(ctx context.Context) (ratelimit.Result, error) { return t.Limiter.Wait(ctx, req) }
		if err := t.waitFor(ctx, to, until, limited); err != nil || t.Adaptive == nil {
			return err
		}
	}
	return t.waitFor(ctx, to, until, t.pace(to).wait)
}

// errHeld says that a hold of the server, during which no requests are sent to it, has begun while a
// request waited for the Limiter.
var errHeld = errors.New("httplimit: a hold has begun")

// timeTo returns the time from the instant now to the instant until. It returns 0 if until is not after
// now.
func timeTo(until, now keytable.Instant) time.Duration {
	if until <= now {
		return 0
	}
	return now.Until(until)
}

// waitHeld waits until the target has no hold, so that requests may be sent to it. After a hold, the requests that have
// waited are sent at random times, in the order of their numbers. If the hold ends after the instant in the parameter
// until, or after the deadline of ctx, waitHeld returns an error at once.
func (t *Transport) waitHeld(ctx context.Context, to target, number uint64, until keytable.Instant) error {
	for {
		ends, length := t.holds.find(to.key)
		now := t.time.Now()
		wait := timeTo(ends, now)
		if wait == 0 {
			return nil
		}
		patience, left := t.time.Patience(ctx), timeTo(until, now)
		switch {
		case wait >= patience && patience < ratelimit.Never:
			return &lateError{to.host, wait}
		case wait > left:
			return &HoldError{to.host, wait}
		}
		p := t.holds.join(to.key, number)
		if err := t.time.Sleep(ctx, now, wait, nil); err != nil {
			t.holds.quit(to.key, p, t.time.Now())
			return context.Cause(ctx)
		}
		now = t.time.Now()
		part := t.holds.quit(to.key, p, now)
		spread := min(length/10, time.Second, patience-wait-1, left-wait)
		if part < 0 || spread <= 0 {
			continue // look again: the hold has become longer, or there is no time left to spread the requests
		}
		if pause := timeTo(ends.Add(time.Duration(part*float64(spread))), now); pause > 0 {
			if err := t.time.Sleep(ctx, now, pause, nil); err != nil {
				return context.Cause(ctx)
			}
		}
	}
}

// waitFor waits until the function grant, which waits for a limiter, grants a request. It returns an error if the grant
// would come after the instant in the parameter until. If the target has a hold, so that no requests may be sent to it,
// or if a hold begins during the wait, waitFor returns errHeld at once. The request then leaves the queue of the
// limiter, so that no units are granted to a request that must not be sent.
func (t *Transport) waitFor(
	ctx context.Context, to target, until keytable.Instant, grant func(context.Context) (ratelimit.Result, error),
) error {
	unheld, end := context.WithCancelCause(ctx)
	defer end(nil)
	leave, held := t.holds.watch(to.key, t.time.Now(), func() { end(errHeld) })
	if held {
		return errHeld
	}
	defer leave()
	patience, left := t.time.Patience(ctx), timeTo(until, t.time.Now())
	bounded := left < patience
	within := unheld
	if bounded {
		var stop context.CancelFunc
		within, stop = t.within(unheld, left)
		defer stop()
	}
	res, err := grant(within)
	switch {
	case ctx.Err() == nil && unheld.Err() != nil:
		return errHeld // if the limiter has granted the request meanwhile, it stays charged, and is charged again after the hold
	case err == nil || res.Allowed: // also if the store has failed (err is not nil) and the failure policy has granted the request
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("httplimit: a request to %s was not sent: %w", to.host, err)
	case bounded && res.RetryAfter < patience:
		return &HoldError{to.host, max(res.RetryAfter, left)}
	}
	return &lateError{to.host, max(res.RetryAfter, patience)}
}

// leastPatience is the shortest time after which a context from the method within ends, with the machine's clock. The
// deadline that the context reports may come earlier. If a context with no time left ended at once, the Limiter would
// refuse even a request that needs no wait.
const leastPatience = time.Second

// The method within returns a context for the Limiter, with a deadline after the duration left. If the Limiter could
// grant a request only after the deadline, it refuses the request at once. If a request needs no wait, the Limiter
// grants it even if left is 0. With the machine's clock, the context also ends, after left or after leastPatience,
// whichever is longer, because a queued request may wait for longer than the Limiter has predicted.
func (t *Transport) within(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	deadline, stop := time.Now().Add(left), func() {}
	if t.time.Machine() {
		ctx, stop = context.WithTimeout(ctx, max(left, leastPatience))
	} else if at := t.Clock.Now().Add(left); at.Before(deadline) {
		deadline = at // at may be in the past of the machine's clock: then the Limiter compares at with its own clock
	}
	return &bound{ctx, deadline}, stop
}

// A bound is a context that reports a deadline, but does not end at that deadline: it ends when the context inside it
// ends. The Limiter compares the deadline with the wait of a request, and refuses the request at once if the wait would
// end after the deadline.
type bound struct {
	context.Context
	deadline time.Time
}

// Deadline returns the deadline that the bound reports.
func (b *bound) Deadline() (time.Time, bool) { return b.deadline, true }
