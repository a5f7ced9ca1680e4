package ratelimit

import "time"

// A builtin is what the package knows of one of its algorithms.
type builtin struct {
	// validate returns all the problems of r with the algorithm, joined, or
	// nil. Their fields are those of a Rate.
	validate func(r Rate) error

	// windowed reports whether the algorithm counts in windows: it has no
	// burst, and the rates of one rule must have the same Per.
	windowed bool

	// states makes the states of a rule in this process.
	states func(t *timeline, r rates, maxKeys int) (states, error)

	// limiter makes a limiter of the algorithm.
	limiter func(r Rate, opts ...Option) (Limiter, error)
}

// builtins are the algorithms of this package.
var builtins = map[Algorithm]builtin{
	AlgorithmTokenBucket: {
		validate: validateBy(newTokenBucketConfig),
		states:   engineOf[tokenBucketState](newTokenBucketConfig),
		limiter:  limiterBy(NewTokenBucket),
	},
	AlgorithmFixedWindow: {
		validate: validateBy(newFixedWindowConfig),
		states:   engineOf[fixedWindowState](newFixedWindowConfig),
		limiter:  limiterBy(NewFixedWindow),
		windowed: true,
	},
	AlgorithmSlidingWindowLog: {
		validate: validateBy(newSlidingLogConfig),
		states:   engineOf[slidingLogState](newSlidingLogConfig),
		limiter:  limiterBy(NewSlidingWindowLog),
		windowed: true,
	},
	AlgorithmSlidingWindowCounter: {
		validate: validateBy(newSlidingCounterConfig),
		states:   engineOf[slidingCounterState](newSlidingCounterConfig),
		limiter:  limiterBy(NewSlidingWindowCounter),
		windowed: true,
	},
	AlgorithmLeakyBucket: {
		validate: validateBy(newLeakyBucketConfig),
		states:   engineOf[leakyBucketState](newLeakyBucketConfig),
		limiter:  limiterBy(NewLeakyBucket),
	},
}

func validateBy[C any](configure func(Rate, time.Time) (C, error)) func(Rate) error {
	return func(r Rate) error {
		_, err := configure(r, time.Time{})
		return err
	}
}

func limiterBy[L Limiter](construct func(Rate, ...Option) (L, error)) func(Rate, ...Option) (Limiter, error) {
	return func(r Rate, opts ...Option) (Limiter, error) {
		l, err := construct(r, opts...)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}
