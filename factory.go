package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Factory makes limiters from config maps. It knows the five algorithms of this
// package by their names, such as "TokenBucket", and custom algorithms by the names
// under which [Factory.Register] added them. [Factory.Create] makes a limiter of a map;
// [WithFactory] lets the rules of a [RateLimiter] that is read from maps name the custom
// algorithms too.
//
// A Factory is safe for concurrent use by multiple goroutines. The zero Factory knows
// the algorithms of this package and has no options; so does a nil one, with which
// nothing can be registered.
type Factory struct {
	opts []Option

	mu         sync.RWMutex
	registered map[string]algorithmEntry // by folded name; nil if nothing is registered
}

// A BuildFunc makes a limiter of a custom algorithm. algoConfig is the map that says
// what the limit is, and env the clock and the number of keys that the limiter is to
// have.
//
// The BuildFunc may keep and change algoConfig: the map, and all maps and lists in it,
// are copies; other values are as they came. If it returns a [*ConfigError], or several
// joined, each is reported as a problem with that field of algoConfig; any other error
// is reported as the reason why algoConfig is refused. A panic is recovered and reported.
type BuildFunc func(algoConfig map[string]any, env Env) (Limiter, error)

// An Env is what a [BuildFunc] is given besides the config of the limiter: the clock and
// the number of keys that are set by the options of the [Factory] or, for a rule, by
// those of the [RateLimiter].
type Env struct {
	// Clock is the clock that the limiter reads. It is never nil.
	Clock Clock

	// MaxKeys is the largest number of keys that the limiter keeps state for,
	// see [WithMaxKeys].
	MaxKeys int
}

// An algorithmEntry is what a Factory knows of an algorithm.
type algorithmEntry struct {
	algorithm Algorithm
	build     BuildFunc // nil for the algorithms of this package
}

// knownAlgorithms are the algorithms of this package by folded name, some of which
// have two.
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

// NewFactory returns a Factory that gives each limiter it makes these options. Options
// that are invalid are reported by [Factory.Create].
func NewFactory(opts ...Option) *Factory {
	return &Factory{opts: slices.Clone(opts)}
}

