package bench

import (
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Subject decides about one unit for a key. Every limiter is asked through
// this interface, so that the call costs each of them the same.
type Subject interface {
	// Allow reports whether one unit for key is granted.
	Allow(key string) bool
}

// An Outcome is what every ask of a workload is answered with.
type Outcome string

// The two outcomes.
const (
	Allowed Outcome = "allowed"
	Denied  Outcome = "denied"
)

// A Workload says what a subject is asked.
type Workload struct {
	Keys     int     // how many different keys, drawn uniformly
	Outcome  Outcome // what each ask is answered with
	Parallel bool    // asked by all cores at once, or by one
}

// String returns the workload as it is written in the name of a benchmark.
func (w Workload) String() string {
	cpus := "1"
	if w.Parallel {
		cpus = "all"
	}
	return fmt.Sprintf("keys=%s/outcome=%s/cpus=%s", Count(w.Keys), w.Outcome, cpus)
}

// Count writes a number of keys in short: 1, 100k, 10M.
func Count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}

// A Limit is what a subject is configured with. Each field is read by the
// subjects that have such a thing.
type Limit struct {
	Rate    int           // units per Per: of a bucket its refill, of a window its limit
	Per     time.Duration // what Rate counts in
	Burst   int           // units at once, of a bucket
	MaxKeys int           // the most keys that a limiter of this module may hold
}

// forever is longer than a run, and short enough for every subject's arithmetic.
const forever = 30 * 24 * time.Hour

// defaultRoom is how many keys a limiter of this module may hold unless it is
// told otherwise. A workload with more keys tells it.
const defaultRoom = 1 << 20

func room(w Workload) int { return max(w.Keys, defaultRoom) }

// plenty is a quota that lasts twenty seconds and more of asks for one key
// without a pause.
const plenty = 1 << 30

// bucketLimit and windowLimit return what makes every ask of w, after the
// first of each key, have the outcome of w.
//
// Allowed: a quota of 2^30 that goes down by one with each ask. A bucket is
// then neither full nor empty and earns a part of a unit between two asks,
// which is its usual and longest way. A subject that denies all the same ends
// the run with an error.
//
// Denied: one unit in thirty days.
func bucketLimit(w Workload) Limit {
	if w.Outcome == Denied {
		return Limit{Rate: 1, Per: forever, Burst: 1, MaxKeys: room(w)}
	}
	return Limit{Rate: 1, Per: time.Second, Burst: plenty, MaxKeys: room(w)}
}

func windowLimit(w Workload) Limit {
	if w.Outcome == Denied {
		return Limit{Rate: 1, Per: forever, MaxKeys: room(w)}
	}
	return Limit{Rate: plenty, Per: forever, MaxKeys: room(w)}
}

// logLimit is windowLimit for a sliding window log, which remembers each unit
// and therefore can not have a quota that outlasts the run. One thousand in ten
// microseconds is more than can be asked: allowed for ever. Under one hot key
// the log holds a hundred entries or more, and each ask drops an old one and
// adds a new one; under many keys it holds one or two.
func logLimit(w Workload) Limit {
	if w.Outcome == Denied {
		return windowLimit(w)
	}
	return Limit{Rate: 1000, Per: 10 * time.Microsecond, MaxKeys: room(w)}
}

// A Kind says what a subject is there for.
type Kind int

// The kinds of subjects.
const (
	Reference Kind = iota // decides nothing: what the parts cost
	Ours                  // a limiter of this module
	Peer                  // another module's limiter, with keys
	Unkeyed               // another module's limiter, without keys: shown, not compared
	Rules                 // a RateLimiter of this module
)

// A Spec names a subject and makes it.
type Spec struct {
	Name  string                         // the algo= of a benchmark
	Kind  Kind                           // what it is there for
	Limit func(Workload) Limit           // what it is configured with
	New   func(l Limit) (Subject, error) // makes it, without keys
}

// Specs returns all the subjects, in the order in which they are shown.
func Specs() []Spec {
	return []Spec{
		{"floor", Reference, bucketLimit, newFloor},
		{"map", Reference, bucketLimit, newBareMap},

		{"tokenbucket", Ours, bucketLimit, newTokenBucket},
		{"fixedwindow", Ours, windowLimit, newFixedWindow},
		{"slidingwindowlog", Ours, logLimit, newSlidingWindowLog},
		{"slidingwindowcounter", Ours, windowLimit, newSlidingWindowCounter},
		{"leakybucket", Ours, bucketLimit, newLeakyBucket},

		{"rules-user", Rules, bucketLimit, newRules(ratelimit.KeyUser)},
		{"rules-endpoint", Rules, bucketLimit, newRules(ratelimit.KeyEndpoint)},
		{"rules-user-endpoint", Rules, bucketLimit, newRules(ratelimit.KeyUserEndpoint)},
		{"rules-ip", Rules, bucketLimit, newRules(ratelimit.KeyIP)},
		{"rules-global", Rules, bucketLimit, newRules(ratelimit.KeyGlobal)},
		{"rules-two", Rules, bucketLimit, newTwoRules},
		{"rules-tiers", Rules, bucketLimit, newTiered},
		{"rules-stats", Rules, bucketLimit, newCounted},
		{"rules-dead-store", Rules, bucketLimit, newRules(ratelimit.KeyUser, ratelimit.WithStore(dead{}))},

		{"xtime", Peer, bucketLimit, newXTime},
		{"sethvargo", Peer, windowLimit, newSethvargo},
		{"throttled", Peer, bucketLimit, newThrottled},
		{"ulule", Peer, windowLimit, newUlule},
		{"httprate", Peer, windowLimit, newHTTPRate},
		{"uber", Unkeyed, bucketLimit, newUber},
	}
}

// Can reports whether the subject is able to do w at all.
func (s Spec) Can(w Workload) bool {
	switch {
	case s.Kind == Unkeyed:
		return w.Keys == 1 && w.Outcome == Allowed
	case s.Kind == Rules:
		return w.Keys == 1 && !w.Parallel // some have one key, and one counts
	case s.Name == "map":
		return !w.Parallel // it has no lock
	}
	return true
}

// Find returns the Spec of that name.
func Find(name string) (Spec, error) {
	for _, s := range Specs() {
		if s.Name == name {
			return s, nil
		}
	}
	return Spec{}, fmt.Errorf("bench: no subject is named %q", name)
}
