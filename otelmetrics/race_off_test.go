//go:build !race

package otelmetrics_test

// raceEnabled reports whether the race detector is on. It makes a sync.Pool forget values, which are then allocated again.
const raceEnabled = false
