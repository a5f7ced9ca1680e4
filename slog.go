package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/sample"
)

// SlogObserver returns an [Observer] that writes to log. It writes denials, including those that a rule in [ModeShadow]
// or [ModeAdvise] would have made, at level Info. It writes the decisions in which the store or a custom [Limiter] has failed, or
// [Rule.Resolve] has returned an invalid rate, at level Warn. It does not write grants without such a failure.
//
// The parameter every is an interval by the machine's clock. In each interval, SlogObserver writes at most one denial
// for each rule and each of its keys, so the denials of one client do not hide those of another; and for each rule at
// most one failure of each kind. If every is 0, it writes all of them. The attribute "skipped" counts the lines left
// out since the last line. The observer tracks up to 4,096 combinations at a time; all further combinations share one
// entry. The client, endpoint and IP of a request are written only with [WithObservedRequests].
//
// The interval does not affect the lines about an outage of the store: one when it begins, one a minute with how many
// decisions were made without the store so far, and one with how long it lasted, when the store has answered for a
// second (a minute, if the previous outage ended less than a minute before). SlogObserver panics if log is nil.
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	if log == nil {
		panic("ratelimit: SlogObserver: the logger must not be nil; slog.Default() returns one")
	}
	return &slogObserver{log, sample.New[slogKind](every), sample.NewOutage(log, "rate limit: ")}
}

type slogObserver struct {
	log     *slog.Logger
	sampler *sample.Sampler[slogKind]
	outage  *sample.Outage // writes the lines for the decisions with causeStore
}

// A slogKind identifies the log lines of one kind. At most one line of each kind is written in each interval.
type slogKind struct {
	rule            string
	key             uint64 // 0 if something has failed, because a failure concerns all clients
	allowed, shadow bool
	cause           string
}

// What has failed in a decision: the end of its log message. causeLimit means that nothing has failed. No log line
// is written for a single decision with causeStore: the field outage writes the log lines about the whole outage.
const (
	causeLimit   = ""
	causeStore   = "the store failed"
	causeLimiter = "the rule's limiter failed"
	causeOther   = "the limiter of another rule failed"
	causeResolve = "Resolve returned an invalid rate"
)

// causeOf returns what has failed in the decision d.
func causeOf(d *Decision) string {
	var failed *limiterError
	switch {
	case d.Err == nil && !d.Result.Degraded:
		return causeLimit
	case errors.Is(d.Err, ErrInvalidConfig) && !d.Result.Degraded:
		return causeResolve
	case d.Source == SourceLimiter || d.Key != 0 && d.Rate == Rate{}:
		return causeLimiter
	case errors.As(d.Err, &failed):
		return causeOther
	}
	return causeStore
}

// message returns the message of a log line of this kind.
func (k *slogKind) message() string {
	text, joint := "denied", " because "
	if k.allowed {
		text, joint = "allowed", " although "
	}
	if k.shadow {
		text = "would have " + text
	}
	if k.cause != causeLimit {
		text += joint + k.cause
	}
	return "rate limit: " + text
}

// Observe writes a line for the decision d. It writes none for a grant without a failure, nor soon after a line of the
// same kind. If the store has failed, the field outage writes instead.
func (o *slogObserver) Observe(ctx context.Context, d Decision) {
	kind, level := slogKind{d.Rule, 0, d.Result.Allowed, !d.Mode.Denies(), causeOf(&d)}, slog.LevelWarn
	if kind.cause == causeStore {
		o.outage.Failed(ctx, time.Now(), d.Rule, !kind.allowed && !kind.shadow, d.Err)
		return
	}
	if d.Source == SourceStore && o.outage.Lasts() {
		o.outage.Answered(ctx, time.Now())
	}
	if kind.cause == causeLimit {
		if level, kind.key = slog.LevelInfo, d.Key; kind.allowed {
			return
		}
	}
	if !o.log.Enabled(ctx, level) {
		return
	}
	skipped, ok := o.sampler.Due(kind, time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("rule", d.Rule), slog.String("key_type", string(d.KeyType)), slog.Int("cost", d.Cost),
		slog.Bool("allowed", d.Result.Allowed), slog.Int("limit", d.Result.Limit), slog.Duration("retry_after", d.Result.RetryAfter),
		slog.String("source", string(d.Source)), slog.Int("skipped", skipped),
	}
	if d.Tier != "" {
		attrs = append(attrs, slog.String("tier", d.Tier))
	}
	if d.Err != nil {
		attrs = append(attrs, slog.Any("error", d.Err))
	}
	if r := d.Request; r.Client != "" || r.Endpoint != "" || r.IP != "" {
		attrs = append(attrs, slog.String("client", r.Client), slog.String("endpoint", r.Endpoint), slog.String("ip", r.IP))
	}
	o.log.LogAttrs(ctx, level, kind.message(), attrs...)
}
