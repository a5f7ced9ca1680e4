package grpclimit

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
	logRefused
	logUnsent
	kinds
)

var troubles = [kinds]string{
	logStore:   "grpclimit: the failure policy has decided, or a rule by its own rate",
	logRefused: "grpclimit: a call was answered with INTERNAL, without a decision",
	logUnsent:  "grpclimit: a call was not sent, without a decision",
}

// The warnings.
const (
	warnForwarded = iota
	warnings
)

var advice = [warnings]string{
	warnForwarded: "grpclimit: calls come through a proxy, and all share its budget: set Config.Proxies",
}

func (l *logs) logger() *slog.Logger {
	if l.to != nil {
		return l.to
	}
	return slog.Default()
}

// often tells of trouble that may come with each call.
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
