package ratelimit

import (
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// An Algorithm is the name of the algorithm by which a [Rule] decides. The empty Algorithm
// is [AlgorithmTokenBucket].
type Algorithm string

// The names of the five algorithms of this package. A [Factory] may have custom algorithms
// beside them.
const (
	AlgorithmTokenBucket          Algorithm = "TokenBucket"          // see [TokenBucket]
	AlgorithmFixedWindow          Algorithm = "FixedWindow"          // see [FixedWindow]
	AlgorithmSlidingWindowLog     Algorithm = "SlidingWindowLog"     // see [SlidingWindowLog]
	AlgorithmSlidingWindowCounter Algorithm = "SlidingWindowCounter" // see [SlidingWindowCounter]
	AlgorithmLeakyBucket          Algorithm = "LeakyBucket"          // see [LeakyBucket]
)

// UnmarshalText sets a to the algorithm of this package that text names, in any spelling that
// a config may have. For any other name, it returns an error that matches [ErrInvalidConfig]
// and leaves a unchanged. A custom algorithm is known only to its [Factory], see [DecodeRules].
func (a *Algorithm) UnmarshalText(text []byte) error {
	known, ok := ruleconfig.Builtin(string(text))
	if !ok && len(text) > 0 {
		return &ConfigError{"algorithm", confmap.Quote(string(text)), "must be one of " + confmap.List(algorithmNames())}
	}
	*a = Algorithm(known.Name)
	return nil
}

// algorithms is the table of the five algorithms.
var algorithms = map[Algorithm]algorithm{
	AlgorithmTokenBucket: {
		validate: validateBy(newTokenBucketConfig),
		keys:     keysBy[tokenBucketState](newTokenBucketConfig),
		limiter:  limiterBy(NewTokenBucket),
	},
	AlgorithmFixedWindow: {
		validate: validateBy(newFixedWindowConfig),
		keys:     keysBy[fixedWindowState](newFixedWindowConfig),
		limiter:  limiterBy(NewFixedWindow),
		windowed: true,
	},
	AlgorithmSlidingWindowLog: {
		validate: validateBy(newSlidingLogConfig),
		keys:     keysBy[slidingLogState](newSlidingLogConfig),
		limiter:  limiterBy(NewSlidingWindowLog),
		windowed: true,
	},
	AlgorithmSlidingWindowCounter: {
		validate: validateBy(newSlidingCounterConfig),
		keys:     keysBy[slidingCounterState](newSlidingCounterConfig),
		limiter:  limiterBy(NewSlidingWindowCounter),
		windowed: true,
	},
	AlgorithmLeakyBucket: {
		validate: validateBy(newLeakyBucketConfig),
		keys:     keysBy[leakyBucketState](newLeakyBucketConfig),
		limiter:  limiterBy(NewLeakyBucket),
	},
}

// An algorithm is an entry of the table: what rules, configs and stores need to know of an
// algorithm.
type algorithm struct {
	// validate returns everything that is wrong with r for this algorithm,
	// joined, or nil. The errors name the fields of a Rate.
	validate func(r Rate) error

	// windowed is true if the algorithm counts in windows. Then it has no
	// burst, and all rates of one rule must have the same Per.
	windowed bool

	// keys makes the keys of a rule, for state in this process.
	keys func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error)

	// limiter makes a limiter by the algorithm's constructor.
	limiter func(r Rate, opts ...Option) (Limiter, error)
}

// algorithmNames returns the names of the algorithms of this package, sorted.
func algorithmNames() (names []string) {
	for a := range algorithms {
		names = append(names, string(a))
	}
	slices.Sort(names)
	return names
}

// validateBy returns the field validate of an algorithm, by its constructor of configurations.
func validateBy[C any](configure func(Rate, time.Time) (C, error)) func(Rate) error {
	return func(r Rate) error {
		_, err := configure(r, time.Time{})
		return err
	}
}

// keysBy returns the field keys of an algorithm, by its constructor of configurations.
func keysBy[S any, C engine.Grower[S, C]](configure func(Rate, time.Time) (C, error)) func(*engine.Timeline, engine.Rates, int) (engine.Keys, error) {
	return func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error) {
		if r.Warmup != nil {
			return engine.NewKeys[engine.Warm[S]](t, r, maxKeys, func(r engine.Rate, w *engine.Warmup) (*engine.WarmConfig[S, C], error) {
				config, err := configure(Rate(r), t.Start())
				if err == nil && !w.Least {
					err = warmupOf(w).fits(Rate(r))
				}
				if err != nil {
					return nil, err
				}
				return engine.NewWarm[S](config, *w, int64(r.Requests), Rate(r).leastPortion()), nil
			}, &refusals)
		}
		return engine.NewKeys[S](t, r, maxKeys, func(r engine.Rate, _ *engine.Warmup) (C, error) { return configure(Rate(r), t.Start()) }, &refusals)
	}
}

// limiterBy returns the field limiter of an algorithm, by its constructor of limiters.
func limiterBy[L Limiter](construct func(Rate, ...Option) (L, error)) func(Rate, ...Option) (Limiter, error) {
	return func(r Rate, opts ...Option) (Limiter, error) {
		l, err := construct(r, opts...)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// refusals makes the errors for a rate of Rule.Resolve that a rule cannot use.
var refusals = engine.Refusals{
	OtherPer: func(r engine.Rate) error { return errOtherWindow(Rate(r)) },
	TooMany: func(r engine.Rate) error {
		return &ConfigError{"rate", Rate(r), "must be one of the 65,536 rates that a rule has at most"}
	},
}

// otherWindow returns the error for a rate of a rule whose Per must be that of base, the rule's
// Rate, and is not. It returns nil for any other one.
func (a algorithm) otherWindow(base, r Rate) error {
	if !a.windowed || r.Per == base.Per {
		return nil
	}
	return errOtherWindow(r)
}

// errOtherWindow is the error for a rate r whose Per is not that of its rule.
func errOtherWindow(r Rate) error {
	return &ConfigError{"per", r.Per, "must be that of the rule's rate: a window has one length"}
}
