package prommetrics

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-go/ratelimit"
	table "github.com/ratelimit-go/ratelimit/internal/counters"
)

// Durations is a [ratelimit.Observer] that measures how long decisions take, and a
// [prometheus.Collector] that exports these times as a histogram. The label source of the histogram is
// the [ratelimit.Decision.Source]. [NewDurations] makes one.
//
// The histogram has one sample for each [ratelimit.Decision]. Each rule in shadow or advise mode that applies
// to a request adds one more sample. The duration of a call of Wait includes the time that it waited.
type Durations struct {
	histogram *prometheus.HistogramVec

	// bySource has the histogram for each entry of sources, at the same index. An entry is nil until
	// its first sample.
	bySource [len(sources)]atomic.Pointer[prometheus.Observer]
}

// NewDurations returns a Durations. Pass it to a limiter by [ratelimit.WithObserver], and register it once.
// Of the Options, it uses only Limiter. Several limiters may share one Durations.
func NewDurations(o Options) *Durations {
	return &Durations{histogram: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:        "ratelimit_" + table.DurationName,
		Help:        table.DurationHelp,
		Buckets:     table.DurationBuckets,
		ConstLabels: o.constant(),
	}, []string{"source"})}
}

// Observe implements [ratelimit.Observer].
func (d *Durations) Observe(_ context.Context, decision ratelimit.Decision) {
	d.of(decision.Source).Observe(decision.Took.Seconds())
}

// The method named "of" returns the histogram for decisions with this source.
func (d *Durations) of(source ratelimit.Source) prometheus.Observer {
	for i, s := range sources {
		if s != source {
			continue
		}
		if known := d.bySource[i].Load(); known != nil {
			return *known
		}
		made := d.histogram.WithLabelValues(string(source))
		d.bySource[i].Store(&made)
		return made
	}
	return d.histogram.WithLabelValues(truncate(string(source)))
}

// Describe implements [prometheus.Collector].
func (d *Durations) Describe(ch chan<- *prometheus.Desc) { d.histogram.Describe(ch) }

// Collect implements [prometheus.Collector].
func (d *Durations) Collect(ch chan<- prometheus.Metric) { d.histogram.Collect(ch) }
