package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A Config configures [Interceptors]: how they identify the client, what they ask the limiter, and how
// they answer. The zero Config is safe: the address of the connection identifies the client, no method
// is skipped, and no metadata is trusted.
//
// The functions of a Config are called for each gRPC call, without a lock, and must be safe for
// concurrent use by multiple goroutines. The parameter method is the full name of the called method, such
// as "/shop.Items/Get". If one of the functions panics, the call is not charged.
type Config struct {
	// Client returns the client and its tier from something that was verified, such as
	// the certificate of the peer or a checked token. If Client is nil, or returns an
	// empty client or false, a server identifies the client by its address, and the
	// interceptors for gRPC clients use the target of the connection as the client.
	Client func(ctx context.Context, method string) (client, tier string, ok bool)

	// Proxies lists the proxies whose forwarding metadata is trusted: x-forwarded-for, or the metadata that
	// Proxies.Header names. The zero Proxies trusts no metadata.
	Proxies httplimit.Proxies

	// Endpoint returns the [ratelimit.Request.Endpoint] of a call. If Endpoint is nil, the endpoint is the
	// full method. There is one exception: a call that goes to the handler for unknown services has the
	// endpoint "unmatched", because the client can invent any method name there. A function that you set also
	// gets these invented names, so it must return one of a bounded set of names. See [Registered].
	Endpoint func(ctx context.Context, method string) string

	// Prepare may change the request to the limiter, such as its Cost, Attrs or Rules,
	// before the limiter decides.
	Prepare func(ctx context.Context, r *ratelimit.Request)

	// Skip returns true for a method that is not limited. See [SkipHealth]. If Skip is
	// nil, all methods are limited.
	Skip func(method string) bool

	// SkipNetworks lists the networks whose clients are not limited at all, such as 10.0.0.0/8 for services
	// of your own. The whole address of the client is compared: the address of the connection, or the address
	// that a trusted proxy has sent. If a call has metadata of proxies, such as x-forwarded-for, but Proxies
	// does not trust the proxy that has sent it, the address may belong to the proxy. Such a call is limited,
	// no [ratelimit.Override] exempts it by its address, and the log says so once. The interceptors for gRPC
	// clients ignore SkipNetworks.
	SkipNetworks []netip.Prefix

	// Messages selects how the messages that a stream receives are limited.
	Messages Messages

	// MaxPushback is the longest wait that the server asks of the retry policy of a
	// client. If a denied call would have to wait longer, the server asks the client not
	// to retry, because a client that waits keeps the resources of the call. 0 means 10
	// seconds.
	MaxPushback time.Duration

	// BusyRetry is for rules with [ratelimit.AlgorithmInFlight], which limit how many calls run at the same
	// time. Nobody knows when a running call will end. So the server asks a denied client to wait for
	// BusyRetry, and adds a random time of up to BusyRetry, so that clients do not come back at the same
	// time. If the RetryAfter of the Result is shorter, it is used instead. 0 means a second.
	BusyRetry time.Duration

	// HoldExtend is for rules with [ratelimit.AlgorithmInFlight], which limit how many calls run at the same
	// time. Such a rule counts a call until it ends, but not for longer than the Rate.Per of the rule. At the
	// interval HoldExtend, the interceptors extend this time for each running call, so Per can be short. 0 means
	// half of the shortest Per of these rules. If the store fails, the interceptors try again after an eighth of
	// the interval. If HoldExtend is below 0, the time is not extended: a call no longer counts after Per.
	HoldExtend time.Duration

	// Log gets at most one line a minute for each kind of problem. The lines contain
	// no client names, addresses or IDs. If Log is nil, [slog.Default] gets them.
	Log *slog.Logger
}

// Messages selects how the messages that a server receives in a stream are limited. The opening of a
// stream is always charged. With MessagesDeny and MessagesWait, each message is charged like the
// opening, by the same rules and with the same Cost. If the client can send only one message in the
// stream, this message is not charged in addition to the opening.
type Messages int

// The values of [Config.Messages].
const (
	MessagesFree Messages = iota // messages cost nothing
	MessagesDeny                 // a message beyond the limit ends the stream with the error of a denied call
	MessagesWait                 // a message beyond the limit waits, and flow control slows the sender
)

// maxPushback is the default of Config.MaxPushback.
const maxPushback = 10 * time.Second

// longestPushback is the longest wait that the trailer grpc-retry-pushback-ms can express.
const longestPushback = math.MaxInt32 * time.Millisecond

// New returns Interceptors that limit calls by the limiter l. The error lists all problems with l and the
// Config, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Interceptors, error) {
	// The HTTP middleware m checks the fields Proxies and SkipNetworks here. Later it turns the address of a client into the
	// name of the client.
	m, err := httplimit.New(l, httplimit.Config{Proxies: c.Proxies, SkipNetworks: c.SkipNetworks, Endpoint: httplimit.Fixed("")})
	problems := []error{err}
	if l != nil && c.Endpoint == nil {
		problems = append(problems, endpointProblems(l)...)
	}
	if c.Messages < MessagesFree || c.Messages > MessagesWait {
		problems = append(problems, wrong("messages", int(c.Messages), "must be MessagesFree, MessagesDeny or MessagesWait"))
	}
	if c.MaxPushback < 0 || c.MaxPushback > longestPushback {
		problems = append(problems, wrong("maxPushback", c.MaxPushback,
			fmt.Sprintf("must be from 1ns to %v, or 0 for %v", longestPushback, maxPushback)))
	}
	if c.BusyRetry < 0 {
		problems = append(problems, wrong("busyRetry", c.BusyRetry, "must be above 0, or 0 for a second"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return newInterceptors(l, c, m), nil
}

// endpointProblems returns an error for each rule of the limiter l whose Endpoint is a gRPC method written
// without the leading slash.
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

// wrong returns the error for a field of the Config with an invalid value.
func wrong(field string, value any, reason string) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
}
