package ruleconfig

import (
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// An Algorithm describes the algorithm of a rule: its name, and what its config may have. The zero
// Algorithm means that a rule has none.
type Algorithm struct {
	Name     string // name of the algorithm, as it is written in rules
	Windowed bool   // whether the algorithm counts in windows, and has no burst
	Leaks    bool   // whether the config of the algorithm may have the field leakRatePerSecond
	Custom   bool   // whether the user has registered the algorithm; false for an algorithm of the library
}

// otherNames are further names under which configs may ask for an algorithm of the library.
var otherNames = []struct{ name, means string }{
	{"FixedWindowCounter", "FixedWindow"},
	{"SlidingLog", "SlidingWindowLog"},
	{"SlidingCounter", "SlidingWindowCounter"},
	{"GCRA", "TokenBucket"},
}

// Suffix is a text that may follow the name of an algorithm: TokenBucketLimiter means TokenBucket.
const Suffix = "Limiter"

// Find returns the element of algorithms that has this name. Upper and lower case, "_" and "-" make no
// difference (see confmap.Fold).
func Find(algorithms []Algorithm, name string) (a Algorithm, ok bool) {
	if len(name) > confmap.MaxName {
		return Algorithm{}, false
	}
	name = strings.TrimSuffix(confmap.Fold(name), confmap.Fold(Suffix))
	for _, other := range otherNames {
		if name == confmap.Fold(other.name) {
			name = confmap.Fold(other.means)
		}
	}
	for _, a := range algorithms {
		if name == confmap.Fold(a.Name) {
			return a, true
		}
	}
	return Algorithm{}, false
}

// NamesIn returns the names of algorithms, sorted.
func NamesIn(algorithms []Algorithm) (names []string) {
	for _, a := range algorithms {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names
}

// AllNames returns, for each of the algorithms, a list of all its names. The list begins with the name
// of the algorithm itself. The lists are sorted by that name. [Suffix] may follow each name.
func AllNames[A ~string](algorithms []A) (all [][]string) {
	for _, a := range slices.Sorted(slices.Values(algorithms)) {
		names := []string{string(a)}
		for _, other := range otherNames {
			if other.means == string(a) {
				names = append(names, other.name)
			}
		}
		all = append(all, names)
	}
	return all
}

// names returns the names of all algorithms, the custom ones last.
func (r *Reader) names() []string {
	return append(NamesIn(r.caller.Algorithms), r.caller.CustomNames()...)
}

// find returns the algorithm, custom or not, that has this name, in upper or lower case, with or without "_"
// and "-".
func (r *Reader) find(name string) (Algorithm, bool) {
	if len(name) > confmap.MaxName {
		return Algorithm{}, false
	}
	if a, ok := Find(r.caller.Algorithms, name); ok {
		return a, true
	}
	return r.caller.Custom(name)
}

// Algorithm reads the algorithm of the rule with the config n. It reports an unknown name. If the unknown name
// is nearly the name of an algorithm that is not custom, it returns that algorithm, so that the algoConfig can
// be checked as well. For any other unknown name, it returns the zero Algorithm.
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
		r.Reject(n.Field(field), "missing", "must be one of "+confmap.List(r.names()))
		return Algorithm{}
	case !isText:
		r.Reject(n.Field(field), confmap.Describe(v), "must be one of "+confmap.List(r.names()))
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

// unknown handles a name that no algorithm has. It returns the algorithm that was probably meant by this
// name, and the reason for the error about the name.
func (r *Reader) unknown(name string) (meant Algorithm, reason string) {
	names := r.names()
	near := confmap.Nearest(name, names)
	if near == "" {
		return Algorithm{}, "unknown algorithm: must be one of " + confmap.List(names)
	}
	meant, _ = Find(r.caller.Algorithms, near)
	return meant, "unknown algorithm; did you mean " + confmap.Quote(near) + "?"
}
