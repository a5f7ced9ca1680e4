package prommetrics_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

func ExampleNewCollector() {
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		log.Fatal(err)
	}
	prometheus.MustRegister(prommetrics.NewCollector(limiter, prommetrics.Options{Limiter: "api"}))
	http.Handle("/metrics", promhttp.Handler())
}

func ExampleNewDurations() {
	durations := prommetrics.NewDurations(prommetrics.Options{Limiter: "search"})
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)}, ratelimit.WithObserver(durations))
	if err != nil {
		log.Fatal(err)
	}
	prometheus.MustRegister(durations, prommetrics.NewCollector(limiter, prommetrics.Options{Limiter: "search"}))
	fmt.Println(limiter.Allow("alice", "/").Allowed)
	// Output: true
}

// observers are observers that all see each decision.
type observers []ratelimit.Observer

func (all observers) Observe(ctx context.Context, d ratelimit.Decision) {
	for _, o := range all {
		o.Observe(ctx, d)
	}
}

// A limiter has one observer. It may pass each decision on to several.
func ExampleDurations_severalObservers() {
	logger := slog.New(slog.DiscardHandler)
	durations := prommetrics.NewDurations(prommetrics.Options{})
	both := ratelimit.WithObserver(observers{durations, ratelimit.SlogObserver(logger, time.Minute)})
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)}, both)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(limiter.Allow("alice", "/").Allowed)
	// Output: true
}

func ExampleOptions_watcher() {
	limiter, watcher, err := configfile.Open("testdata/limits.json")
	if err != nil {
		log.Print(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prommetrics.NewCollector(limiter, prommetrics.Options{Watcher: watcher}))
	families, err := registry.Gather()
	if err != nil {
		log.Print(err)
		return
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "ratelimit_config_") {
			fmt.Println(f.GetName())
		}
	}
	// Output:
	// ratelimit_config_last_reload_success_timestamp_seconds
	// ratelimit_config_last_reload_successful
	// ratelimit_config_reloads_total
}
