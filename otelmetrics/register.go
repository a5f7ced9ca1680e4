package otelmetrics

import (
	"context"
	"errors"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ratelimit-go/ratelimit"
)

// Options say what [Register] shows, and under which name.
type Options struct {
	// Limiter is the value of the attribute rate_limiting.limiter, which tells the limiters
	// of a process apart. Empty means "default".
	Limiter string

	// MaxRules is how many rules are shown each by itself. The rules after
	// these, in the order of the limiter's, are summed under the name "_other".
	// 0 means 500.
	MaxRules int
}

// instruments are what is made of a meter.
type instruments struct {
	requests, errors metric.Int64ObservableCounter
	keys             metric.Int64ObservableUpDownCounter
}

// Register makes the instruments with m, and lets them show what l counts, until the Registration
// is unregistered. Register each limiter once, and each with an [Options.Limiter] of its own: of
// two that have the same, the OpenTelemetry SDK shows the sum.
//
// An error matches [ratelimit.ErrInvalidConfig] if m or l is nil or o is invalid, and otherwise
// comes from m.
func Register(m metric.Meter, l *ratelimit.RateLimiter, o Options) (metric.Registration, error) {
	errs := problems(l, o.MaxRules)
	if m == nil {
		errs = append(errs, &ratelimit.ConfigError{Field: "meter", Value: "nil", Reason: "must come from a metric.MeterProvider"})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	in, err := newInstruments(m)
	if err != nil {
		return nil, err
	}
	name := o.Limiter
	if name == "" {
		name = usualLimiter
	}
	limiter, g := attribute.String("rate_limiting.limiter", shown(name)), newLedger(l, o.MaxRules)
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, s := range g.read() {
			in.observe(to, &s, limiter)
		}
		return nil
	}, in.requests, in.errors, in.keys)
}

func newInstruments(m metric.Meter) (in instruments, err error) {
	var errs [3]error
	in.requests, errs[0] = m.Int64ObservableCounter("rate_limiting.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that the rule has decided on. A request that only other rules denied is not counted."))
	in.errors, errs[1] = m.Int64ObservableCounter("rate_limiting.store.errors", metric.WithUnit("{error}"),
		metric.WithDescription("Calls of the store, or of a custom limiter, for the rule that failed."))
	in.keys, errs[2] = m.Int64ObservableUpDownCounter("rate_limiting.keys", metric.WithUnit("{key}"),
		metric.WithDescription("Keys that have state in this process."))
	return in, errors.Join(errs[:]...)
}

// observe reports what is shown under one name.
func (in *instruments) observe(to metric.Observer, s *series, limiter attribute.KeyValue) {
	policy := attribute.String("rate_limiting.policy", s.name)
	for result, n := range map[string]uint64{"allowed": s.counts.allowed, "denied": s.counts.denied, "shadow_denied": s.counts.shadowDenied} {
		to.ObserveInt64(in.requests, whole(n), metric.WithAttributes(limiter, policy, attribute.String("rate_limiting.result", result)))
	}
	ruled := metric.WithAttributeSet(attribute.NewSet(limiter, policy))
	to.ObserveInt64(in.errors, whole(s.counts.errors), ruled)
	to.ObserveInt64(in.keys, int64(s.keys), ruled)
}

// whole returns n, or the largest int64 if n is larger.
func whole(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
