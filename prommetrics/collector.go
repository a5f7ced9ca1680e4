package prommetrics

import (
	"errors"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
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

	counters                      []*prometheus.Desc // one for each counter, in the order of ratelimit.Counters()
	keys, limit, rate, info       *prometheus.Desc
	parts, opened                 *prometheus.Desc
	overridden, overrides         *prometheus.Desc
	reloaded, reloadTime, reloads *prometheus.Desc
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

		keys:   desc("keys", "Keys that have state in this process.", "rule"),
		limit:  desc("rule_limit_units", "Units that the rule grants a key at once at most, without a tier.", "rule"),
		rate:   desc("rule_units_per_second", "Units that the rule grants a key in a second in the long run, without a tier.", "rule"),
		info:   desc("rule_info", "What the rule is; always 1.", "rule", "key", "mode", "algorithm"),
		parts:  desc("store_parts", "Parts of the store that have been called, by whether their circuit breaker is open.", "state"),
		opened: desc("store_opened_total", "How often the circuit breaker of a part of the store has opened."),
		overridden: desc("overridden_requests_total",
			"Requests that an override has denied, has freed from a rule, or has given another rate.", "effect"),
		overrides:  desc("overrides", "Overrides that have not ended.", "effect"),
		reloaded:   desc("config_last_reload_successful", "Whether the file was right when it was read last; 0 also if no file was applied yet."),
		reloadTime: desc("config_last_reload_success_timestamp_seconds", "When a file was applied last, as Unix time."),
		reloads:    desc("config_reloads_total", "How often a file was applied, or refused.", "result"),
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
	for _, d := range slices.Concat(c.counters, []*prometheus.Desc{
		c.keys, c.limit, c.rate, c.info, c.parts, c.opened, c.overridden, c.overrides}) {
		ch <- d // a counter with several results sends equal descriptions, which a registry allows
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
	c.collectOverrides(ch, c.ledger.limiter.OverrideStats())
	if c.watcher != nil {
		c.collectWatcher(ch, c.watcher.Status())
	}
}

// collectRule sends the metrics of the series s, which belongs to one rule name or to the name "_other".
func (c *Collector) collectRule(ch chan<- prometheus.Metric, s *series) {
	for i, kind := range counters {
		labels := []string{s.name}
		if kind.Result != "" {
			labels = append(labels, kind.Result)
		}
		counter(ch, c.counters[i], s.counts[i], labels...)
	}
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
		per := calendar.LengthAt(string(r.Rate.Window), r.Rate.Per, time.Now()) // for a calendar, this is the length of the present window
		gauge(ch, c.rate, float64(r.Rate.Requests)/per.Seconds(), s.name)
	} else if algorithm == "" {
		algorithm = "custom"
	}
	gauge(ch, c.info, 1, s.name, truncate(string(r.Key)), string(r.Mode), truncate(algorithm))
}

// collectOverrides sends the metrics of the overrides. The label effect says what an override does. No label has the client or
// address that an override is for.
func (c *Collector) collectOverrides(ch chan<- prometheus.Metric, s ratelimit.OverrideStats) {
	counter(ch, c.overridden, s.Blocked, ratelimit.EffectBlock)
	counter(ch, c.overridden, s.Exempted, ratelimit.EffectExempt)
	counter(ch, c.overridden, s.Rated, ratelimit.EffectRate)
	gauge(ch, c.overrides, float64(s.Blocks), ratelimit.EffectBlock)
	gauge(ch, c.overrides, float64(s.Exemptions), ratelimit.EffectExempt)
	gauge(ch, c.overrides, float64(s.Rates), ratelimit.EffectRate)
}

// collectWatcher sends the metrics of the status of a watcher.
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
