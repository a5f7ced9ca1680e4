package prommetrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// Options say what a [Collector] shows, and under which name.
type Options struct {
	// Limiter is the value of the label limiter, which tells the limiters of a process
	// apart. Empty means "default".
	Limiter string

	// MaxRules is how many rules are shown each by itself. The rules after
	// these, in the order of the limiter's, are summed under the name "_other".
	// 0 means 500. A [Durations] has no rules.
	MaxRules int

	// Watcher, if it is not nil, is the watcher of the limiter's file. Its
	// state is shown too, but not by a [Durations].
	Watcher *configfile.Watcher
}

// constant returns the labels that all metrics have.
func (o Options) constant() prometheus.Labels {
	name := o.Limiter
	if name == "" {
		name = usualLimiter
	}
	return prometheus.Labels{"limiter": shown(name)}
}

// A Collector is a [prometheus.Collector] of what a limiter has counted. [NewCollector] makes one.
//
// Each scrape reads the limiter's statistics. The counters of a name never decrease as long as
// each scrape finds a rule of that name; after that they begin again.
type Collector struct {
	ledger  *ledger
	watcher *configfile.Watcher // or nil

	requests, degraded, errors, overflowed, evicted *prometheus.Desc
	keys, limit, rate, info                         *prometheus.Desc
	parts, opened                                   *prometheus.Desc
	reloaded, reloadTime, reloads                   *prometheus.Desc
}

// NewCollector returns a Collector of what l counts, to be registered once:
//
//	prometheus.MustRegister(prommetrics.NewCollector(limiter, prommetrics.Options{}))
//
// A second Collector with the same [Options.Limiter] is refused by the registry. NewCollector
// panics with an error that matches [ratelimit.ErrInvalidConfig] if l is nil or o is invalid.
func NewCollector(l *ratelimit.RateLimiter, o Options) *Collector {
	if errs := problems(l, o.MaxRules); len(errs) > 0 {
		panic(errors.Join(errs...))
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ratelimit_"+name, help, labels, o.constant())
	}
	return &Collector{
		ledger:  newLedger(l, o.MaxRules),
		watcher: o.Watcher,

		requests:   desc("requests_total", "Requests that the rule has decided on. A request that only other rules denied is not counted.", "rule", "result"),
		degraded:   desc("degraded_requests_total", "Of the requests, those that the rule's failure policy has answered.", "rule"),
		errors:     desc("store_errors_total", "Calls of the store, or of a custom limiter, for the rule that failed.", "rule"),
		overflowed: desc("overflowed_requests_total", "Of the requests, those charged to the budget that keys share beyond the bound on their number.", "rule"),
		evicted:    desc("evicted_keys_total", "Keys that were forgotten because they were as if never used.", "rule"),
		keys:       desc("keys", "Keys that have state in this process.", "rule"),
		limit:      desc("rule_limit_units", "Units that the rule grants a key at once at most, without a tier.", "rule"),
		rate:       desc("rule_units_per_second", "Units that the rule grants a key in a second in the long run, without a tier.", "rule"),
		info:       desc("rule_info", "What the rule is; always 1.", "rule", "key", "mode", "algorithm"),
		parts:      desc("store_parts", "Parts of the store that have been called, by whether their circuit breaker is open.", "state"),
		opened:     desc("store_opened_total", "How often the circuit breaker of a part of the store has opened."),
		reloaded:   desc("config_last_reload_successful", "Whether the file was right when it was read last; 0 also if no file was applied yet."),
		reloadTime: desc("config_last_reload_success_timestamp_seconds", "When a file was applied last, as Unix time."),
		reloads:    desc("config_reloads_total", "How often a file was applied, or refused.", "result"),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.degraded, c.errors, c.overflowed, c.evicted, c.keys, c.limit, c.rate, c.info, c.parts, c.opened} {
		ch <- d
	}
	if c.watcher != nil {
		for _, d := range []*prometheus.Desc{c.reloaded, c.reloadTime, c.reloads} {
			ch <- d
		}
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.ledger.read() {
		c.collectRule(ch, &s)
	}
	store := c.ledger.limiter.StoreStats()
	gauge(ch, c.parts, float64(store.Open), "open")
	gauge(ch, c.parts, float64(max(store.Parts-store.Open, 0)), "closed")
	counter(ch, c.opened, store.Opened)
	if c.watcher != nil {
		c.collectWatcher(ch, c.watcher.Status())
	}
}

// collectRule sends the metrics of one name.
func (c *Collector) collectRule(ch chan<- prometheus.Metric, s *series) {
	counter(ch, c.requests, s.counts.allowed, s.name, "allowed")
	counter(ch, c.requests, s.counts.denied, s.name, "denied")
	counter(ch, c.requests, s.counts.shadowDenied, s.name, "shadow_denied")
	counter(ch, c.degraded, s.counts.degraded, s.name)
	counter(ch, c.errors, s.counts.errors, s.name)
	counter(ch, c.overflowed, s.counts.overflowed, s.name)
	counter(ch, c.evicted, s.counts.evicted, s.name)
	gauge(ch, c.keys, float64(s.keys), s.name)
	r := s.rule
	if r == nil {
		return
	}
	algorithm := string(r.Algorithm)
	if r.Limiter == nil {
		limit := r.Rate.Requests
		if r.Rate.Burst > 0 {
			limit = r.Rate.Burst
		}
		gauge(ch, c.limit, float64(limit), s.name)
		gauge(ch, c.rate, float64(r.Rate.Requests)/r.Rate.Per.Seconds(), s.name)
	} else if algorithm == "" {
		algorithm = "custom"
	}
	gauge(ch, c.info, 1, s.name, shown(string(r.Key)), string(r.Mode), shown(algorithm))
}

// collectWatcher sends the metrics of a watcher's state.
func (c *Collector) collectWatcher(ch chan<- prometheus.Metric, s configfile.Status) {
	reloaded := 0.0
	if s.Err == nil && s.Loads > 0 {
		reloaded = 1
	}
	gauge(ch, c.reloaded, reloaded)
	if !s.Applied.IsZero() {
		gauge(ch, c.reloadTime, float64(s.Applied.UnixMilli())/1000)
	}
	counter(ch, c.reloads, uint64(s.Loads), "success")
	counter(ch, c.reloads, uint64(s.Failures), "failure")
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
