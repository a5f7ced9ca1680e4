package ruleconfig

import (
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// An Algorithm is what the fields of a rule's config depend on. The zero Algorithm is none.
type Algorithm struct {
	Name     string // as it is written in rules
	Windowed bool   // counts in windows, and has no burst
	Leaks    bool   // may have leakRatePerSecond
	Custom   bool   // is not one of the five; its algoConfig is Caller.Build's
}

// builtin are the algorithms that are not custom.
var builtin = []Algorithm{
	{Name: "FixedWindow", Windowed: true},
	{Name: "LeakyBucket", Leaks: true},
	{Name: "SlidingWindowCounter", Windowed: true},
	{Name: "SlidingWindowLog", Windowed: true},
	{Name: "TokenBucket"},
}

// otherNames are further names of the algorithms.
var otherNames = []struct{ name, means string }{
	{"FixedWindowCounter", "FixedWindow"},
	{"SlidingLog", "SlidingWindowLog"},
	{"SlidingCounter", "SlidingWindowCounter"},
	{"GCRA", "TokenBucket"},
}

// Suffix is the end of further names: TokenBucketLimiter is TokenBucket.
const Suffix = "Limiter"

// Builtin returns the algorithm that is not custom and has this name, in any spelling that
// confmap.Fold makes equal.
func Builtin(name string) (a Algorithm, ok bool) {
	if len(name) > confmap.MaxName {
		return Algorithm{}, false
	}
	name = strings.TrimSuffix(confmap.Fold(name), confmap.Fold(Suffix))
	for _, other := range otherNames {
		if name == confmap.Fold(other.name) {
			name = confmap.Fold(other.means)
		}
	}
	for _, a := range builtin {
		if name == confmap.Fold(a.Name) {
			return a, true
		}
	}
	return Algorithm{}, false
}

// builtinNames returns the names of the algorithms that are not custom.
func builtinNames() (names []string) {
	for _, a := range builtin {
		names = append(names, a.Name)
	}
	return names
}

// algorithms returns the names of all algorithms, the custom ones last.
func (r *Reader) algorithms() []string { return append(builtinNames(), r.caller.CustomNames()...) }

// find returns the algorithm that has this name in some spelling.
func (r *Reader) find(name string) (Algorithm, bool) {
	if len(name) > confmap.MaxName {
		return Algorithm{}, false
	}
	if a, ok := Builtin(name); ok {
		return a, true
	}
	return r.caller.Custom(name)
}

// Algorithm reads the algorithm of the rule at n. It returns the zero Algorithm if the name is
// not known. If the name is nearly that of an algorithm that is not custom, it reports the
// spelling and returns that one, so that the algoConfig can be checked as well.
func (r *Reader) Algorithm(n *confmap.Node) Algorithm {
	const field = "algorithm"
	v, given := n.Get(field)
	name, isText := confmap.TextOf(v)
	switch {
	case !given && n.Misspelt(field):
		return Algorithm{}
	case !given && r.Implied != "":
		name = r.Implied
	case !given:
		r.Reject(n.Field(field), "missing", "must be one of "+confmap.List(r.algorithms()))
		return Algorithm{}
	case !isText:
		r.Reject(n.Field(field), confmap.Describe(v), "must be one of "+confmap.List(r.algorithms()))
		return Algorithm{}
	}
	a, known := r.find(name)
	if known {
		return a
	}
	a, reason := r.unknown(name)
	if p := policyIn(v); p != "" && n.Written(field) != field {
		a, reason = Algorithm{}, "unknown algorithm; did you mean onStoreError: "+confmap.Quote(p)+"?"
	}
	r.Reject(n.Field(field), confmap.Quote(name), reason)
	return a
}

// unknown returns the reason why an unknown name is refused, and the algorithm that was
// probably meant.
func (r *Reader) unknown(name string) (meant Algorithm, reason string) {
	names := r.algorithms()
	near := confmap.Nearest(name, names)
	if near == "" {
		return Algorithm{}, "unknown algorithm: must be one of " + confmap.List(names)
	}
	meant, _ = Builtin(near)
	return meant, "unknown algorithm; did you mean " + confmap.Quote(near) + "?"
}
