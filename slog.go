package ratelimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// SlogObserver returns an [Observer] that writes to log. It writes denials, including those
// that a rule in [ModeShadow] would have made, at level Info. It writes errors, and answers
// of the [FailurePolicy], at level Warn. It does not write other granted requests.
//
// For each rule and kind of message, it writes at most one line in the time every, by the
// machine's clock, or all lines if every is 0. The attribute "skipped" says how many were
// left out since the last one. The client, endpoint and IP of a request are written only if
// the limiter has the option [WithObservedRequests].
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	return &slogObserver{log: log, every: every, written: make(map[slogKind]*slogSample)}
}

type slogObserver struct {
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	written map[slogKind]*slogSample
}

// A slogKind is a kind of lines. Each kind is sampled by itself.
type slogKind struct {
	rule    string
	message string
}

// A slogSample says when a line was last written, and how many were skipped since.
type slogSample struct {
	at      time.Time
	skipped int
}

// Observe writes a line for d, if d is one to be written and it is the turn of its kind.
func (o *slogObserver) Observe(ctx context.Context, d Decision) {
	level, message := slog.LevelInfo, "rate limit: denied"
	switch {
	case d.Err != nil || d.Result.Degraded:
		level, message = slog.LevelWarn, "rate limit: not decided as configured"
	case d.Result.Allowed:
		return
	case d.Mode == ModeShadow:
		message = "rate limit: would have denied"
	}
	skipped, ok := o.due(slogKind{d.Rule, message}, time.Now())
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
	if d.Err != nil {
		attrs = append(attrs, slog.Any("error", d.Err))
	}
	if r := d.Request; r.Client != "" || r.Endpoint != "" || r.IP != "" {
		attrs = append(attrs, slog.String("client", r.Client), slog.String("endpoint", r.Endpoint), slog.String("ip", r.IP))
	}
	o.log.LogAttrs(ctx, level, message, attrs...)
}

// due reports whether a line of this kind is to be written at now, and how many were
// skipped since the last one.
func (o *slogObserver) due(kind slogKind, now time.Time) (skipped int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.written[kind]
	switch {
	case s == nil:
		o.written[kind] = &slogSample{at: now}
		return 0, true
	case now.Sub(s.at) < o.every:
		s.skipped++
		return 0, false
	}
	skipped = s.skipped
	*s = slogSample{at: now}
	return skipped, true
}
