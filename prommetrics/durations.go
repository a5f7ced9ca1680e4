package prommetrics

import (
	"context"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-go/ratelimit"
)

// sources are the values of [ratelimit.Decision.Source].
var sources = [...]ratelimit.Source{
	ratelimit.SourceMemory, ratelimit.SourceStore, ratelimit.SourcePolicy,
	ratelimit.SourceLimiter, ratelimit.SourceReplay, ratelimit.SourceNone,
}

// buckets are the upper bounds of the histogram, in seconds: a decision in memory takes less than
// a microsecond, one of a store about one round trip, and one that waits takes long.
var buckets = []float64{1e-6, 5e-6, 25e-6, 100e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3}

// Durations is a [ratelimit.Observer] that measures how long decisions take, and a
// [prometheus.Collector] of that, in a histogram by what has decided. [NewDurations] makes one.
//
// It has one sample for each [ratelimit.Decision]: a request to which shadow rules apply has one
// for each of these too. The time of a call of Wait includes the waiting.
type Durations struct {
	histogram *prometheus.HistogramVec
	bySource  [len(sources)]atomic.Pointer[prometheus.Observer] // filled when a source is first met
}

// NewDurations returns Durations, to be given to a limiter with [ratelimit.WithObserver] and to be
// registered once. Of o only [Options.Limiter] matters. Several limiters may share one Durations.
func NewDurations(o Options) *Durations {
	return &Durations{histogram: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:        "ratelimit_decision_duration_seconds",
		Help:        "How long decisions took, by what has decided.",
		Buckets:     buckets,
		ConstLabels: o.constant(),
	}, []string{"source"})}
}

// Observe implements [ratelimit.Observer].
func (d *Durations) Observe(_ context.Context, decision ratelimit.Decision) {
	d.of(decision.Source).Observe(decision.Took.Seconds())
}

// of returns the histogram of source.
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
	return d.histogram.WithLabelValues(shown(string(source)))
}

// Describe implements [prometheus.Collector].
func (d *Durations) Describe(ch chan<- *prometheus.Desc) { d.histogram.Describe(ch) }

// Collect implements [prometheus.Collector].
func (d *Durations) Collect(ch chan<- prometheus.Metric) { d.histogram.Collect(ch) }
