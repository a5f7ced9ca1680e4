package httplimit

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// logs writes problems and warnings to the log: at most one line a minute for each kind of problem, and
// each warning only once.
type logs struct {
	to     *slog.Logger // the logger to write to; nil means slog.Default
	began  time.Time
	due    [kinds]atomic.Int64 // for each kind of problem: when its next line may be written, in nanoseconds after began
	missed [kinds]atomic.Int64 // for each kind of problem: how many problems were left out of the log since its last line
	warned [warnings]atomic.Bool

	mu    sync.RWMutex
	tiers map[string]bool // the unknown tiers that were logged, at most maxTiers; guarded by mu
}

// maxTiers is the largest number of unknown tiers that are logged. Without this bound, a mistake in
// [Config.Client] that invents a tier for each client would fill the log.
const maxTiers = 100

// The kinds of problems. Each is an index of the array troubles, which has their texts.
const (
	logStore = iota
	logRate
	logPassed
	logRefused
	logIDs
	logSettle
	logCount
	logUnits
	kinds
)

var troubles = [kinds]string{
	logStore:   "httplimit: the store, or a custom limiter, has failed, and the failure policy has decided",
	logRate:    "httplimit: the Resolve of a rule has returned an invalid rate, and the rule has decided by its own rate",
	logPassed:  "httplimit: a request has passed without a decision",
	logRefused: "httplimit: a request was answered with 500, without a decision",
	logIDs:     "httplimit: requests with an ID cannot be decided on: the limiter needs the option WithRequestIDs",
	logSettle:  "httplimit: the units of a request could not be settled, and stay charged",
	logCount:   "httplimit: the rules of a request cannot give units back: Config.Count is not asked, and all requests count",
	logUnits:   "httplimit: rules did not limit requests that lack their unit",
}

// The warnings. Each is an index of the array advice, which has their texts.
const (
	warnForwarded = iota
	warnTwice
	warnUnmatched
	warnRoute
	warnProxies
	warnCrowd
	warnCase
	warnExempt
	warnings
)

var advice = [warnings]string{
	warnForwarded: "httplimit: requests come through a proxy, and all share its budget: set Config.Proxies",
	warnTwice:     "httplimit: a request came to the same Middleware twice, and was charged once: wrap a handler once, or use two Middlewares",
	warnUnmatched: "httplimit: a router inside has the route of a request that was limited as \"unmatched\": set Config.Endpoint to " +
		"Route of it",
	warnRoute: "httplimit: a rule limits nothing: a router inside has found its route, but the request was limited by another " +
		"endpoint: set Config.Endpoint to Route of that router",
	warnProxies: "httplimit: requests come through a proxy that Config.Proxies does not trust, and all share its budget",
	warnCrowd: "httplimit: more requests of one key are in flight than can be given back: the oldest stay charged, " +
		"even if Config.Count returns false",
	warnCase: "httplimit: the names of two rules differ only in case, which clients that read RateLimit may not tell apart",
	warnExempt: "httplimit: requests are limited although their address is exempt, by Config.SkipNetworks or by an Override: they " +
		"come through a proxy that Config.Proxies does not trust, and the address may be the proxy's",
}

func (l *logs) init(to *slog.Logger) { l.to, l.began = to, time.Now() }

func (l *logs) logger() *slog.Logger {
	if l.to != nil {
		return l.to
	}
	return slog.Default()
}

// logs.often writes err to the log, as a problem of the given kind. If a problem of this kind was logged in
// the last minute, logs.often only counts the problem.
func (l *logs) often(kind int, err error) {
	now, due := int64(time.Since(l.began)), l.due[kind].Load()
	if now < due || !l.due[kind].CompareAndSwap(due, now+int64(time.Minute)) {
		l.missed[kind].Add(1)
		return
	}
	l.logger().Error(troubles[kind], "error", err, "more", l.missed[kind].Swap(0))
}

// logs.decided writes to the log the error err, which the limiter returned together with a decision: a store has
// failed, or a rate is invalid. If err reports both, it is logged as a failure of the store.
func (l *logs) decided(err error) {
	kind := logStore
	if errors.Is(err, ratelimit.ErrInvalidConfig) && !errors.Is(err, ratelimit.ErrStore) {
		kind = logRate
	}
	l.often(kind, err)
}

// logs.undecided writes to the log the error err, which the limiter returned without a decision, as a problem of the
// given kind. It leaves out the ID of a request, which may tell who the client is.
func (l *logs) undecided(kind int, err error) {
	if wrong := (*ratelimit.ConfigError)(nil); errors.As(err, &wrong) && wrong.Field == "id" {
		if strings.HasSuffix(wrong.Reason, "WithRequestIDs") {
			kind = logIDs
		}
		err = &ratelimit.ConfigError{Field: wrong.Field, Value: "not shown", Reason: wrong.Reason}
	}
	l.often(kind, err)
}

// logs.once writes a warning to the log, unless it was logged before. The parameter warning is the index of the
// warning's text in the array advice.
func (l *logs) once(warning int, args ...any) {
	if !l.warned[warning].Swap(true) {
		l.logger().Warn(advice[warning], args...)
	}
}

// logs.tier writes to the log that no rule has a rate for the tier with this name. It logs each name once, and
// at most maxTiers names.
func (l *logs) tier(name string) {
	l.mu.RLock()
	silent := l.tiers[name] || len(l.tiers) >= maxTiers
	l.mu.RUnlock()
	if silent {
		return
	}
	l.mu.Lock()
	silent = l.tiers[name] || len(l.tiers) >= maxTiers
	if l.tiers == nil {
		l.tiers = make(map[string]bool)
	}
	if !silent {
		l.tiers[strings.Clone(name)] = true
	}
	l.mu.Unlock()
	if !silent {
		l.logger().Warn("httplimit: no rule has a rate for a tier, so each rule's own rate limits its clients", "tier", name)
	}
}

// logs.check writes to the log the error err of a check like Middleware.Check. The error names rules that limit
// nothing, because no route has their Endpoint. logs.check does nothing if err is nil.
func (l *logs) check(err error) {
	if err != nil {
		l.logger().Warn("httplimit: rules limit nothing", "error", err)
	}
}
