// Package exporters compares what prommetrics and otelmetrics export of a limiter, and writes the
// tables of counters in docs/observing.md and docs/metrics.md. It also checks what the spans of servers say of
// decisions. It has only tests.
package exporters

//go:generate env RATELIMIT_WRITE=1 go test -count=1 -run ^TestTables$ .
