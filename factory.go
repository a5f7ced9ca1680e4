package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Factory makes limiters from config maps, see [Factory.Create]. It knows the five
// algorithms of this package by their names, such as "TokenBucket", and custom algorithms by
// the names under which [Factory.Register] added them. With [WithFactory], the configs of a
// [RateLimiter] can name the custom algorithms too.
//
// A Factory is safe for concurrent use by multiple goroutines. The zero Factory and a nil
// *Factory know the five algorithms and have no options. A nil *Factory cannot register
// algorithms.
type Factory struct {
	opts []Option

	mu         sync.RWMutex
	registered map[string]customAlgorithm // by folded name; nil if nothing is registered
}

// A BuildFunc makes a limiter of a custom algorithm; [Factory.Register] adds it to a
// [Factory]. algoConfig is the part of the config that says what the limit is. env has the
// clock that the limiter must read and the number of keys that it may keep.
//
// The BuildFunc may keep and change algoConfig: the map, and all maps and lists in it, are
// copies. If it returns a [*ConfigError], or several that are joined, each is reported for
// that field of algoConfig. Any other error is reported as the reason why algoConfig is
// refused. A panic is recovered and reported as an error.
type BuildFunc func(algoConfig map[string]any, env Env) (Limiter, error)

// An Env is what a [BuildFunc] gets besides the config of the limiter. Its values come from
// the options of the [Factory] or, for a rule, from those of the [RateLimiter].
type Env struct {
	// Clock is the clock that the limiter must read. It is never nil.
	Clock Clock

	// MaxKeys is the largest number of keys that the limiter may keep state
	// for, see [WithMaxKeys].
	MaxKeys int
}

// A customAlgorithm is an algorithm that is registered with a Factory.
type customAlgorithm struct {
	name  Algorithm
	build BuildFunc
}

// NewFactory returns a Factory whose limiters have these options. If an option is invalid,
// [Factory.Create] returns the error.
func NewFactory(opts ...Option) *Factory {
	return &Factory{opts: slices.Clone(opts)}
}

// Register adds a custom algorithm with this name to f: for a config that names it, build
// makes the limiter. Names are compared without regard to case, "_" and "-". If the name is
// empty, longer than 100 bytes or already known to f, or if build is nil, Register changes
// nothing and returns an error that matches [ErrInvalidConfig].
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
	known, taken := ruleconfig.Builtin(algorithm)
	if c, ok := f.registered[name]; ok {
		known.Name, taken = string(c.name), true
	}
	if taken {
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be another name: this one is that of " + confmap.Quote(known.Name)}
	}
	if f.registered == nil {
		f.registered = make(map[string]customAlgorithm)
	}
	f.registered[name] = customAlgorithm{Algorithm(strings.Clone(algorithm)), build}
	return nil
}

// Create makes a limiter with state of its own. config has two fields: "algorithm" is the
// name of an algorithm that f knows, and "algoConfig" is a map that says what the limit is,
// such as {"capacity": 100, "refillRatePerSecond": 10}. The other fields of a rule's config
// are allowed and ignored, see [DecodeRules]. Any further field is an error.
//
// If f has the option [WithStore], the limiter needs a name: the field "name" or, if there is
// none, that of [WithName]. It then shares its state with all limiters of that name in the
// [Store].
//
// The error lists everything that is wrong with config and with the options of f, and
// matches [ErrInvalidConfig].
func (f *Factory) Create(config map[string]any) (Limiter, error) {
	var opts []Option
	if f != nil {
		opts = f.opts
	}
	set, invalid := newSettings(opts)
	d := newDecoder(f, set.env())
	n, ok := confmap.NodeOf("", config)
	if !ok {
		d.Reject("config", "nil", ruleconfig.RuleForm)
		return nil, errors.Join(d.Err(), invalid)
	}
	d.Fields(n)
	a := d.Algorithm(n)
	if set.store != nil {
		opts = append(slices.Clip(opts), d.storeOptions(n, a, set.name)...)
	}
	algoConfig, ok := d.Config(n)
	switch {
	case !ok || a.Name == "":
		return nil, errors.Join(d.Err(), invalid)
	case a.Custom && invalid == nil:
		made, _ := d.custom(n, algoConfig, a).(*customLimiter)
		if err := d.Err(); err != nil {
			return nil, err
		}
		return made.limiter, nil
	case a.Custom:
		return nil, errors.Join(d.Err(), invalid)
	}
	r := d.Rate(n, algoConfig, a)
	if err := errors.Join(d.Err(), invalid); err != nil {
		return nil, err
	}
	return algorithms[Algorithm(a.Name)].limiter(Rate(r), opts...)
}

