package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Subject is a limiter that is measured, or something to compare it with. All subjects are called
// through this interface, so that the call costs the same for each.
type Subject interface {
	// Allow requests one unit for the key and reports whether it is granted.
	Allow(key string) bool
}

// An Outcome says whether the calls of a workload are allowed, denied or both.
type Outcome string

// The outcomes of workloads.
const (
	Allowed Outcome = "allowed" // every call is allowed
	Denied  Outcome = "denied"  // every call is denied; if windows end during the run, most calls are denied
	Mixed   Outcome = "mixed"   // some calls are allowed and some denied
)

// A Workload describes the calls to a subject.
type Workload struct {
	Keys     int           // number of different keys; each call chooses a key at random
	Names    Names         // the length of the text of a key: Varied, Even or Long
	Outcome  Outcome       // whether the calls are allowed, denied or both
	Parallel bool          // true: all cores make calls at once; false: one core makes calls
	Window   time.Duration // the length of windows that end during the run; 0 if no window ends
	Even     bool          // whether the time for one unit is a whole number of nanoseconds, as with 100/s
}

// String returns the workload as text, as it appears in the name of a benchmark.
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

// Count formats a number of keys in a short form: 1, 100k, 10M.
func Count(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 1000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}

// A Kind is a group of subjects. The subjects of one Kind can be compared with each other.
type Kind int

// The kinds of subjects.
const (
	Reference Kind = iota // does the basic work of a limiter, and decides nothing
	Ours                  // a limiter of this module
	Peer                  // a limiter of another module, with keys
	Unkeyed               // a limiter of another module, without keys; the report shows it, but does not compare it
	Rules                 // a limiter of this module with many rules (a RateLimiter)

	// The kinds below serve one request at a time, and all requests are allowed.

	HTTP       // a handler, with a middleware of this module or none
	PeerHTTP   // a handler with a middleware of another module
	Server     // an HTTP server on this machine, with a middleware of this module or none
	PeerServer // an HTTP server on this machine, with a middleware of another module
	Extras     // a RateLimiter of this module with reservations, IDs or a warm-up
	GRPC       // a gRPC handler, with an interceptor of this module or an empty one
)

// A Spec describes a subject and how to make it.
type Spec struct {
	Name  string                         // what follows "algo=" in the name of a benchmark
	Kind  Kind                           // the group of the subject, which decides what the subject can be compared with
	Limit func(Workload) Limit           // returns the subject's configuration for a workload
	New   func(l Limit) (Subject, error) // returns a new subject that holds no keys
}

// Specs returns all subjects, in the order of the report.
func Specs() []Spec {
	return slices.Concat(limiterSpecs(), ruleSpecs(), peerSpecs(), middlewareSpecs())
}

// limiterSpecs returns the limiters of this module, and the subjects of the kind Reference, which
// do only basic work.
func limiterSpecs() []Spec {
	return []Spec{
		{"floor", Reference, bucketLimit, newFloor},
		{"map", Reference, bucketLimit, newBareMap},

		{"tokenbucket", Ours, bucketLimit, newTokenBucket},
		{"fixedwindow", Ours, windowLimit, newFixedWindow},
		{"fixedwindow-calendar", Ours, windowLimit, newFixedWindowOf(calendarWindow)},
		{"fixedwindow-first", Ours, windowLimit, newFixedWindowOf(firstWindow)},
		{"slidingwindowlog", Ours, logLimit, newSlidingWindowLog},
		{"slidingwindowcounter", Ours, windowLimit, newSlidingWindowCounter},
		{"leakybucket", Ours, bucketLimit, newLeakyBucket},
		{"tokenbucket-take-5", Ours, bucketLimit, newTaker},
	}
}

