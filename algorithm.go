package ratelimit

import (
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
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

// MaxIn returns the most units that a key can be granted at the rate r in any closed interval of
// length d, such as one that begins at the instant of the first grant and ends at that of the last.
// The number is exact: some schedule of requests is granted so many, and none is granted more. It is
// [math.MaxInt] if it is larger than that. An interval that is open at one end is a closed one that
// is a nanosecond shorter.
//
// MaxIn is 0 if r is no valid rate of the algorithm or d is negative. It is -1 where no limit is
// known: for [Unlimited], and for an algorithm that is not of this package. An empty Algorithm is
// [AlgorithmTokenBucket].
//
// The number is for a key whose rate stays the same, and that is not reset. A [Store] that counts
// in whole microseconds, as one in Redis does, may grant a little less; for the exact number, divide
// r.Per and d by [time.Microsecond].
func (a Algorithm) MaxIn(r Rate, d time.Duration) int {
	if a == "" {
		a = AlgorithmTokenBucket
	}
	algorithm, known := algorithms[a]
	switch {
	case !known, r == unlimitedRate:
		return -1
	case d < 0 || algorithm.validate(r) != nil:
		return 0
	}
	return int(min(algorithm.most(r, uint64(d)), math.MaxInt))
}

// algorithms is the table of the five algorithms.
var algorithms = map[Algorithm]algorithm{
	AlgorithmTokenBucket: {
		validate: validateBy(newTokenBucketConfig),
		keys:     keysBy[tokenBucketState](newTokenBucketConfig),
		limiter:  limiterBy(NewTokenBucket),
		most:     mostOfBucket,
	},
	AlgorithmFixedWindow: {
		validate: validateBy(newFixedWindowConfig),
		keys:     keysBy[fixedWindowState](newFixedWindowConfig),
		limiter:  limiterBy(NewFixedWindow),
		most:     mostOf(exact.MostOfWindows),
		windowed: true,
	},
	AlgorithmSlidingWindowLog: {
		validate: validateBy(newSlidingLogConfig),
		keys:     keysBy[slidingLogState](newSlidingLogConfig),
		limiter:  limiterBy(NewSlidingWindowLog),
		most:     mostOf(exact.MostOfLog),
		windowed: true,
	},
	AlgorithmSlidingWindowCounter: {
		validate: validateBy(newSlidingCounterConfig),
		keys:     keysBy[slidingCounterState](newSlidingCounterConfig),
		limiter:  limiterBy(NewSlidingWindowCounter),
		most:     mostOf(exact.MostOfCounter),
		windowed: true,
	},
	AlgorithmLeakyBucket: {
		validate: validateBy(newLeakyBucketConfig),
		keys:     keysBy[leakyBucketState](newLeakyBucketConfig),
		limiter:  limiterBy(NewLeakyBucket),
		most:     mostOfBucket,
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

	// most returns the largest number of units that a key is granted in a closed
	// interval of length nanoseconds, or 2^64-1 if it is larger. r is valid.
	most func(r Rate, length uint64) uint64
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

// mostOfBucket is the field most of the buckets.
func mostOfBucket(r Rate, length uint64) uint64 {
	b := exact.NewBucket(int64(r.Requests), int64(r.Per), int64(r.burst()))
	return b.Most(length)
}

// mostOf returns the field most of an algorithm that counts in windows.
func mostOf(most func(requests, per, length uint64) uint64) func(Rate, uint64) uint64 {
	return func(r Rate, length uint64) uint64 { return most(uint64(r.Requests), uint64(r.Per), length) }
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