// Register adds a custom algorithm to f: from now on, build makes the limiters of the
// configs that name it. Names are compared without regard to case, "_" and "-". An
// empty or long name, and one that f knows, is an error, which matches
// [ErrInvalidConfig].
func (f *Factory) Register(algorithm string, build BuildFunc) error {
	name := confmap.Fold(algorithm)
	switch {
	case f == nil:
		return &ConfigError{"factory", "nil", "must be made by NewFactory"}
	case name == "":
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be a name"}
	case len(algorithm) > confmap.MaxName:
		return &ConfigError{"algorithm", confmap.Quote(algorithm), fmt.Sprintf("must be at most %d bytes long", confmap.MaxName)}
	case build == nil:
		return &ConfigError{"build", "nil", "must be a function that makes a limiter"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if e, ok := f.findLocked(name); ok {
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be another name: this one is that of " + confmap.Quote(string(e.algorithm))}
	}
	if f.registered == nil {
		f.registered = maps.Clone(knownAlgorithms)
	}
	f.registered[name] = algorithmEntry{Algorithm(strings.Clone(algorithm)), build}
	return nil
}

// Create makes a limiter with state of its own. config has two fields: "algorithm", the
// name of an algorithm that f knows, and "algoConfig", a map that says what the limit
// is. The other fields of a rule's config are allowed, and ignored; any further field
// is an error.
//
// If f has the option [WithStore], the limiter needs a name: the field "name" or, if
// there is none, that of [WithName]. Its state is then shared with all limiters of that
// name in the store.
//
// The error lists all problems at once and matches [ErrInvalidConfig].
func (f *Factory) Create(config map[string]any) (Limiter, error) {
	var opts []Option
	if f != nil {
		opts = f.opts
	}
	set, invalid := newSettings(opts)
	d := newDecoder(f, set.env())
	n, ok := confmap.NodeOf("", config)
	if !ok {
		d.Reject("config", "nil", ruleForm)
		return nil, errors.Join(d.Err(), invalid)
	}
	d.Unknown(n, ruleFields, rateFields, "it belongs in algoConfig")
	entry := d.algorithm(n)
	if set.store != nil {
		opts = append(slices.Clip(opts), d.storeOptions(n, entry, set.name)...)
	}
	algoConfig, ok := d.Child(n, "algoConfig", algoConfigForm)
	if !ok || entry.algorithm == "" {
		return nil, errors.Join(d.Err(), invalid)
	}
	if entry.build != nil {
		if invalid != nil {
			return nil, errors.Join(d.Err(), invalid)
		}
		custom := d.custom(n, algoConfig, entry)
		if err := d.Err(); err != nil {
			return nil, err
		}
		return custom.limiter, nil
	}
	r := d.rate(algoConfig, entry.algorithm)
	if err := errors.Join(d.Err(), invalid); err != nil {
		return nil, err
	}
	return algorithms[entry.algorithm].limiter(r, opts...)
}

// storeOptions returns the options that a limiter in a store needs beside those of the
// factory, among which the name is given.
func (d *decoder) storeOptions(n *confmap.Node, entry algorithmEntry, given string) []Option {
	if entry.build != nil {
		d.Reject(n.Field("algorithm"), confmap.Quote(string(entry.algorithm)), "must be one of "+list(algorithmNames())+": the state is in a store")
	}
	name, ok := d.Text(n, "name")
	switch {
	case !ok:
		return nil
	case name == "" && given == "":
		d.Reject(n.Field("name"), "missing", "must be given: it is a part of every key in the store")
		return nil
	case name == "":
		return nil
	case strings.Contains(name, ":"):
		d.Reject(n.Field("name"), confmap.Quote(name), `must not have a ":"`)
		return nil
	}
	return []Option{WithName(name)}
}

// find returns what f knows of the algorithm with a folded name.
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

// env returns what a custom limiter is made with.
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

// maxCause is how much an error shows of what a BuildFunc says, in bytes.
const maxCause = 500

// custom makes the limiter of the rule at n, whose algorithm is a custom one, from its
// algoConfig. It returns nil if there is a problem, which is reported.
func (d *decoder) custom(n, algoConfig *confmap.Node, entry algorithmEntry) *customLimiter {
	kept, ok := d.Copy(algoConfig) // to be compared with that of a later reload
	if !ok {
		return nil
	}
	handed, ok := d.Copy(algoConfig) // which the BuildFunc may change
	if !ok {
		return nil
	}
	l, misdeed, err := d.build(entry, handed)
	switch {
	case misdeed != "":
		d.Report(&buildError{&ConfigError{n.Field("algorithm"), confmap.Quote(string(entry.algorithm)), "its BuildFunc " + misdeed}, err})
		return nil
	case err != nil:
		d.reportBuild(algoConfig, entry, err)
		return nil
	}
	return &customLimiter{kept, l}
}

// build calls the BuildFunc of entry. If that does what a BuildFunc must not do,
// misdeed says what it was; err is then the error that it panicked with, if any.
func (d *decoder) build(entry algorithmEntry, algoConfig map[string]any) (l Limiter, misdeed string, err error) {
	defer func() {
		if p := recover(); p != nil {
			misdeed = "panicked: " + confmap.Truncate(fmt.Sprint(p), maxCause)
			err, _ = p.(error)
		}
	}()
	l, err = entry.build(algoConfig, d.env)
	if err == nil && isNil(l) {
		misdeed = "returned neither a limiter nor an error"
	}
	return l, misdeed, err
}

// reportBuild reports the error of a BuildFunc: as problems with fields of algoConfig,
// if it is nothing but these; otherwise, as the reason why algoConfig is refused.
func (d *decoder) reportBuild(algoConfig *confmap.Node, entry algorithmEntry, err error) {
	fields, ok := fieldErrors(err)
	if !ok {
		d.Report(&buildError{&ConfigError{algoConfig.Path, "refused by " + confmap.Quote(string(entry.algorithm)), confmap.Truncate(err.Error(), maxCause)}, err})
		return
	}
	for _, e := range fields {
		value := confmap.Truncate(fmt.Sprint(e.Value), confmap.MaxValue)
		d.Report(&buildError{&ConfigError{algoConfig.Path + "." + confmap.Truncate(e.Field, confmap.MaxPath), value, confmap.Truncate(e.Reason, maxCause)}, e.cause})
	}
}

// fieldErrors returns the problems with fields that err is, or that are joined in it,
// and reports whether err says nothing else.
func fieldErrors(err error) (all []*buildError, ok bool) {
	switch e := any(err).(type) { // not errors.As: an error that wraps a ConfigError says more
	case *ConfigError:
		return []*buildError{{e, e}}, e != nil
	case *buildError: // of another Factory, which the BuildFunc has called
		return []*buildError{{e.ConfigError, e}}, true
	case interface{ Unwrap() []error }:
		var texts []string
		for _, part := range e.Unwrap() {
			some, ok := fieldErrors(part)
			if !ok {
				return nil, false
			}
			all = append(all, some...)
			texts = append(texts, part.Error())
		}
		return all, len(all) > 0 && strings.Join(texts, "\n") == err.Error()
	}
	return nil, false
}

// A buildError is a ConfigError and the error of a BuildFunc that it reports.
type buildError struct {
	*ConfigError
	cause error // may be nil
}

// Unwrap returns the ConfigError and its cause.
func (e *buildError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.ConfigError}
	}
	return []error{e.ConfigError, e.cause}
}
