package ratelimit

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// An Algorithm is the name of the algorithm by which a [Rule] decides. The empty Algorithm is [AlgorithmTokenBucket].
type Algorithm string

// The names of the five algorithms of this package. A [Factory] may know custom algorithms as well.
const (
	AlgorithmTokenBucket          Algorithm = "TokenBucket"          // see [TokenBucket]
	AlgorithmFixedWindow          Algorithm = "FixedWindow"          // see [FixedWindow]
	AlgorithmSlidingWindowLog     Algorithm = "SlidingWindowLog"     // see [SlidingWindowLog]
	AlgorithmSlidingWindowCounter Algorithm = "SlidingWindowCounter" // see [SlidingWindowCounter]
	AlgorithmLeakyBucket          Algorithm = "LeakyBucket"          // see [LeakyBucket]
)

// AlgorithmInFlight is the [Algorithm] of a rule that limits how many requests run at the same time. A key can hold
// [Rate.Requests] units at once. A request holds its units from the grant until its [Reservation] is done, settled or
// canceled. If that never happens, as after a crash, it holds them for [Rate.Per], which is at most 24 hours.
//
// Bound: a key never holds more than Requests units if no work lasts longer than Per. A key serves at most 65,536 requests at once.
//
// Such a rule applies only to [RateLimiter.Reserve] and [RateLimiter.ReserveWait], because only their [Reservation] can free
// the units early; [RuleStats.Unheld] counts the requests by other calls. RetryAfter is an upper bound: the time until enough
// units are free if no request ends early. All rates of the rule have the same Per. No constructor makes a limiter with this algorithm.
const AlgorithmInFlight Algorithm = "InFlight"

// Algorithms returns the names of the five algorithms of this package: the two buckets, then the three with windows.
func Algorithms() (names []Algorithm) {
	for _, a := range algorithmList {
		names = append(names, a.name)
	}
	return names
}

// Windowed reports whether the algorithm is one of the three in this package that count in windows, or is
// [AlgorithmInFlight]. Such an algorithm has no [Rate.Burst], and all rates of one [Rule] must have the same Per. The
// two buckets have a burst, and the rates of a rule may have any Per.
func (a Algorithm) Windowed() bool { return algorithms[a].windowed }

// UnmarshalText sets *a to the algorithm of this package that has the name text. The name may be spelt in any way that
// a config allows. For any other name, UnmarshalText returns an error that matches [ErrInvalidConfig] and leaves *a
// unchanged. It does not know the custom algorithms of a [Factory]; use [DecodeRules] for these.
func (a *Algorithm) UnmarshalText(text []byte) error {
	known, ok := ruleconfig.Find(configAlgorithms(), string(text))
	if !ok && len(text) > 0 {
		return &ConfigError{"algorithm", confmap.Quote(string(text)), "must be one of " + confmap.List(algorithmNames())}
	}
	*a = Algorithm(known.Name)
	return nil
}

// MaxIn returns the largest number of units that a key can be granted at the rate r in any closed interval of length
// d, such as one from the instant of the first grant to the instant of the last. The number is exact: some
// sequence of requests is granted this many units, and no sequence is granted more. A number above [math.MaxInt] is
// returned as math.MaxInt. For an interval that excludes its first or last instant, subtract one nanosecond from d.
//
// If [Rate.Window] is a calendar, the number is Requests times the most windows that such an interval can touch; not every calendar
// reaches this bound. If the Window is "first", a key reaches the number if Requests is 1, or if the first unit of a window is given back.
//
// MaxIn returns 0 if r is not a valid rate of the algorithm or d is negative. It returns -1 if no limit is known: for
// [Unlimited], for a custom algorithm, and for [AlgorithmInFlight]. An empty Algorithm is [AlgorithmTokenBucket].
//
// The number holds for a key that is not reset and whose rate does not change. A [Store] that counts in whole
// microseconds, such as one in Redis, may grant a little less; for its number, divide r.Per and d by time.Microsecond.
func (a Algorithm) MaxIn(r Rate, d time.Duration) int {
	algorithm, known := algorithms[cmp.Or(a, AlgorithmTokenBucket)]
	switch {
	case !known, r == unlimitedRate, a == AlgorithmInFlight:
		return -1
	case d < 0 || algorithm.validate(r) != nil:
		return 0
	}
	return int(min(algorithm.maxGranted(r, uint64(d)), math.MaxInt))
}

// algorithmList has a row for each of the five algorithms, in the order in which Algorithms names them.
var algorithmList = []algorithm{
	newAlgorithm[tokenBucketState](AlgorithmTokenBucket, newTokenBucketConfig, NewTokenBucket, nil),
	newAlgorithm[leakyBucketState](AlgorithmLeakyBucket, newLeakyBucketConfig, NewLeakyBucket, nil),
	newAlgorithm[fixedWindowState](AlgorithmFixedWindow, newFixedWindowConfig, NewFixedWindow, exact.MaxOfWindows),
	newAlgorithm[slidingCounterState](AlgorithmSlidingWindowCounter, newSlidingCounterConfig, NewSlidingWindowCounter, exact.MaxOfCounter),
	newAlgorithm[slidingLogState](AlgorithmSlidingWindowLog, newSlidingLogConfig, NewSlidingWindowLog, exact.MaxOfLog),
}

// inFlight is the row for AlgorithmInFlight. It is not in algorithmList, because only rules can have this algorithm.
var inFlight = algorithm{
	name: AlgorithmInFlight, windowed: true, validate: inFlightFaults,
	keys: func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error) {
		return engine.NewInFlight(t, r, maxKeys, func(r engine.Rate) error { return inFlightFaults(rateOf(r)) }, &refusals)
	},
	limiter: func(Rate, ...Option) (Limiter, error) {
		return nil, &ConfigError{"algorithm", `"InFlight"`, "must be that of a limiter: InFlight is for rules, see Reserve"}
	},
	maxGranted: func(Rate, uint64) uint64 { return 0 },
}

