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

// An Outcome is what the asks of a workload are answered with.
type Outcome string

// The outcomes.
const (
	Allowed Outcome = "allowed" // every ask
	Denied  Outcome = "denied"  // every ask; in windows that turn, most of them
	Mixed   Outcome = "mixed"   // some are allowed, some denied, in turns
)

// A Workload says what a subject is asked.
type Workload struct {
	Keys     int           // how many different keys, drawn uniformly
	Names    Names         // what the keys look like
	Outcome  Outcome       // what the asks are answered with
	Parallel bool          // asked by all cores at once, or by one
	Window   time.Duration // the length of windows that turn; 0 if none does
	Even     bool          // whether a unit takes a whole number of nanoseconds, as of 100/s
}

// String returns the workload as it is written in the name of a benchmark.
func (w Workload) String() string {
	cpus := "1"
	if w.Parallel {
		cpus = "all"
	}
	text := fmt.Sprintf("keys=%s/outcome=%s/cpus=%s", Count(w.Keys), w.Outcome, cpus)
	if w.Names != Varied {
		text += "/names=" + w.Names.String()
	}
	if w.Window > 0 {
		text += "/window=" + w.Window.String()
	}
	if w.Even {
		text += "/rate=even"
	}
	return text
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

// A Kind says what a subject is there for.
type Kind int

// The kinds of subjects.
const (
	Reference Kind = iota // decides nothing: what the parts cost
	Ours                  // a limiter of this module
	Peer                  // another module's limiter, with keys
	Unkeyed               // another module's limiter, without keys: shown, not compared
	Rules                 // a RateLimiter of this module
	HTTP                  // a handler, behind a middleware of this module or none
	PeerHTTP              // a handler behind another module's middleware
	Extras                // a RateLimiter of this module, and what may come with a decision
	GRPC                  // a handler of gRPC, behind an interceptor of this module or a bare one
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
		{"tokenbucket-take-5", Ours, bucketLimit, newTaker},

		{"rules-user", Rules, bucketLimit, newRules(ratelimit.KeyUser)},
		{"rules-endpoint", Rules, bucketLimit, newRules(ratelimit.KeyEndpoint)},
		{"rules-user-endpoint", Rules, bucketLimit, newRules(ratelimit.KeyUserEndpoint)},
		{"rules-ip", Rules, bucketLimit, newRules(ratelimit.KeyIP)},
		{"rules-global", Rules, bucketLimit, newRules(ratelimit.KeyGlobal)},
		{"rules-two", Rules, bucketLimit, newTwoRules},
		{"rules-check-user", Rules, bucketLimit, newChecked(ratelimit.KeyUser)},
		{"rules-check-endpoint", Rules, bucketLimit, newChecked(ratelimit.KeyEndpoint)},
		{"rules-check-user-endpoint", Rules, bucketLimit, newChecked(ratelimit.KeyUserEndpoint)},
		{"rules-check-ip", Rules, bucketLimit, newChecked(ratelimit.KeyIP)},
		{"rules-check-global", Rules, bucketLimit, newChecked(ratelimit.KeyGlobal)},
		{"rules-check-two", Rules, bucketLimit, newCheckedTwoRules},
		{"rules-every-endpoint", Rules, bucketLimit, newEveryEndpoint},
		{"rules-tiers", Rules, bucketLimit, newTiered},
		{"rules-observer", Rules, bucketLimit, newObserved},
		{"rules-shadow", Rules, bucketLimit, newShadowed},
		{"rules-stats", Rules, bucketLimit, newCounted},
		{"rules-dead-store", Rules, bucketLimit, newRules(ratelimit.KeyUser, ratelimit.WithStore(dead{}), ratelimit.WithName("test"))},

		{"rules-reserved", Extras, bucketLimit, newReserved},
		{"rules-replayed", Extras, bucketLimit, newReplayed},
		{"rules-grown", Extras, bucketLimit, newWarm(time.Microsecond)},
		{"rules-young", Extras, bucketLimit, newWarm(366 * 24 * time.Hour)},

		{"xtime", Peer, bucketLimit, newXTime},
		{"sethvargo", Peer, windowLimit, newSethvargo},
		{"throttled", Peer, bucketLimit, newThrottled},
		{"ulule", Peer, windowLimit, newUlule},
		{"httprate", Peer, windowLimit, newHTTPRate},
		{"uber", Unkeyed, bucketLimit, newUber},

		{"http-bare", HTTP, bucketLimit, newServed(bareHandler)},
		{"http-bare-mux", HTTP, bucketLimit, newServed(bareMux)},
		{"httplimit", HTTP, bucketLimit, newServed(limitHandler)},
		{"httplimit-mux", HTTP, bucketLimit, newServed(limitMux)},
		{"http-httprate", PeerHTTP, windowLimit, newServed(httprateHandler)},
		{"http-ulule", PeerHTTP, windowLimit, newServed(ululeHandler)},
		{"http-tollbooth", PeerHTTP, bucketLimit, newServed(tollboothHandler)},
		{"http-throttled", PeerHTTP, bucketLimit, newServed(throttledHandler)},
		{"http-sethvargo", PeerHTTP, windowLimit, newServed(sethvargoHandler)},

		{"grpc-bare", GRPC, bucketLimit, newCalled(bareInterceptor)},
		{"grpclimit", GRPC, bucketLimit, newCalled(limitInterceptor)},
	}
}

// Can reports whether the subject is able to do w at all.
func (s Spec) Can(w Workload) bool {
	switch {
	case w.Window > 0:
		return w.Keys == 1 && !w.Parallel && s.turns(w)
	case w.Outcome == Mixed && (w.Keys > 1 || w.Parallel):
		return false // the rate is one for a single key, asked by one core
	case s.Kind == Unkeyed:
		return w.Keys == 1 && w.Outcome == Allowed
	case s.Kind == HTTP || s.Kind == PeerHTTP || s.Kind == GRPC || s.Kind == Extras:
		return w.Keys == 1 && w.Outcome == Allowed && !w.Parallel // it serves one request at a time
	case s.Kind == Rules:
		return w.Keys == 1 && !w.Parallel // some have one key, and one counts
	case s.Name == "map":
		return !w.Parallel // it has no lock
	}
	return true
}

// turns reports whether the subject can be asked in windows that turn. Peers have
// windows too, but none that begin where this module's do.
func (s Spec) turns(w Workload) bool {
	switch s.Name {
	case "floor":
		return true
	case "fixedwindow", "slidingwindowcounter":
		return w.Outcome != Mixed
	case "slidingwindowlog":
		return w.Outcome == Denied || w.Outcome == Allowed && w.Window <= longestLog
	}
	return false
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