// storeOptions returns the options that a limiter in a store needs beside those of the
// factory. given is the name in the latter, or empty. The config at n may have another name.
func (d *decoder) storeOptions(n *confmap.Node, a ruleconfig.Algorithm, given string) []Option {
	if a.Custom {
		d.Reject(n.Field("algorithm"), confmap.Quote(a.Name), "must be one of "+list(algorithmNames())+": the state is in a store")
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

// find returns the algorithm that is registered with f under this name.
func (f *Factory) find(name string) (c customAlgorithm, ok bool) {
	if f == nil {
		return customAlgorithm{}, false
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	c, ok = f.registered[confmap.Fold(name)]
	return c, ok
}

// custom is find for the reader of configs.
func (f *Factory) custom(name string) (a ruleconfig.Algorithm, ok bool) {
	c, ok := f.find(name)
	return ruleconfig.Algorithm{Name: string(c.name), Custom: ok}, ok
}

// names returns the names of the algorithms that are registered with f, sorted.
func (f *Factory) names() (names []string) {
	if f == nil {
		return nil
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range f.registered {
		names = append(names, string(c.name))
	}
	slices.Sort(names)
	return names
}

// env returns the Env of custom limiters that are made with the settings s.
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

// maxCause is how much of an error or a panic of a BuildFunc is shown, in bytes.
const maxCause = 500

// custom makes the limiter of the rule at n, whose algorithm is a custom one, from its
// algoConfig. It returns a *customLimiter, or nil if there is a problem, which is reported.
func (d *decoder) custom(n, algoConfig *confmap.Node, a ruleconfig.Algorithm) any {
	kept, ok := d.Copy(algoConfig) // for a later Reload to compare with
	if !ok {
		return nil
	}
	handed, ok := d.Copy(algoConfig) // for the BuildFunc, which may change it
	if !ok {
		return nil
	}
	l, misuse, err := d.build(a.Name, handed)
	switch {
	case misuse != "":
		d.Report(&buildError{&ConfigError{n.Field("algorithm"), confmap.Quote(a.Name), "its BuildFunc " + misuse}, err})
		return nil
	case err != nil:
		d.reportBuild(algoConfig, a.Name, err)
		return nil
	}
	return &customLimiter{kept, l}
}

// build calls the BuildFunc of a custom algorithm. If the BuildFunc panics or returns neither a limiter
// nor an error, misuse says so. If it panics with an error, err is that error.
func (d *decoder) build(algorithm string, algoConfig map[string]any) (l Limiter, misuse string, err error) {
	defer func() {
		if p := recover(); p != nil {
			misuse = "panicked: " + confmap.Truncate(fmt.Sprint(p), maxCause)
			err, _ = p.(error)
		}
	}()
	c, _ := d.factory.find(algorithm)
	l, err = c.build(algoConfig, d.env)
	if err == nil && isNil(l) {
		misuse = "returned neither a limiter nor an error"
	}
	return l, misuse, err
}

// reportBuild reports the error of a BuildFunc. If that consists only of ConfigErrors, they
// are reported for the fields of algoConfig. Otherwise, the error is reported as the reason
// why algoConfig is refused.
func (d *decoder) reportBuild(algoConfig *confmap.Node, algorithm string, err error) {
	fields, ok := fieldErrors(err)
	if !ok {
		d.Report(&buildError{&ConfigError{algoConfig.Path, "refused by " + confmap.Quote(algorithm), confmap.Truncate(err.Error(), maxCause)}, err})
		return
	}
	for _, e := range fields {
		value := confmap.Truncate(fmt.Sprint(e.Value), confmap.MaxValue)
		d.Report(&buildError{&ConfigError{algoConfig.Path + "." + confmap.Truncate(e.Field, confmap.MaxPath), value, confmap.Truncate(e.Reason, maxCause)}, e.cause})
	}
}

// fieldErrors returns the ConfigErrors that are joined in err, or err itself if it is one. It
// reports whether err has nothing to say beside them.
func fieldErrors(err error) (all []*buildError, ok bool) {
	switch e := any(err).(type) { // not errors.As: an error that wraps a ConfigError says more
	case *ConfigError:
		return []*buildError{{e, e}}, e != nil
	case *buildError: // the BuildFunc has called Create of another Factory
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

// Unwrap returns the ConfigError and, if there is one, its cause.
func (e *buildError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.ConfigError}
	}
	return []error{e.ConfigError, e.cause}
}
