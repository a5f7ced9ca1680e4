package httplimit

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// logs writes at most one line a minute of each kind of trouble, and each warning once.
type logs struct {
	to     *slog.Logger // nil: slog.Default
	began  time.Time
	due    [kinds]atomic.Int64 // when the next line may come, in nanoseconds since began
	missed [kinds]atomic.Int64 // events without a line since the last one
	warned [warnings]atomic.Bool
}

// The kinds of trouble.
const (
	logStore = iota
	logPassed
	logRefused
	logSettle
	kinds
)

var troubles = [kinds]string{
	logStore:   "httplimit: the failure policy has decided, or a rule by its own rate",
	logPassed:  "httplimit: a request has passed without a decision",
	logRefused: "httplimit: a request was answered with 500, without a decision",
	logSettle:  "httplimit: the units of a request that does not count stay charged",
}

// The warnings.
const (
	warnForwarded = iota
	warnTwice
	warnUnmatched
	warnings
)

var advice = [warnings]string{
	warnForwarded: "httplimit: requests come through a proxy, and all share its budget: set Config.Proxies",
	warnTwice:     "httplimit: a request came to the same Middleware twice, and was charged once: wrap a handler once, or use two Middlewares",
	warnUnmatched: "httplimit: a router inside has the route of a request that was limited as \"unmatched\": set Config.Endpoint to Route of it",
}

func (l *logs) init(to *slog.Logger) { l.to, l.began = to, time.Now() }

func (l *logs) logger() *slog.Logger {
	if l.to != nil {
		return l.to
	}
	return slog.Default()
}

// often tells of trouble that may come with each request.
func (l *logs) often(kind int, err error) {
	now, due := int64(time.Since(l.began)), l.due[kind].Load()
	if now < due || !l.due[kind].CompareAndSwap(due, now+int64(time.Minute)) {
		l.missed[kind].Add(1)
		return
	}
	l.logger().Error(troubles[kind], "error", err, "more", l.missed[kind].Swap(0))
}

// once gives advice, if it has not been given before.
func (l *logs) once(warning int) {
	if !l.warned[warning].Swap(true) {
		l.logger().Warn(advice[warning])
	}
}

// check tells of rules that limit nothing.
func (l *logs) check(err error) {
	if err != nil {
		l.logger().Warn("httplimit: rules limit nothing", "error", err)
	}
}
