package grpclimit

import (
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// logs writes problems and warnings to the log. It writes at most one line a minute for each kind of problem,
// and each warning only once.
type logs struct {
	to     *slog.Logger // the logger to write to; nil means slog.Default
	began  time.Time
	due    [kinds]atomic.Int64 // for each kind of problem: when its next line may be written, in nanoseconds after began
	missed [kinds]atomic.Int64 // for each kind of problem: how many problems were left out of the log since its last line
	warned [warnings]atomic.Bool
}

// The kinds of problems. Each is an index of the array troubles, which has their texts.
const (
	logStore = iota
	logRate
	logRefused
	logIDs
	logUnsent
	kinds
)

var troubles = [kinds]string{
	logStore:   "grpclimit: the store, or a custom limiter, has failed, and the failure policy has decided",
	logRate:    "grpclimit: the Resolve of a rule has returned an invalid rate, and the rule has decided by its own rate",
	logRefused: "grpclimit: a call was answered with INTERNAL, without a decision",
	logIDs:     "grpclimit: calls with an ID cannot be decided on: the limiter needs the option WithRequestIDs",
	logUnsent:  "grpclimit: a call was not sent, without a decision",
}

// The warnings. Each is an index of the array advice, which has their texts.
const (
	warnForwarded = iota
	warnExempt
	warnings
)

var advice = [warnings]string{
	warnForwarded: "grpclimit: calls come through a proxy, and all share its budget: set Config.Proxies",
	warnExempt: "grpclimit: calls are limited although their address is exempt, by Config.SkipNetworks or by an Override: they come " +
		"through a proxy that Config.Proxies does not trust, and the address may be the proxy's",
}

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
func (l *logs) once(warning int) {
	if !l.warned[warning].Swap(true) {
		l.logger().Warn(advice[warning])
	}
}
