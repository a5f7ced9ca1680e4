package ruleconfig

import "github.com/ratelimit-go/ratelimit/internal/confmap"

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

// otherNames are further names of the algorithms, as Fold makes them.
var otherNames = map[string]string{
	"fixedwindowcounter": "FixedWindow",
	"slidinglog":         "SlidingWindowLog",
	"slidingcounter":     "SlidingWindowCounter",
}

// Builtin returns the algorithm that is not custom and has this name, in any spelling that
// confmap.Fold makes equal.
func Builtin(name string) (a Algorithm, ok bool) {
	if len(name) > confmap.MaxName {
		return Algorithm{}, false
	}
	name = confmap.Fold(name)
	for _, a := range builtin {
		if name == confmap.Fold(a.Name) || a.Name == otherNames[name] {
			return a, true
		}
	}
	return Algorithm{}, false
}

// algorithms returns the names of all algorithms, the custom ones last.
func (r *Reader) algorithms() (names []string) {
	for _, a := range builtin {
		names = append(names, a.Name)
	}
	return append(names, r.caller.CustomNames()...)
}

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
	name, ok := r.algorithmName(n)
	if !ok {
		return Algorithm{}
	}
	if a, known := r.find(name); known {
		return a
	}
	names := r.algorithms()
	near := confmap.Nearest(name, names)
	if near == "" {
		r.Reject(n.Field("algorithm"), confmap.Quote(name), "unknown algorithm: must be one of "+list(names))
		return Algorithm{}
	}
	r.Reject(n.Field("algorithm"), confmap.Quote(name), "unknown algorithm; did you mean "+confmap.Quote(near)+"?")
	a, _ := Builtin(near)
	return a
}

// algorithmName reads the name of the algorithm of the rule at n. It reports a name that is
// missing or no string, and then ok is false.
func (r *Reader) algorithmName(n *confmap.Node) (name string, ok bool) {
	const field = "algorithm"
	v, given := n.Get(field)
	if !given {
		if !n.Misspelt(field) {
			r.Reject(n.Field(field), "missing", "must be one of "+list(r.algorithms()))
		}
		return "", false
	}
	if name, ok = confmap.TextOf(v); !ok {
		r.Reject(n.Field(field), confmap.Describe(v), "must be one of "+list(r.algorithms()))
	}
	return name, ok
}
