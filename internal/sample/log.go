package sample

import (
	"context"
	"log/slog"
	"time"
)

// The values of [Kind.Cause]. Each says what has failed in a decision, and stands at the end of the log message. A decision
// with CauseStore gets no log line of its own, because an [Outage] writes the lines about the whole outage.
const (
	CauseLimit   = "" // nothing has failed
	CauseStore   = "the store failed"
	CauseLimiter = "the rule's limiter failed"
	CauseOther   = "the limiter of another rule failed"
	CauseResolve = "Resolve returned an invalid rate"
)

// A Decision is one decision of a limiter, as a [Log] writes it. The log line leaves out Tier, Reason and Err if they are not
// set, and a Reason that is "limit" or "policy". It leaves out Client, Endpoint and IP if all three are empty.
type Decision struct {
	Kind // the rule, the key and the outcome; its field Key is set even if something has failed

	KeyType     string        // what the rule keeps a separate budget for, such as "user"
	Tier        string        // the plan by which the rule has decided
	Cost, Limit int           // units that the request needs, and the most that are granted at once
	RetryAfter  time.Duration // how long to wait after a denial
	Source      string        // what has decided, such as "memory"
	FromStore   bool          // whether the store has answered
	Reason      string        // why the request was denied, such as "penalty"; empty if it was granted
	Err         error         // what has failed, or nil

	Client, Endpoint, IP string // the request's client, endpoint and address; empty if they must not be written
}

// A Log writes denials at level Info, and decisions in which something has failed at level Warn. It leaves out each line that
// would come soon after a line of the same kind. A Log is safe for concurrent use by multiple goroutines.
type Log struct {
	log     *slog.Logger
	sampler *Sampler[Kind]
	outage  *Outage // writes the lines about failures of the store (CauseStore)
}

// NewLog returns a Log that writes to log. The parameter every is the shortest time between two lines of the same kind.
func NewLog(log *slog.Logger, every time.Duration) *Log {
	return &Log{log, New[Kind](every), NewOutage(log, "rate limit: ")}
}

// Write writes a line for the decision d, except in two cases: d is a grant without a failure, or a line of the same
// kind was written shortly before. If the store has failed, the [Outage] in the field outage writes a line instead,
// when a line is due.
func (l *Log) Write(ctx context.Context, d *Decision) {
	kind, level := d.Kind, slog.LevelInfo
	switch {
	case kind.Cause == CauseStore:
		l.outage.Failed(ctx, time.Now(), d.Rule, !d.Allowed && !d.Shadow, d.Err)
		return
	case d.FromStore && l.outage.Lasts():
		l.outage.Answered(ctx, time.Now())
	}
	if kind.Cause != CauseLimit {
		level, kind.Key = slog.LevelWarn, 0
	} else if d.Allowed {
		return
	}
	if !l.log.Enabled(ctx, level) {
		return
	}
	skipped, ok := l.sampler.Due(kind, time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("rule", d.Rule), slog.String("key_type", d.KeyType), slog.Int("cost", d.Cost),
		slog.Bool("allowed", d.Allowed), slog.Int("limit", d.Limit), slog.Duration("retry_after", d.RetryAfter),
		slog.String("source", d.Source), slog.Int("skipped", skipped),
	}
	if d.Reason != "" && d.Reason != "limit" && d.Reason != "policy" { // these two are clear from the message and the source
		attrs = append(attrs, slog.String("reason", d.Reason))
	}
	if d.Tier != "" {
		attrs = append(attrs, slog.String("tier", d.Tier))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.Any("error", d.Err))
	}
	if d.Client != "" || d.Endpoint != "" || d.IP != "" {
		attrs = append(attrs, slog.String("client", d.Client), slog.String("endpoint", d.Endpoint), slog.String("ip", d.IP))
	}
	l.log.LogAttrs(ctx, level, kind.Message(), attrs...)
}
