package otelmetrics

import (
	"context"
	"errors"
	"math"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ratelimit-go/ratelimit"
)

// Options configure [Register].
type Options struct {
	// Limiter is the value of the attribute rate_limiting.limiter, which distinguishes the
	// limiters of a process. Empty means "default".
	Limiter string

	// MaxRules is the number of rules that are exported one by one, in the order of the
	// limiter's rules. All further rules are added up under the name "_other". 0 means 500.
	MaxRules int
}

// instruments holds the instruments that Register makes.
type instruments struct {
	counters []metric.Int64ObservableCounter // the instrument of each counter, in the order of ratelimit.Counters()
	keys     metric.Int64ObservableUpDownCounter

	overridden metric.Int64ObservableCounter       // requests that overrides have changed, by their effect
	overrides  metric.Int64ObservableUpDownCounter // overrides that have not ended, by their effect
}

// Register makes the instruments with the meter m. They export the statistics of the limiter l until the
// Registration is unregistered. Register each limiter once, with its own [Options.Limiter]: for two
// limiters with the same name, the OpenTelemetry SDK exports the sums.
//
// If m or l is nil, or the Options are invalid, the error matches [ratelimit.ErrInvalidConfig]. Other
// errors come from m.
func Register(m metric.Meter, l *ratelimit.RateLimiter, o Options) (metric.Registration, error) {
	errs := problems(l, o.MaxRules)
	if m == nil {
		errs = append(errs, &ratelimit.ConfigError{Field: "meter", Value: "nil", Reason: "must come from a metric.MeterProvider"})
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	in, all, err := newInstruments(m)
	if err != nil {
		return nil, err
	}
	name := o.Limiter
	if name == "" {
		name = defaultLimiter
	}
	limiter, g := attribute.String("rate_limiting.limiter", truncate(name)), newLedger(l, o.MaxRules)
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, s := range g.read() {
			in.observe(to, &s, limiter)
		}
		in.observeOverrides(to, l.OverrideStats(), limiter)
		return nil
	}, all...)
}

// newInstruments makes the instruments with the meter m. The second result contains each instrument once.
func newInstruments(m metric.Meter) (in instruments, all []metric.Observable, err error) {
	named := make(map[string]metric.Int64ObservableCounter)
	for _, c := range counters {
		counter, made := named[c.Name]
		if !made {
			counter, err = m.Int64ObservableCounter(instrumentName(c.Name), metric.WithUnit("{"+c.Unit+"}"), metric.WithDescription(help(c.Name)))
			if err != nil {
				return in, nil, err
			}
			named[c.Name] = counter
			all = append(all, counter)
		}
		in.counters = append(in.counters, counter)
	}
	if in.keys, err = m.Int64ObservableUpDownCounter("rate_limiting.keys", metric.WithUnit("{key}"),
		metric.WithDescription("Keys that have state in this process.")); err != nil {
		return in, nil, err
	}
	if in.overridden, err = m.Int64ObservableCounter("rate_limiting.overridden_requests", metric.WithUnit("{request}"), metric.WithDescription(
		"Requests that an override has denied, has freed from a rule, or has given another rate.")); err != nil {
		return in, nil, err
	}
	in.overrides, err = m.Int64ObservableUpDownCounter("rate_limiting.overrides", metric.WithUnit("{override}"),
		metric.WithDescription("Overrides that have not ended."))
	return in, append(all, in.keys, in.overridden, in.overrides), err
}

// instrumentName returns the name of the instrument that exports a counter. The counters of the store
// have a namespace of their own: store_errors becomes rate_limiting.store.errors.
func instrumentName(counter string) string {
	if rest, ok := strings.CutPrefix(counter, "store_"); ok {
		return "rate_limiting.store." + rest
	}
	return "rate_limiting." + counter
}

// observe reports the values of the series s. Each value gets the attribute in the parameter limiter.
func (in *instruments) observe(to metric.Observer, s *series, limiter attribute.KeyValue) {
	policy := attribute.String("rate_limiting.policy", s.name)
	ofRule := metric.WithAttributeSet(attribute.NewSet(limiter, policy))
	for i, c := range counters {
		attributes := ofRule
		if c.Result != "" {
			attributes = metric.WithAttributeSet(attribute.NewSet(limiter, policy, attribute.String("rate_limiting.result", c.Result)))
		}
		to.ObserveInt64(in.counters[i], whole(s.counts[i]), attributes)
	}
	to.ObserveInt64(in.keys, int64(s.keys), ofRule)
}

// observeOverrides reports the statistics of the overrides. The attribute effect says what an override does. No attribute has
// the client or address that an override is for.
func (in *instruments) observeOverrides(to metric.Observer, s ratelimit.OverrideStats, limiter attribute.KeyValue) {
	for _, of := range [...]struct {
		effect   string
		requests uint64
		live     int
	}{
		{ratelimit.EffectBlock, s.Blocked, s.Blocks},
		{ratelimit.EffectExempt, s.Exempted, s.Exemptions},
		{ratelimit.EffectRate, s.Rated, s.Rates},
	} {
		attributes := metric.WithAttributeSet(attribute.NewSet(limiter, attribute.String("rate_limiting.effect", of.effect)))
		to.ObserveInt64(in.overridden, whole(of.requests), attributes)
		to.ObserveInt64(in.overrides, int64(of.live), attributes)
	}
}

// whole returns n, or the largest int64 if n is larger.
func whole(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
