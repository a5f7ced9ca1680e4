package otelmetrics

import (
	"context"
	"errors"
	"math"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	table "github.com/ratelimit-go/ratelimit/internal/counters"
)

// Options configure [Register], [NewDurations] and [NewSpans].
type Options struct {
	// Limiter is the value of the attribute rate_limiting.limiter, which distinguishes the
	// limiters of a process. Empty means "default".
	Limiter string

	// MaxRules is the number of rules that are exported one by one, in the order of the
	// limiter's rules. All further rules are added up under the name "_other". 0 means 500.
	// [NewDurations] and [NewSpans] ignore MaxRules.
	MaxRules int

	// Watcher is the watcher of the limiter's file, or nil. If it is not nil, [Register] also exports the
	// [configfile.Status] of the watcher. [NewDurations] and [NewSpans] ignore Watcher.
	Watcher *configfile.Watcher
}

// limiter returns the attribute that names the limiter.
func (o Options) limiter() attribute.KeyValue {
	name := o.Limiter
	if name == "" {
		name = defaultLimiter
	}
	return attribute.String(prefix+"limiter", truncate(name))
}

// prefix begins the name of each instrument and attribute.
const prefix = "rate_limiting."

// noMeter is the error for a meter that is nil.
func noMeter() error {
	return &ratelimit.ConfigError{Field: "meter", Value: "nil", Reason: "must come from a metric.MeterProvider"}
}

// instruments holds the instruments that Register makes.
type instruments struct {
	limiter  attribute.KeyValue
	counters []metric.Int64ObservableCounter // the instrument of each counter, in the order of ratelimit.Counters()

	// metrics has for each metric, in the order of table.Metrics, a function that reports a value. The function is nil if
	// the metric describes a watcher and Options.Watcher is nil.
	metrics []func(to metric.Observer, value float64, attributes metric.MeasurementOption)
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
		errs = append(errs, noMeter())
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	in, all, err := newInstruments(m, o)
	if err != nil {
		return nil, err
	}
	g := newLedger(l, o.MaxRules)
	return m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		observe := measures(func(m int, value float64, labels ...string) {
			in.metrics[m](to, value, in.attributes(table.Metrics[m].Labels, labels))
		})
		for _, s := range g.read() {
			in.observeCounters(to, &s)
			observe.rule(&s)
		}
		observe.limiter(l)
		observe.watcher(o.Watcher)
		return nil
	}, all...)
}

// newInstruments makes the instruments with the meter m. The second result contains each instrument once.
func newInstruments(m metric.Meter, o Options) (in *instruments, all []metric.Observable, err error) {
	in = &instruments{limiter: o.limiter(), metrics: make([]func(metric.Observer, float64, metric.MeasurementOption), len(table.Metrics))}
	named := make(map[string]metric.Int64ObservableCounter)
	for _, c := range counters {
		counter, made := named[c.Name]
		if !made {
			counter, err = m.Int64ObservableCounter(instrumentName(c.Name), metric.WithUnit("{"+c.Unit+"}"), metric.WithDescription(help(c.Name)))
			if err != nil {
				return nil, nil, err
			}
			named[c.Name] = counter
			all = append(all, counter)
		}
		in.counters = append(in.counters, counter)
	}
	for i, row := range table.Metrics {
		if row.Watched && o.Watcher == nil {
			continue
		}
		var made metric.Observable
		if made, in.metrics[i], err = newInstrument(m, &row); err != nil {
			return nil, nil, err
		}
		all = append(all, made)
	}
	return in, all, nil
}

// newInstrument makes the instrument of a metric with the meter m, and a function that reports a value of it.
func newInstrument(m metric.Meter, row *table.Metric) (
	made metric.Observable, report func(to metric.Observer, value float64, attributes metric.MeasurementOption), err error,
) {
	name, unit, help := prefix+row.OpenTelemetry, metric.WithUnit(row.Unit), metric.WithDescription(row.Help)
	switch row.Kind {
	case table.Total:
		counter, err := m.Int64ObservableCounter(name, unit, help)
		return counter, func(to metric.Observer, value float64, attributes metric.MeasurementOption) {
			to.ObserveInt64(counter, int64(value), attributes)
		}, err
	case table.Level:
		level, err := m.Int64ObservableUpDownCounter(name, unit, help)
		return level, func(to metric.Observer, value float64, attributes metric.MeasurementOption) {
			to.ObserveInt64(level, int64(value), attributes)
		}, err
	default:
		gauge, err := m.Float64ObservableGauge(name, unit, help)
		return gauge, func(to metric.Observer, value float64, attributes metric.MeasurementOption) {
			to.ObserveFloat64(gauge, value, attributes)
		}, err
	}
}

// renamed has the labels in Prometheus whose attributes have another name, with that name. The attribute key_type has the
// type of a rule's key, which Prometheus shows in the label key.
var renamed = map[string]string{"rule": "policy", "key": "key_type"}

// attributes returns the attributes that a value with these labels has.
func (in *instruments) attributes(labels, values []string) metric.MeasurementOption {
	set := []attribute.KeyValue{in.limiter}
	for i, label := range labels {
		if name, ok := renamed[label]; ok {
			label = name
		}
		set = append(set, attribute.String(prefix+label, values[i]))
	}
	return metric.WithAttributeSet(attribute.NewSet(set...))
}

// instrumentName returns the name of the instrument that exports a counter. The counters of the store
// have a namespace of their own: store_errors becomes rate_limiting.store.errors.
func instrumentName(counter string) string {
	if rest, ok := strings.CutPrefix(counter, "store_"); ok {
		return prefix + "store." + rest
	}
	return prefix + counter
}

// observeCounters reports the counters of the series s.
func (in *instruments) observeCounters(to metric.Observer, s *series) {
	rule, ruleAndResult := []string{"rule"}, []string{"rule", "result"}
	ofRule := in.attributes(rule, []string{s.name})
	for i, c := range counters {
		attributes := ofRule
		if c.Result != "" {
			attributes = in.attributes(ruleAndResult, []string{s.name, c.Result})
		}
		to.ObserveInt64(in.counters[i], whole(s.counts[i]), attributes)
	}
}

// whole returns n, or the largest int64 if n is larger.
func whole(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
