package verify

import (
	"flag"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// fullChecks is how many random schedules of each kind a plain run makes for each
// algorithm. stepsEach is how many calls each of them has.
const (
	fullChecks = 2000
	raceChecks = 200
	stepsEach  = 60
)

// TestMain sets the defaults of rapid's flags, unless they were given, and fails if a
// goroutine is left at the end.
func TestMain(m *testing.M) {
	flag.Parse()
	checks := fullChecks
	if raceEnabled {
		checks = raceChecks
	}
	unlessGiven("rapid.checks", strconv.Itoa(checks))
	unlessGiven("rapid.seed", "1")
	goleak.VerifyTestMain(m)
}

// unlessGiven sets a flag that is not on the command line.
func unlessGiven(name, value string) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	if err := flag.Set(name, value); err != nil {
		panic(err)
	}
}

// scaled returns n, or less under the race detector and with -short.
func scaled(n int) int {
	switch {
	case testing.Short():
		return max(n/10, 1)
	case raceEnabled:
		return max(n/5, 1)
	}
	return n
}

// oneGoroutine skips a long test under the race detector, which has nothing to find where only one goroutine runs.
func oneGoroutine(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine has no races")
	}
}

// wantChecks is how many schedules rapid must have run by now for a property to count as
// checked.
func wantChecks() int {
	n, err := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	if err != nil {
		panic(err)
	}
	if testing.Short() {
		n /= 5 // rapid does the same
	}
	return n
}
