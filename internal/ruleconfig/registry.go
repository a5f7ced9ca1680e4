package ruleconfig

import (
	"slices"
	"strings"
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Registry has the custom algorithms that configs may name. B is what makes a limiter of one.
// The zero Registry is empty, and so is a nil one, which must not be added to. It is safe for
// concurrent use by multiple goroutines.
type Registry[B any] struct {
	mu    sync.RWMutex
	named map[string]registered[B] // by folded name
}

// A registered is a custom algorithm.
type registered[B any] struct {
	name  string
	build B
}

// Add adds a custom algorithm. If there is one with this name in some spelling, or one that is
// not custom, Add changes nothing and returns the name of that one.
func (r *Registry[B]) Add(name string, build B) (other string, taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, taken := Builtin(name); taken {
		return known.Name, true
	}
	folded := confmap.Fold(name)
	if known, taken := r.named[folded]; taken {
		return known.name, true
	}
	if r.named == nil {
		r.named = make(map[string]registered[B])
	}
	r.named[folded] = registered[B]{strings.Clone(name), build}
	return "", false
}

// find returns the custom algorithm that has this name in some spelling.
func (r *Registry[B]) find(name string) (found registered[B], ok bool) {
	if r == nil {
		return found, false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	found, ok = r.named[confmap.Fold(name)]
	return found, ok
}

// Algorithm is Caller.Custom.
func (r *Registry[B]) Algorithm(name string) (a Algorithm, ok bool) {
	found, ok := r.find(name)
	return Algorithm{Name: found.name, Custom: ok}, ok
}

// Build returns what makes a limiter of the algorithm with this name.
func (r *Registry[B]) Build(name string) B {
	found, _ := r.find(name)
	return found.build
}

// Names returns the names of the algorithms, sorted.
func (r *Registry[B]) Names() (names []string) {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, known := range r.named {
		names = append(names, known.name)
	}
	slices.Sort(names)
	return names
}
