package ratelimit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Factory makes limiters from config maps, see [Factory.Create]. It knows the five algorithms of this package, such
// as "TokenBucket", and the custom algorithms that [Factory.Register] has added. With [WithFactory], the configs of a
// [RateLimiter] can name the custom algorithms too.
//
// A Factory is safe for concurrent use by multiple goroutines. The zero Factory and a nil *Factory know the five
// algorithms and have no options. A nil *Factory cannot register algorithms.
type Factory struct {
	opts       []Option
	registered ruleconfig.Registry[BuildFunc]
}

// A BuildFunc makes a limiter of a custom algorithm; [Factory.Register] adds it to a [Factory]. algoConfig is the part
// of the config that says what the limit is. env has the clock to read and the number of keys to keep.
//
// The BuildFunc may keep and change algoConfig: the map, and all maps and lists in it, are copies. If it returns a
// [*ConfigError], or several that are joined, each is reported for its field of algoConfig. Any other error, or a
// panic, is reported as the reason why algoConfig is refused. Package configread reads the fields of an algoConfig.
type BuildFunc func(algoConfig map[string]any, env Env) (Limiter, error)

// NewFactory returns a Factory whose limiters have these options. A [RateLimiter] with the option [WithFactory] has
// these options too. If an option is invalid, [Factory.Create] returns the error.
func NewFactory(opts ...Option) *Factory { return &Factory{opts: slices.Clone(opts)} }

// Register adds a custom algorithm with this name to f: build makes the limiters for configs that name it. Names are
// compared without regard to case, "_" and "-". If the name is empty, longer than 100 bytes or already known to f, or
// if build is nil, Register changes nothing and returns an error that matches [ErrInvalidConfig].
func (f *Factory) Register(algorithm string, build BuildFunc) error {
	switch {
	case f == nil:
		return &ConfigError{"factory", "nil", "must be made by NewFactory"}
	case confmap.Fold(algorithm) == "":
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be a name"}
	case len(algorithm) > confmap.MaxName:
		return &ConfigError{"algorithm", confmap.Quote(algorithm), fmt.Sprintf("must be at most %d bytes long", confmap.MaxName)}
	case build == nil:
		return &ConfigError{"build", "nil", "must be a function that makes a limiter"}
	}
	if other, taken := f.registered.Add(algorithm, build, configAlgorithms()); taken {
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be another name: this one is that of " + confmap.Quote(other)}
	}
	return nil
}

// Create makes a limiter with state of its own. config has two fields: "algorithm" is the name of an algorithm that f
// knows, and "algoConfig" is a map that says what the limit is, such as {"capacity": 100, "refillRatePerSecond": 10}.
// Create ignores the other fields that the config of a rule may have, see [DecodeRules], except a warmup or a penalty: that
// is an error, because only a rule can have one. An unknown field is an error too.
//
// If f has the option [WithStore], the limiter needs a name: the field "name" or, if there is none, that of [WithName].
// It then shares its state with all limiters of that name in the [Store].
//
// The error lists everything that is wrong with config and with the options of f, and matches [ErrInvalidConfig].
func (f *Factory) Create(config map[string]any) (Limiter, error) {
	var opts []Option
	if f != nil {
		opts = f.opts
	}
	set, invalid := f.settings().withDefaults()
	set.factory = f
	d := newDecoder(&set)
	n, ok := confmap.NodeOf("", config)
	if !ok {
		d.Reject("config", "nil", ruleconfig.RuleForm)
		return nil, errors.Join(d.Err(), invalid)
	}
	d.Fields(n)
	a := d.Algorithm(n)
	if set.store != nil {
		if name := d.StoreName(n, a, set.name); name != "" {
			opts = append(slices.Clip(opts), WithName(name))
		}
	}
	algoConfig, ok := d.Config(n)
	switch {
	case !ok || a.Name == "" || a.Custom && invalid != nil:
		return nil, errors.Join(d.Err(), invalid)
	case a.Custom:
		d.RefuseOfRules(n, algoConfig, a)
		built := d.custom("", n, algoConfig, a)
		if err := d.Err(); err != nil {
			hooks.Close(built)
			return nil, err
		}
		return built.Value.(Limiter), nil
	}
	r := d.Rate(n, algoConfig, a)
	d.RefuseOfRules(n, algoConfig, a)
	if err := errors.Join(d.Err(), invalid); err != nil {
		return nil, err
	}
	return algorithms[Algorithm(a.Name)].limiter(rateOf(r), opts...)
}

// settings returns the settings that the options of f make.
func (f *Factory) settings() (s settings) {
	if f == nil {
		return s
	}
	s = s.with(f.opts)
	if s.factory != nil {
		s.problems = append(s.problems, &ConfigError{"factory", "set", "must not be an option of a Factory"})
	}
	return s
}

// registry returns the custom algorithms that f knows.
func (f *Factory) registry() *ruleconfig.Registry[BuildFunc] {
	if f == nil {
		return nil
	}
	return &f.registered
}

// custom returns the limiter that the BuildFunc of the custom algorithm a makes from algoConfig. The limiter is for the
// rule with this name, at the node n of a config. If there is a problem, custom reports the problem and returns nil.
func (d *decoder) custom(name string, n, algoConfig *confmap.Node, a ruleconfig.Algorithm) *hooks.Built {
	config, ok := d.Copy(algoConfig) // for a later Reload to compare with
	if !ok {
		return nil
	}
	if old := d.current.named(name); old != nil && old.Limiter != nil && old.keepsLimiter(Algorithm(a.Name), config) {
		return &hooks.Built{Config: config, Value: old.Limiter, Build: func() (any, error) {
			later := newDecoder(d.set)
			if built := later.custom(name, n, algoConfig, a); built != nil {
				return built.Value, nil
			}
			return nil, later.Err()
		}}
	}
	handed, ok := d.Copy(algoConfig) // for the BuildFunc, which may change it
	if !ok {
		return nil
	}
	built := d.Built(n, algoConfig, a, func() (any, error) {
		l, err := d.set.factory.registry().Build(a.Name)(handed, d.set.env())
		if confmap.IsNil(l) {
			return nil, err
		}
		return l, err
	})
	if built == nil {
		return nil
	}
	return &hooks.Built{Config: config, Value: built}
}
