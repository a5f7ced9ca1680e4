package prommetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	table "github.com/ratelimit-go/ratelimit/internal/counters"
)

//go:generate env RATELIMIT_WRITE=1 go test -count=1 -run ^TestCollector$ .

// Options configure a [Collector] or a [Durations].
type Options struct {
	// Limiter is the value of the label limiter, which distinguishes the limiters of a
	// process. Empty means "default".
	Limiter string

	// MaxRules is the number of rules that are exported one by one, in the order of the
	// limiter's rules. All further rules are added up under the name "_other". 0 means 500.
	// A [Durations] ignores MaxRules.
	MaxRules int

	// Watcher is the watcher of the limiter's file, or nil. If it is not nil, the [Collector]
	// also exports the [configfile.Status] of the watcher. A [Durations] ignores Watcher.
	Watcher *configfile.Watcher
}

// constant returns the labels that every metric has.
func (o Options) constant() prometheus.Labels {
	name := o.Limiter
	if name == "" {
		name = defaultLimiter
	}
	return prometheus.Labels{"limiter": truncate(name)}
}

// A Collector is a [prometheus.Collector] that exports the statistics of a limiter. [NewCollector]
// makes one.
//
// Each scrape reads the statistics. The counters of a rule name never decrease as long as each scrape
// finds a rule with that name. If a scrape finds no rule with that name, the counters start again at zero.
type Collector struct {
	ledger  *ledger
	watcher *configfile.Watcher // the watcher of the limiter's file, or nil

	counters []*prometheus.Desc // one for each counter, in the order of ratelimit.Counters()
	metrics  []*prometheus.Desc // one for each metric, in the order of table.Metrics
}

// NewCollector returns a Collector for l. Register it once:
//
//	prometheus.MustRegister(prommetrics.NewCollector(limiter, prommetrics.Options{}))
//
// A registry refuses a second Collector with the same [Options.Limiter]. If l is nil or o is invalid,
// NewCollector panics with an error that matches [ratelimit.ErrInvalidConfig].
func NewCollector(l *ratelimit.RateLimiter, o Options) *Collector {
	if errs := problems(l, o.MaxRules); len(errs) > 0 {
		panic(errors.Join(errs...))
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ratelimit_"+name, help, labels, o.constant())
	}
	c := &Collector{
		ledger:  newLedger(l, o.MaxRules),
		watcher: o.Watcher,
	}
	for _, m := range table.Metrics {
		c.metrics = append(c.metrics, desc(m.Prometheus, m.Help, m.Labels...))
	}
	for _, kind := range counters {
		labels := []string{"rule"}
		if kind.Result != "" {
			labels = append(labels, "result")
		}
		c.counters = append(c.counters, desc(kind.Name+"_total", help(kind.Name), labels...))
	}
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.counters {
		ch <- d // a counter with several results sends equal descriptions, which a registry allows
	}
	for i, m := range table.Metrics {
		if !m.Watched || c.watcher != nil {
			ch <- c.metrics[i]
		}
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	to := measures(func(metric int, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if table.Metrics[metric].Kind == table.Total {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(c.metrics[metric], kind, value, labels...)
	})
	for _, s := range c.ledger.read() {
		c.collectCounters(ch, &s)
		to.rule(&s)
	}
	to.limiter(c.ledger.limiter)
	to.watcher(c.watcher)
}

// collectCounters sends the counters of the series s.
func (c *Collector) collectCounters(ch chan<- prometheus.Metric, s *series) {
	for i, kind := range counters {
		labels := []string{s.name}
		if kind.Result != "" {
			labels = append(labels, kind.Result)
		}
		ch <- prometheus.MustNewConstMetric(c.counters[i], prometheus.CounterValue, float64(s.counts[i]), labels...)
	}
}
