//go:build race

package grpclimit_test

// raceEnabled reports whether the race detector is on, which makes a run about ten times as
// slow.
const raceEnabled = true
