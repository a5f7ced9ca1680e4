package prommetrics

import (
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
	table "github.com/ratelimit-go/ratelimit/internal/counters"
)

// sources lists the values of [ratelimit.Decision.Source].
var sources = [...]ratelimit.Source{
	ratelimit.SourceMemory, ratelimit.SourceStore, ratelimit.SourcePolicy,
	ratelimit.SourceLimiter, ratelimit.SourceReplay, ratelimit.SourceOverride, ratelimit.SourceNone,
}

// A measures is a function that takes one value of one of the metrics in table.Metrics. Its parameter metric is the index of
// this metric in table.Metrics. Its parameter labels has the values of the labels. No label has a client or an address.
//
// This file is the same in prommetrics and otelmetrics, except for the name of the package.
type measures func(metric int, value float64, labels ...string)

// rule calls the function for each metric of the series s, which belongs to one rule name or to the name "_other".
func (to measures) rule(s *series) {
	to(table.Keys, float64(s.keys), s.name)
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
		to(table.RuleLimit, float64(limit), s.name)
		per := calendar.LengthAt(string(r.Rate.Window), r.Rate.Per, time.Now()) // for windows such as months, the length of the present one
		to(table.RuleRate, float64(r.Rate.Requests)/per.Seconds(), s.name)
	} else if algorithm == "" {
		algorithm = "custom"
	}
	to(table.RuleInfo, 1, s.name, truncate(string(r.Key)), string(r.Mode), truncate(algorithm))
}

// limiter calls the function for the metrics of the limiter l that belong to no single rule.
func (to measures) limiter(l *ratelimit.RateLimiter) {
	store := l.StoreStats()
	to(table.StoreParts, float64(store.Open), "open")
	to(table.StoreParts, float64(max(store.Parts-store.Open, 0)), "closed")
	to(table.StoreOpened, float64(store.Opened))
	for _, f := range store.Failures {
		to(table.StoreFailures, float64(f.Calls), strconv.Itoa(f.Part), f.Class)
	}
	s := l.OverrideStats()
	to(table.OverriddenRequests, float64(s.Blocked), ratelimit.EffectBlock)
	to(table.OverriddenRequests, float64(s.Exempted), ratelimit.EffectExempt)
	to(table.OverriddenRequests, float64(s.Rated), ratelimit.EffectRate)
	to(table.Overrides, float64(s.Blocks), ratelimit.EffectBlock)
	to(table.Overrides, float64(s.Exemptions), ratelimit.EffectExempt)
	to(table.Overrides, float64(s.Rates), ratelimit.EffectRate)
}

// watcher calls the function for the metrics of the watcher w. If w is nil, it does nothing.
func (to measures) watcher(w *configfile.Watcher) {
	if w == nil {
		return
	}
	s, successful := w.Status(), 0.0
	if s.Err == nil && s.Loads > 0 {
		successful = 1
	}
	to(table.ReloadSuccessful, successful)
	if !s.Applied.IsZero() {
		to(table.ReloadTime, float64(s.Applied.UnixMilli())/1000)
	}
	to(table.Reloads, float64(s.Loads), "success")
	to(table.Reloads, float64(s.Failures), "failure")
}