// ruleSpecs returns the subjects with a RateLimiter.
func ruleSpecs() []Spec {
	return []Spec{
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
		{"rules-fixedwindow", Rules, windowLimit, newFixedWindowRules("")},
		{"rules-fixedwindow-calendar", Rules, windowLimit, newFixedWindowRules(calendarWindow)},
		{"rules-fixedwindow-first", Rules, windowLimit, newFixedWindowRules(firstWindow)},
		{"rules-dead-store", Rules, bucketLimit, newRules(ratelimit.KeyUser, ratelimit.WithStore(dead{}), ratelimit.WithName("test"))},

		{"rules-reserved", Extras, bucketLimit, newReserved},
		{"rules-replayed", Extras, bucketLimit, newReplayed},
		{"rules-grown", Extras, bucketLimit, newWarm(time.Microsecond)},
		{"rules-young", Extras, bucketLimit, newWarm(366 * 24 * time.Hour)},
	}
}

// peerSpecs returns the limiters of other modules.
func peerSpecs() []Spec {
	return []Spec{
		{"xtime", Peer, bucketLimit, newXTime},
		{"sethvargo", Peer, windowLimit, newSethvargo},
		{"throttled", Peer, bucketLimit, newThrottled},
		{"ulule", Peer, windowLimit, newUlule},
		{"httprate", Peer, windowLimit, newHTTPRate},
		{"uber", Unkeyed, bucketLimit, newUber},
	}
}

// middlewareSpecs returns the middlewares of this module and of other modules.
func middlewareSpecs() []Spec {
	return []Spec{
		{"http-bare", HTTP, bucketLimit, newServed(bareHandler)},
		{"http-bare-mux", HTTP, bucketLimit, newServed(bareMux)},
		{"httplimit", HTTP, bucketLimit, newServed(limitHandler)},
		{"httplimit-mux", HTTP, bucketLimit, newServed(limitMux)},
		{"http-httprate", PeerHTTP, windowLimit, newServed(httprateHandler)},
		{"http-ulule", PeerHTTP, windowLimit, newServed(ululeHandler)},
		{"http-tollbooth", PeerHTTP, bucketLimit, newServed(tollboothHandler)},
		{"http-throttled", PeerHTTP, bucketLimit, newServed(throttledHandler)},
		{"http-sethvargo", PeerHTTP, windowLimit, newServed(sethvargoHandler)},

		{"server-bare", Server, bucketLimit, newServer(bareHandler)},
		{"server-httplimit", Server, bucketLimit, newServer(limitHandler)},
		{"server-throttled", PeerServer, bucketLimit, newServer(throttledHandler)},

		{"grpc-bare", GRPC, bucketLimit, newCalled(bareInterceptor)},
		{"grpclimit", GRPC, bucketLimit, newCalled(limitInterceptor)},
	}
}

// Can reports whether the subject can run the workload w.
func (s Spec) Can(w Workload) bool {
	switch {
	case w.Window > 0:
		return w.Keys == 1 && !w.Parallel && s.turns(w)
	case w.Outcome == Mixed && (w.Keys > 1 || w.Parallel):
		return false // the limit of such a workload suits only one key and one core
	case w.Outcome == Mixed && strings.HasSuffix(s.Name, "-calendar"):
		return false // such a workload needs windows of a millisecond, and a calendar has windows of a month
	case s.Kind == Unkeyed:
		return w.Keys == 1 && w.Outcome == Allowed
	case s.Kind >= HTTP:
		return w.Keys == 1 && w.Outcome == Allowed && !w.Parallel // such a subject serves one request at a time
	case s.Kind == Rules:
		return w.Keys == 1 && !w.Parallel // some of these subjects have only one key, or count without a lock
	case s.Name == "map":
		return !w.Parallel // the subject has no lock
	}
	return true
}

// turns reports whether the subject can run w, a workload whose windows end during the run.
// Limiters of other modules cannot run it, because their windows begin at other instants than the
// windows of this module.
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

// Find returns the Spec with the given name.
func Find(name string) (Spec, error) {
	for _, s := range Specs() {
		if s.Name == name {
			return s, nil
		}
	}
	return Spec{}, fmt.Errorf("bench: no subject is named %q", name)
}
