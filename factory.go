package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
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
	opts       []Option
	registered ruleconfig.Registry[BuildFunc]
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
// the options of the [Factory] and, for a rule, from those of the [RateLimiter].
type Env struct {
	// Clock is the clock that the limiter must read. It is never nil.
	Clock Clock

	// MaxKeys is the largest number of keys that the limiter may keep state
	// for, see [WithMaxKeys].
	MaxKeys int
}

// NewFactory returns a Factory whose limiters have these options. A [RateLimiter] that is made
// [WithFactory] has them too. If an option is invalid, [Factory.Create] returns the error.
func NewFactory(opts ...Option) *Factory {
	return &Factory{opts: slices.Clone(opts)}
}

// Register adds a custom algorithm with this name to f: for a config that names it, build
// makes the limiter. Names are compared without regard to case, "_" and "-". If the name is
// empty, longer than 100 bytes or already known to f, or if build is nil, Register changes
// nothing and returns an error that matches [ErrInvalidConfig].
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
	if other, taken := f.registered.Add(algorithm, build); taken {
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be another name: this one is that of " + confmap.Quote(other)}
	}
	return nil
}

// Create makes a limiter with state of its own. config has two fields: "algorithm" is the
// name of an algorithm that f knows, and "algoConfig" is a map that says what the limit is,
// such as {"capacity": 100, "refillRatePerSecond": 10}. The other fields of a rule's config
// are allowed and ignored, see [DecodeRules], except for a warm-up, which only a rule has. Any
// further field is an error.
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
	set, invalid := f.settings().withDefaults()
	d := newDecoder(f, set.env())
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
	case !ok || a.Name == "":
		return nil, errors.Join(d.Err(), invalid)
	case a.Custom && invalid == nil:
		d.RefuseWarmup(n, algoConfig, a)
		made, _ := d.custom(n, algoConfig, a).(*hooks.Made)
		if err := d.Err(); err != nil {
			closeMade(made)
			return nil, err
		}
		return made.Value.(Limiter), nil
	case a.Custom:
		return nil, errors.Join(d.Err(), invalid)
	}
	r := d.Rate(n, algoConfig, a)
	d.RefuseWarmup(n, algoConfig, a)
	if err := errors.Join(d.Err(), invalid); err != nil {
		return nil, err
	}
	return algorithms[Algorithm(a.Name)].limiter(Rate(r), opts...)
}

// settings returns what the options of f say.
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

// custom makes the limiter of the rule at n, whose algorithm is a custom one, from its
// algoConfig. It returns a *hooks.Made, or nil if there is a problem, which is reported.
func (d *decoder) custom(n, algoConfig *confmap.Node, a ruleconfig.Algorithm) any {
	kept, ok := d.Copy(algoConfig) // for a later Reload to compare with
	if !ok {
		return nil
	}
	if d.keeps != nil {
		if l := d.keeps(nameOf(n), Algorithm(a.Name), kept); l != nil {
			return &hooks.Made{Config: kept, Value: l, Build: func() (any, error) {
				later := newDecoder(d.factory, d.env)
				if made, ok := later.custom(n, algoConfig, a).(*hooks.Made); ok {
					return made.Value, nil
				}
				return nil, later.Err()
			}}
		}
	}
	handed, ok := d.Copy(algoConfig) // for the BuildFunc, which may change it
	if !ok {
		return nil
	}
	made := d.Made(n, algoConfig, a, func() (any, error) {
		l, err := d.factory.registry().Build(a.Name)(handed, d.env)
		if confmap.IsNil(l) {
			return nil, err
		}
		return l, err
	})
	if made == nil {
		return nil
	}
	return &hooks.Made{Config: kept, Value: made}
}

// A ConfigReader reads the algoConfig of a custom algorithm for a [BuildFunc]. It reads what
// any decoder makes of a field: a number may be an int, a float64 or a json.Number. The names
// of fields are read without regard to case, "_" and "-".
//
// Each method but Has reads the field with this name, which must be there, and returns zero
// if something is wrong with it. [ConfigReader.Err] then says what. A ConfigReader must be
// used by one goroutine only.
type ConfigReader struct {
	fields *ruleconfig.Fields
}

// ReadConfig returns a ConfigReader for algoConfig.
func ReadConfig(algoConfig map[string]any) *ConfigReader {
	return &ConfigReader{ruleconfig.NewFields(algoConfig, problem, more)}
}

// Has reports whether the config has a field. It is for fields that may be left out.
func (c *ConfigReader) Has(name string) bool { return c.fields.Has(name) }

// Int reads a whole number.
func (c *ConfigReader) Int(name string) int { return c.fields.Int(name) }

// Float reads a number.
func (c *ConfigReader) Float(name string) float64 { return c.fields.Float(name) }

// String reads a text of at most 1,024 bytes.
func (c *ConfigReader) String(name string) string { return c.fields.String(name) }

// Bool reads true or false.
func (c *ConfigReader) Bool(name string) bool { return c.fields.Bool(name) }

// Duration reads a time with its unit, such as "90s", "1h30m" or "2 days". It is above 0.
func (c *ConfigReader) Duration(name string) time.Duration { return c.fields.Duration(name) }

// Rate reads a text as [ParseRate] does. It is not [Unlimited].
func (c *ConfigReader) Rate(name string) Rate { return Rate(c.fields.Rate(name)) }

// Err returns everything that was wrong with the fields that have been read, and the fields
// of the config that nobody has asked for, joined, or nil. Each problem is a [*ConfigError]. A
// BuildFunc returns the error as it is.
func (c *ConfigReader) Err() error { return c.fields.Err() }
