package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/sample"
)

// SlogObserver returns an [Observer] that writes to log. It writes denials, including those
// that a rule in [ModeShadow] would have made, at level Info. If the store or a custom
// [Limiter] has failed, or [Rule.Resolve] has returned an invalid rate, it writes what was
// decided all the same, at level Warn. It does not write other granted requests.
//
// For each rule, key and kind of message, it writes at most one line in the time every, by
// the machine's clock, or all lines if every is 0. So the denials of one client do not hide
// those of another. The attribute "skipped" says how many were left out since the last one.
// If more than 4096 of them are active in that time, the further ones count as one. The
// client, endpoint and IP of a request are written only if the limiter has the option
// [WithObservedRequests].
//
// SlogObserver panics if log is nil.
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	if log == nil {
		panic("ratelimit: SlogObserver: the logger must not be nil; slog.Default() returns one")
	}
	return &slogObserver{log, sample.New[slogKind](every)}
}

type slogObserver struct {
	log     *slog.Logger
	sampler *sample.Sampler[slogKind]
}

// A slogKind is a kind of lines. Each kind is sampled by itself.
type slogKind struct {
	rule            string
	key             uint64
	allowed, shadow bool
	cause           slogCause
}

// A slogCause says why a line is written beside its decision.
type slogCause string

// The causes, as they end a message.
const (
	causeLimit   slogCause = ""
	causeStore   slogCause = "the store failed"
	causeLimiter slogCause = "the rule's limiter failed"
	causeOther   slogCause = "the limiter of another rule failed"
	causeResolve slogCause = "Resolve returned an invalid rate"
)

// causeOf returns what has gone wrong in the decision d.
func causeOf(d *Decision) slogCause {
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

// message returns the text of a line of this kind.
func (k *slogKind) message() string {
	verb, joint := "denied", " because "
	if k.allowed {
		verb, joint = "allowed", " although "
	}
	if k.shadow {
		verb = map[bool]string{false: "would have denied", true: "would have allowed"}[k.allowed]
	}
	if k.cause == causeLimit {
		joint = ""
	}
	return "rate limit: " + verb + joint + string(k.cause)
}

// Observe writes a line for d, if d is one to be written and it is the turn of its kind.
func (o *slogObserver) Observe(ctx context.Context, d Decision) {
	kind := slogKind{d.Rule, d.Key, d.Result.Allowed, d.Mode == ModeShadow, causeOf(&d)}
	level := slog.LevelWarn
	if kind.cause == causeLimit {
		if level = slog.LevelInfo; kind.allowed {
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
		slog.String("rule", d.Rule),
		slog.String("key_type", string(d.KeyType)),
		slog.Int("cost", d.Cost),
		slog.Bool("allowed", d.Result.Allowed),
		slog.Int("limit", d.Result.Limit),
		slog.Duration("retry_after", d.Result.RetryAfter),
		slog.String("source", string(d.Source)),
		slog.Int("skipped", skipped),
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
