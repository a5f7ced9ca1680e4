package ratelimit

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// SlogObserver returns an [Observer] that writes what went wrong to log: denials, also
// those of shadow rules, at level Info, and errors and the failure policy's answers at
// level Warn. Granted requests are not written.
//
// It samples: of each rule it writes one of each kind every interval of the machine's
// time, with how many it left out since the last. An interval of 0 writes all. Keys
// are written only if the limiter has [WithObservedRequests].
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	return &slogObserver{log: log, every: every, written: make(map[slogKind]*slogSample)}
}

type slogObserver struct {
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	written map[slogKind]*slogSample
}

// A slogKind is what one sample is taken of.
type slogKind struct {
	rule    string
	message string
}

// A slogSample is when one of a kind was last written.
type slogSample struct {
	at      time.Time
	skipped int
}

// Observe writes d, if it is the turn of its kind.
func (o *slogObserver) Observe(d Decision) {
	level, message := slog.LevelInfo, "rate limit: denied"
	switch {
	case d.Err != nil || d.Result.Degraded:
		level, message = slog.LevelWarn, "rate limit: not decided as configured"
	case d.Result.Allowed:
		return
	case d.Mode == ModeShadow:
		message = "rate limit: would have denied"
	}
	skipped, ok := o.turn(slogKind{d.Rule, message}, time.Now())
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
	o.log.LogAttrs(context.Background(), level, message, attrs...)
}

// turn reports whether one of kind is to be written at now, and how many were not
// since the last.
func (o *slogObserver) turn(kind slogKind, now time.Time) (skipped int, ok bool) {
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
