package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Factory makes limiters of config maps, by the algorithms of this package and
// by those that are registered with it.
//
// It is safe for concurrent use by multiple goroutines. The zero Factory, and a
// nil one, know the algorithms of this package; nothing can be registered with a
// nil one.
type Factory struct {
	opts []Option

	mu         sync.RWMutex
	registered map[string]algorithmEntry // by plain name
}

// A BuildFunc makes a limiter of a custom algorithm. It may keep and change
// algoConfig, which is a copy: maps and lists are copied, all else is as it came.
type BuildFunc func(algoConfig map[string]any, env Env) (Limiter, error)

// An Env is what a limiter runs in.
type Env struct {
	// Clock is what the limiter reads. It is never nil.
	Clock Clock

	// MaxKeys is how many keys to keep state for, see [WithMaxKeys].
	MaxKeys int
}

// An algorithmEntry is what a Factory knows of an algorithm.
type algorithmEntry struct {
	algorithm Algorithm
	build     BuildFunc // nil for the algorithms of this package
}

// knownAlgorithms are the algorithms of this package by plain name, and what else
// they are called.
var knownAlgorithms = map[string]algorithmEntry{
	"tokenbucket":          {AlgorithmTokenBucket, nil},
	"fixedwindow":          {AlgorithmFixedWindow, nil},
	"fixedwindowcounter":   {AlgorithmFixedWindow, nil},
	"slidingwindowlog":     {AlgorithmSlidingWindowLog, nil},
	"slidinglog":           {AlgorithmSlidingWindowLog, nil},
	"slidingwindowcounter": {AlgorithmSlidingWindowCounter, nil},
	"slidingcounter":       {AlgorithmSlidingWindowCounter, nil},
	"leakybucket":          {AlgorithmLeakyBucket, nil},
}

// NewFactory returns a Factory whose limiters run in what opts say. What is wrong
// with opts is returned by each Create.
func NewFactory(opts ...Option) *Factory {
	return &Factory{opts: slices.Clone(opts)}
}

// Register makes an algorithm known to f. Its name is read as those of this
// package are: without regard to case, "_" and "-". A name that is taken is
// refused. Errors match [ErrInvalidConfig].
func (f *Factory) Register(algorithm string, build BuildFunc) error {
	name := plain(algorithm)
	switch {
	case f == nil:
		return &ConfigError{"factory", "nil", "must be made by NewFactory"}
	case name == "":
		return &ConfigError{"algorithm", quoted(algorithm), "must be a name"}
	case len(algorithm) > maxName:
		return &ConfigError{"algorithm", quoted(algorithm), fmt.Sprintf("must be at most %d bytes long", maxName)}
	case build == nil:
		return &ConfigError{"build", "nil", "must be a function that makes a limiter"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.findLocked(name); ok {
		return &ConfigError{"algorithm", quoted(algorithm), "must be another name: this one is that of " + quoted(string(e.algorithm))}
	}
	if f.registered == nil {
		f.registered = maps.Clone(knownAlgorithms)
	}
	f.registered[name] = algorithmEntry{Algorithm(strings.Clone(algorithm)), build}
	return nil
}

// Create makes a limiter of its own of the algorithm and the algoConfig in config.
// The fields of a rule that may stand beside them are ignored. With [WithStore],
// the limiter's name is that in config, or else that of [WithName]. All that is
// wrong is returned at once; errors match [ErrInvalidConfig].
func (f *Factory) Create(config map[string]any) (Limiter, error) {
	var opts []Option
	if f != nil {
		opts = f.opts
	}
	set, invalid := newSettings(opts)
	d := decoder{factory: f, env: set.env()}
	if config == nil {
		d.bad("config", "nil", "must be a map that has algorithm and algoConfig")
		return nil, errors.Join(d.err(), invalid)
	}
	n := &node{fields: config}
	d.unknown(n, ruleFields, rateFields, "it belongs in algoConfig")
	entry := d.algorithm(n)
	if set.store != nil {
		opts = append(slices.Clip(opts), d.storeOptions(n, entry, set.name)...)
	}
	child, ok := d.child(n, "algoConfig", algoConfigForm)
	if !ok || entry.algorithm == "" {
		return nil, errors.Join(d.err(), invalid)
	}
	if entry.build != nil {
		if invalid != nil {
			return nil, errors.Join(d.err(), invalid)
		}
		custom := d.custom(n, child, entry)
		if err := d.err(); err != nil {
			return nil, err
		}
		return custom.limiter, nil
	}
	r := d.rate(child, entry.algorithm)
	if err := errors.Join(d.err(), invalid); err != nil {
		return nil, err
	}
	return algorithms[entry.algorithm].limiter(r, opts...)
}

// storeOptions returns what a limiter in a store needs beside the options of the
// factory, whose own name is given.
func (d *decoder) storeOptions(n *node, entry algorithmEntry, given string) []Option {
	if entry.build != nil {
		d.bad(n.field("algorithm"), quoted(string(entry.algorithm)), "must be one of "+list(algorithmNames())+": the state is in a store")
	}
	name, ok := d.text(n, "name")
	switch {
	case !ok:
		return nil
	case name == "" && given == "":
		d.bad(n.field("name"), "missing", "must be given: it is a part of every key in the store")
		return nil
	case name == "":
		return nil
	case strings.Contains(name, ":"):
		d.bad(n.field("name"), quoted(name), `must not have a ":"`)
		return nil
	}
	return []Option{WithName(name)}
}

// find returns what f knows of the algorithm with a plain name.
func (f *Factory) find(name string) (algorithmEntry, bool) {
	if f != nil {
		f.mu.RLock()
		defer f.mu.RUnlock()
	}
	return f.findLocked(name)
}

// findLocked is find for a caller that holds f.mu.
func (f *Factory) findLocked(name string) (algorithmEntry, bool) {
	known := knownAlgorithms
	if f != nil && f.registered != nil {
		known = f.registered
	}
	e, ok := known[name]
	return e, ok
}

// names returns the names of the algorithms that f knows: those of this package,
// then those that are registered, both sorted.
func (f *Factory) names() []string {
	var names, registered []string
	for _, a := range algorithmNames() {
		names = append(names, string(a))
	}
	if f == nil {
		return names
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, e := range f.registered {
		if e.build != nil {
			registered = append(registered, string(e.algorithm))
		}
	}
	slices.Sort(registered)
	return append(names, registered...)
}

// env returns what a custom limiter runs in.
func (s *settings) env() Env {
	env := Env{s.clock, s.maxKeys}
	if env.Clock == nil {
		env.Clock = machineClock{}
	}
	return env
}

// A machineClock is the clock of the machine.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

// plain returns name without what its spellings differ in. It reads no more than a
// name may have; one that has more is to be refused.
func plain(name string) string {
	name = name[:min(len(name), maxName)]
	if !strings.ContainsFunc(name, func(r rune) bool { return r == '_' || r == '-' || 'A' <= r && r <= 'Z' }) {
		return name
	}
	var b strings.Builder
	b.Grow(len(name))
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_' || c == '-':
		case 'A' <= c && c <= 'Z':
			b.WriteByte(c + 'a' - 'A')
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
