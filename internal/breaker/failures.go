package breaker

import (
	"cmp"
	"errors"
	"slices"
	"sync"
)

// A Failure says how many calls of one part of a store have failed with errors of one class. The root package has a struct
// with the same fields.
type Failure struct {
	Part  int    // number of the part
	Class string // class of the errors
	Calls uint64 // how many calls have failed
}

const (
	// maxClasses is how many classes of errors are counted by their own name. Errors of further classes count as otherClass.
	maxClasses = 32

	// maxClass is the largest number of bytes in the name of a class.
	maxClass = 32

	otherClass = "other" // the class of errors without a class
	panicClass = "panic" // the class of calls that have panicked
)

// failures counts failed calls, by the part of the store and the class of the error.
type failures struct {
	mu      sync.Mutex
	counts  map[Failure]uint64  // how many calls have failed, by Part and Class (Calls is 0 in each Failure here); guarded by mu
	classes map[string]struct{} // the classes in counts; guarded by mu
}

// add counts a call that has failed in each of these parts with an error of this class.
func (f *failures) add(parts uint64, class string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts, f.classes = make(map[Failure]uint64), make(map[string]struct{})
	}
	if _, known := f.classes[class]; !known && len(f.classes) >= maxClasses {
		class = otherClass
	}
	f.classes[class] = struct{}{}
	for part := range each(parts) {
		f.counts[Failure{Part: part, Class: class}]++
	}
}

// list returns the counts, ordered by part and class.
func (f *failures) list() (all []Failure) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for failure, calls := range f.counts {
		failure.Calls = calls
		all = append(all, failure)
	}
	slices.SortFunc(all, func(a, b Failure) int { return cmp.Or(cmp.Compare(a.Part, b.Part), cmp.Compare(a.Class, b.Class)) })
	return all
}

// classOf returns the class of an error of the store, as its method ErrorClass says. A name that metrics should not show, because
// it is long or has other characters than lower-case letters, digits and "_", is replaced by "other".
func classOf(err error) string {
	var classed interface{ ErrorClass() string }
	if !errors.As(err, &classed) {
		return otherClass
	}
	class := classed.ErrorClass()
	if class == "" || len(class) > maxClass {
		return otherClass
	}
	for _, c := range []byte(class) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return otherClass
		}
	}
	return class
}

// failing returns the parts of the Pass p that an error of the store concerns. These are the parts of p that the error blames,
// see the function Blamed. If it blames no part of p, failing returns all parts of p.
func (p Pass) failing(err error) (parts uint64) {
	if blamed := Blamed(err) & p.parts; blamed != 0 {
		return blamed
	}
	return p.parts
}
