package ratelimit

import (
	"maps"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// An Algorithm names how a rule counts. The empty Algorithm is
// [AlgorithmTokenBucket].
type Algorithm string

// The algorithms of this package. A [Factory] may know more.
const (
	AlgorithmTokenBucket          Algorithm = "TokenBucket"          // see [TokenBucket]
	AlgorithmFixedWindow          Algorithm = "FixedWindow"          // see [FixedWindow]
	AlgorithmSlidingWindowLog     Algorithm = "SlidingWindowLog"     // see [SlidingWindowLog]
	AlgorithmSlidingWindowCounter Algorithm = "SlidingWindowCounter" // see [SlidingWindowCounter]
	AlgorithmLeakyBucket          Algorithm = "LeakyBucket"          // see [LeakyBucket]
)

// algorithms are the algorithms of this package.
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

// An algorithm is what the package knows of one of its algorithms.
type algorithm struct {
	// validate returns all the problems of r with the algorithm, joined, or
	// nil. Their fields are those of a Rate.
	validate func(r Rate) error

	// windowed reports whether the algorithm counts in windows: it has no
	// burst, and the rates of one rule must have the same Per.
	windowed bool

	// keys makes the keys of a rule in this process.
	keys func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error)

	// limiter makes a limiter of the algorithm.
	limiter func(r Rate, opts ...Option) (Limiter, error)
}

// algorithmNames returns the names of the algorithms of this package, sorted.
func algorithmNames() []Algorithm { return slices.Sorted(maps.Keys(algorithms)) }

// validateBy makes algorithm.validate of the function that makes a configuration.
func validateBy[C any](configure func(Rate, time.Time) (C, error)) func(Rate) error {
	return func(r Rate) error {
		_, err := configure(r, time.Time{})
		return err
	}
}

// keysBy makes algorithm.keys of the function that makes a configuration.
func keysBy[S any, C engine.Algorithm[S, C]](configure func(Rate, time.Time) (C, error)) func(*engine.Timeline, engine.Rates, int) (engine.Keys, error) {
	return func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error) {
		return engine.NewKeys[S](t, r, maxKeys, func(r engine.Rate) (C, error) { return configure(Rate(r), t.Start()) }, &refusals)
	}
}

// limiterBy makes algorithm.limiter of a constructor.
func limiterBy[L Limiter](construct func(Rate, ...Option) (L, error)) func(Rate, ...Option) (Limiter, error) {
	return func(r Rate, opts ...Option) (Limiter, error) {
		l, err := construct(r, opts...)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// refusals say why a rule does not grant a rate that a request has asked for.
var refusals = engine.Refusals{
	OtherPer: func(r engine.Rate) error { return errOtherWindow(Rate(r)) },
	TooMany: func(r engine.Rate) error {
		return &ConfigError{"rate", Rate(r), "must be one of the 65,536 rates that a rule has at most"}
	},
}

// errOtherWindow says that r cannot be a rate of a rule whose Per is another.
func errOtherWindow(r Rate) error {
	return &ConfigError{"per", r.Per, "must be that of the rule's rate: a window has one length"}
}
