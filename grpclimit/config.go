package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A Config says who the client is, what it asks for, and what is answered. The zero Config is
// safe: the address of the connection counts, nothing is skipped, and no metadata is believed.
//
// The functions are called for each call, without a lock, and must be safe for concurrent use
// by multiple goroutines. They get the full method, such as "/shop.Items/Get". If one of them
// panics, nothing has been charged.
type Config struct {
	// Client says who the client is, and on which plan, by what was verified, such as
	// the certificate of the peer or a checked token. If it is nil, or returns an
	// empty client or false, the address counts. In the interceptors of clients,
	// the target of the connection counts then.
	Client func(ctx context.Context, method string) (client, tier string, ok bool)

	// Proxies says whose x-forwarded-for metadata to believe, or whose metadata of
	// the name Proxies.Header. The zero Proxies believes nobody's.
	Proxies httplimit.Proxies

	// Endpoint names the call for rules with an Endpoint. If it is nil, the name is
	// the full method, and "unmatched" for the calls that a handler for unknown
	// services gets: their method is any text of the caller's. An Endpoint of your
	// own gets that text, and must return one of a bounded set of names. See
	// [Registered].
	Endpoint func(ctx context.Context, method string) string

	// Prepare may change what is asked, such as the Cost, the Attrs or the Rules.
	Prepare func(ctx context.Context, r *ratelimit.Request)

	// Skip returns true for a method that is not limited, such as [SkipHealth]. If
	// it is nil, all methods are.
	Skip func(method string) bool

	// Messages says what becomes of the messages that Stream receives.
	Messages Messages

	// MaxPushback is the longest wait after which a client is asked to send a denied
	// call again by itself. A client that waits holds the call, and what the call
	// keeps, for that long. 0 means 10 seconds.
	MaxPushback time.Duration

	// Log gets at most one line a minute of each kind of trouble, without
	// identities. If it is nil, [slog.Default] does.
	Log *slog.Logger
}

// Messages says whether the messages of a stream are limited, beside the opening of the stream,
// which is always charged. Each message that the server receives is then charged like the
// opening, by the same rules and with the same Cost. The one message by which a client calls a
// method that streams to it only is part of the opening.
type Messages int

// The values of [Config.Messages].
const (
	MessagesFree Messages = iota // messages cost nothing
	MessagesDeny                 // a message beyond the limit ends the stream as a denied call
	MessagesWait                 // a message beyond the limit waits, and flow control slows the sender
)

// maxPushback is the MaxPushback if none is set.
const maxPushback = 10 * time.Second

// longestPushback is the longest wait that the trailer can tell.
const longestPushback = math.MaxInt32 * time.Millisecond

// New returns Interceptors that limit calls by l. The error lists everything that is wrong with
// l and c, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Interceptors, error) {
	// The middleware for HTTP knows what is wrong with Proxies, and how addresses are named.
	m, err := httplimit.New(l, httplimit.Config{Proxies: c.Proxies, Endpoint: httplimit.Fixed("")})
	problems := []error{err}
	if l != nil && c.Endpoint == nil {
		problems = append(problems, endpointProblems(l)...)
	}
	if c.Messages < MessagesFree || c.Messages > MessagesWait {
		problems = append(problems, wrong("messages", int(c.Messages), "must be MessagesFree, MessagesDeny or MessagesWait"))
	}
	if c.MaxPushback < 0 || c.MaxPushback > longestPushback {
		problems = append(problems, wrong("maxPushback", c.MaxPushback, fmt.Sprintf("must be from 1ns to %v, or 0 for %v", longestPushback, maxPushback)))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return newInterceptors(l, c, m), nil
}

// endpointProblems returns the rules of l whose endpoints are methods without their first slash.
func endpointProblems(l *ratelimit.RateLimiter) (problems []error) {
	rules, _ := l.Rules()
	for _, r := range rules {
		if i := strings.IndexByte(r.Endpoint, '/'); i > 0 && !strings.Contains(r.Endpoint, " ") {
			problems = append(problems, wrong(fmt.Sprintf("rules[%q].endpoint", r.Name), r.Endpoint,
				fmt.Sprintf("must begin with a slash as full methods do: %q, or set Config.Endpoint", "/"+r.Endpoint)))
		}
	}
	return problems
}

// wrong returns the error for one field.
func wrong(field string, value any, reason string) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
}
