package ruleconfig

import (
	"slices"
	"strings"
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Registry holds the custom algorithms that configs may name. B is the type of the function that
// builds a limiter of such an algorithm. The zero Registry is empty. A nil Registry is empty too, but
// Add must not be called on it. A Registry is safe for concurrent use by multiple goroutines.
type Registry[B any] struct {
	mu    sync.RWMutex
	named map[string]registered[B] // the custom algorithms, by their names in the form of confmap.Fold; guarded by mu
}

// A registered is a custom algorithm and the function that builds its limiters.
type registered[B any] struct {
	name  string
	build B
}

// Add adds a custom algorithm. If an algorithm in the Registry or in notCustom already has this name,
// in any spelling, Add changes nothing. It then returns the name of that algorithm, and taken is true.
func (r *Registry[B]) Add(name string, build B, notCustom []Algorithm) (other string, taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, taken := Find(notCustom, name); taken {
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

// find returns the custom algorithm that has this name, in upper or lower case, with or without "_"
// and "-".
func (r *Registry[B]) find(name string) (found registered[B], ok bool) {
	if r == nil {
		return found, false
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	found, ok = r.named[confmap.Fold(name)]
	return found, ok
}

// Algorithm returns the custom algorithm that has this name, in upper or lower case, with or without "_"
// and "-". It can be used as the field Custom of a [Caller].
func (r *Registry[B]) Algorithm(name string) (a Algorithm, ok bool) {
	found, ok := r.find(name)
	return Algorithm{Name: found.name, Custom: ok}, ok
}

// Build returns the function that builds a limiter of the custom algorithm with this name.
func (r *Registry[B]) Build(name string) B {
	found, _ := r.find(name)
	return found.build
}

// Names returns the names of the custom algorithms, sorted.
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
