package counters

// A Kind says how the values of a metric change.
type Kind uint8

// The kinds of metrics.
const (
	Total Kind = iota // a number that only grows
	Level             // a number that rises and falls, and that can be summed over processes
	Gauge             // a value that cannot be summed over processes
)

// The indices of the metrics in Metrics.
const (
	Keys = iota
	RuleLimit
	RuleRate
	RuleInfo
	StoreParts
	StoreOpened
	StoreFailures
	OverriddenRequests
	Overrides
	ReloadSuccessful
	ReloadTime
	Reloads
	numMetrics
)

// A Metric describes what exporters show of a limiter besides the counters in Table.
type Metric struct {
	Prometheus    string   // the name in Prometheus, without the prefix "ratelimit_"
	OpenTelemetry string   // the name in OpenTelemetry, without the prefix "rate_limiting."
	Kind          Kind     // how its values change
	Unit          string   // the unit in OpenTelemetry
	Help          string   // what the metric says, as a sentence for people
	Labels        []string // the labels in Prometheus; the first is "rule" if each rule has a value of its own
	Watched       bool     // whether the metric describes the config file that a watcher reads
}

// Metrics has a row for each metric. A new metric also needs a line in the file measures.go of each exporter (prommetrics and
// otelmetrics). Apart from the package name, the two files must be equal.
var Metrics = [numMetrics]Metric{
	Keys: {Prometheus: "keys", OpenTelemetry: "keys", Kind: Level, Unit: "{key}", Labels: []string{"rule"},
		Help: "Keys that have state in this process."},
	RuleLimit: {Prometheus: "rule_limit_units", OpenTelemetry: "rule.limit", Kind: Gauge, Unit: "{unit}", Labels: []string{"rule"},
		Help: "Units that the rule grants a key at once at most, without a tier."},
	RuleRate: {Prometheus: "rule_units_per_second", OpenTelemetry: "rule.rate", Kind: Gauge, Unit: "{unit}/s", Labels: []string{"rule"},
		Help: "Units that the rule grants a key in a second in the long run, without a tier."},
	RuleInfo: {Prometheus: "rule_info", OpenTelemetry: "rule.info", Kind: Gauge, Unit: "1",
		Labels: []string{"rule", "key", "mode", "algorithm"}, Help: "What the rule is; always 1."},
	StoreParts: {Prometheus: "store_parts", OpenTelemetry: "store.parts", Kind: Level, Unit: "{part}", Labels: []string{"state"},
		Help: "Parts of the store that have been called, by whether their circuit breaker is open."},
	StoreOpened: {Prometheus: "store_opened_total", OpenTelemetry: "store.opened", Unit: "{opening}",
		Help: "How often the circuit breaker of a part of the store has opened."},
	StoreFailures: {Prometheus: "store_failures_total", OpenTelemetry: "store.failures", Unit: "{call}", Labels: []string{"part", "class"},
		Help: "Calls of a part of the store that have failed, by the class of the error."},
	OverriddenRequests: {Prometheus: "overridden_requests_total", OpenTelemetry: "overridden_requests", Unit: "{request}",
		Labels: []string{"effect"}, Help: "Requests that an override has denied, has freed from a rule, or has given another rate."},
	Overrides: {Prometheus: "overrides", OpenTelemetry: "overrides", Kind: Level, Unit: "{override}", Labels: []string{"effect"},
		Help: "Overrides that have not ended."},
	ReloadSuccessful: {Prometheus: "config_last_reload_successful", OpenTelemetry: "config.last_reload_successful", Kind: Gauge, Unit: "1",
		Help: "Whether the file was right when it was read last; 0 also if no file was applied yet.", Watched: true},
	ReloadTime: {Prometheus: "config_last_reload_success_timestamp_seconds", OpenTelemetry: "config.last_reload_success_time", Kind: Gauge,
		Unit: "s", Help: "When a file was applied last, as Unix time.", Watched: true},
	Reloads: {Prometheus: "config_reloads_total", OpenTelemetry: "config.reloads", Unit: "{reload}", Labels: []string{"result"},
		Help: "How often a file was applied, or refused.", Watched: true},
}

// The names and the help text of the histogram of decision times, which prommetrics and otelmetrics export.
const (
	DurationName     = "decision_duration_seconds" // in Prometheus, without the prefix "ratelimit_"
	DurationOtelName = "decision.duration"         // in OpenTelemetry, without the prefix "rate_limiting."
	DurationHelp     = "How long decisions took, by what has decided."
)

// DurationBuckets lists the upper bounds of the histogram, in seconds. A decision in memory takes less than a microsecond,
// and a decision of a store about one round trip over the network.
var DurationBuckets = []float64{1e-6, 5e-6, 25e-6, 100e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3}
