package otelmetrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/ratelimit-go/ratelimit"
	table "github.com/ratelimit-go/ratelimit/internal/counters"
)

// Durations is a [ratelimit.Observer] that measures how long decisions take, in the histogram
// rate_limiting.decision.duration with the attribute rate_limiting.source, which is the [ratelimit.Decision.Source].
// [NewDurations] makes one.
//
// The histogram has one sample for each [ratelimit.Decision]. Each rule in shadow or advise mode that applies
// to a request adds one more sample. The duration of a call of Wait includes the time that it waited.
type Durations struct {
	histogram metric.Float64Histogram
	options   [len(sources)][]metric.RecordOption // the attributes for each entry of sources, at the same index
}

// NewDurations returns a Durations that makes its histogram with the meter m. Pass it to a limiter by
// [ratelimit.WithObserver]. Of the Options, it uses only Limiter. Several limiters may share one Durations. If m is nil, the
// error matches [ratelimit.ErrInvalidConfig]. Other errors come from m.
func NewDurations(m metric.Meter, o Options) (*Durations, error) {
	if m == nil {
		return nil, noMeter()
	}
	histogram, err := m.Float64Histogram(prefix+table.DurationOtelName, metric.WithUnit("s"), metric.WithDescription(table.DurationHelp),
		metric.WithExplicitBucketBoundaries(table.DurationBuckets...))
	if err != nil {
		return nil, err
	}
	d := &Durations{histogram: histogram}
	for i, source := range sources {
		set := attribute.NewSet(o.limiter(), attribute.String(prefix+"source", string(source)))
		d.options[i] = []metric.RecordOption{metric.WithAttributeSet(set)}
	}
	return d, nil
}

// Observe implements [ratelimit.Observer].
func (d *Durations) Observe(ctx context.Context, decision ratelimit.Decision) {
	for i, source := range sources {
		if source == decision.Source {
			d.histogram.Record(ctx, decision.Took.Seconds(), d.options[i]...)
		}
	}
}