// inFlightFaults returns everything that is wrong with r as the rate of a rule with AlgorithmInFlight, joined, or nil.
func inFlightFaults(r Rate) error { return r.faults(ruleconfig.InFlightFaults) }

// algorithms maps the name of each algorithm that a rule can have to its row: the rows in algorithmList, and inFlight.
var algorithms = byName(slices.Concat(algorithmList, []algorithm{inFlight}))

func byName(rows []algorithm) map[Algorithm]algorithm {
	named := make(map[Algorithm]algorithm)
	for _, a := range rows {
		named[a.name] = a
	}
	return named
}

// An algorithm is a row of algorithmList: what rules, configs and stores need to know about one algorithm.
type algorithm struct {
	name Algorithm

	// windowed is true if the algorithm counts in windows. It then has no burst, and all rates of a rule have one Per.
	windowed bool

	// validate returns all errors of the rate r for this algorithm, joined, or nil. Each error names a field of Rate.
	validate func(r Rate) error

	// keys makes the engine.Keys of a rule, which hold the state of all its keys in this process.
	keys func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error)

	// limiter calls the algorithm's constructor, such as NewTokenBucket.
	limiter func(r Rate, opts ...Option) (Limiter, error)

	// maxGranted returns the largest number of units that a key can be granted at the valid rate r in a closed interval
	// of this length in nanoseconds. If the number is above 2^64-1, the result is 2^64-1.
	maxGranted func(r Rate, length uint64) uint64
}

// newAlgorithm returns the row of algorithmList for the algorithm with this name. The function configure makes the
// algorithm's configuration for a rate, and construct makes a limiter. The function maxOfWindows computes maxGranted
// for an algorithm that counts in windows; it is nil for a bucket.
func newAlgorithm[S any, C engine.Grower[S, C], L Limiter](
	name Algorithm, configure func(Rate, *engine.Timeline) (C, error), construct func(Rate, ...Option) (L, error),
	maxOfWindows func(requests, per, length uint64) uint64,
) algorithm {
	return algorithm{
		name: name, windowed: maxOfWindows != nil,
		validate: func(r Rate) error {
			_, err := configure(r, new(engine.Timeline))
			return err
		},
		keys: func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error) {
			return newKeys[S](t, r, maxKeys, configure)
		},
		limiter: func(r Rate, opts ...Option) (Limiter, error) {
			l, err := construct(r, opts...)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
		maxGranted: func(r Rate, length uint64) uint64 {
			if w, _ := calendar.Parse(string(r.Window)); w.Calendar() != nil {
				return exact.MaxOfTouched(uint64(r.Requests), w.Calendar().MaxTouched(length))
			}
			if maxOfWindows != nil {
				return maxOfWindows(uint64(r.Requests), uint64(r.Per), length)
			}
			b := exact.NewBucket(int64(r.Requests), int64(r.Per), int64(r.burst()))
			return b.MaxGranted(length)
		},
	}
}

// newKeys makes the engine.Keys of a rule. The function configure makes the configuration for each of the rates r.
func newKeys[S any, C engine.Grower[S, C]](
	t *engine.Timeline, r engine.Rates, maxKeys int, configure func(Rate, *engine.Timeline) (C, error),
) (engine.Keys, error) {
	if r.Warmup == nil {
		plain := func(r engine.Rate, _ *engine.Warmup) (C, error) { return configure(rateOf(r), t) }
		return engine.NewKeys[S](t, r, maxKeys, plain, &refusals)
	}
	return engine.NewKeys[engine.Warm[S]](t, r, maxKeys, func(r engine.Rate, w *engine.Warmup) (*engine.WarmConfig[S, C], error) {
		config, err := configure(rateOf(r), t)
		if err == nil && !w.Raise {
			err = (Warmup{int(w.From), w.Over}).fits(rateOf(r))
		}
		if err != nil {
			return nil, err
		}
		return engine.NewWarm[S](config, *w, int64(r.Requests), ruleconfig.MinPortion(ratetext.Rate(r))), nil
	}, &refusals)
}

// algorithmNames returns the names of all algorithms that a rule can have, sorted.
func algorithmNames() []string { return ruleconfig.NamesIn(configAlgorithms()) }

// configAlgorithms returns all algorithms that a rule can have, as values of the type ruleconfig.Algorithm.
func configAlgorithms() (all []ruleconfig.Algorithm) {
	for _, a := range algorithms {
		all = append(all, ruleconfig.Algorithm{Name: string(a.name), Windowed: a.windowed, Leaks: a.name == AlgorithmLeakyBucket})
	}
	return all
}

// refusals makes the errors for a rate that Rule.Resolve returned but that the rule cannot use.
var refusals = engine.Refusals{
	OtherPer: func(base, r engine.Rate) error { return algorithm{windowed: true}.otherWindow(rateOf(base), rateOf(r)) },
	TooMany: func(r engine.Rate) error {
		return &ConfigError{"rate", rateOf(r), "must be one of the 65,536 rates that a rule has at most"}
	},
}

// otherWindow returns an error if the algorithm counts in windows and a tier with the rate r has other windows than base.
// Only the day on which the months of a calendar begin may differ.
func (a algorithm) otherWindow(base, r Rate) error {
	if !a.windowed {
		return nil
	}
	return joinFaults(ruleconfig.OtherWindow(base.data(), r.data(), "must be that of the rule's rate: a window has one length"))
}
