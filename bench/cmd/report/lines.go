package main

import (
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/bench"
)

// A line is one measurement: a row of the report. To add a measurement, add a line to one of the
// functions below that return lines. If the line measures a new subject, add the subject to
// bench.Specs.
type line struct {
	work     string                      // what is measured: the row's first column
	headline string                      // the row's name in the opening table; empty if the row is not in the opening table
	group    string                      // the heading above the row; the function named group sets it
	cells    []cell                      // subjects, each under a workload, to time before read is called
	read     func(*lab) (reading, error) // computes the figure
}

// titled returns a copy of the line l with the given headline. With a headline, the line also
// appears in the report's opening table.
func (l line) titled(headline string) line {
	l.headline = headline
	return l
}

// A reading is the result of the measurement for one line of the report.
type reading struct {
	value    float64 // the figure, in nanoseconds, bytes, allocations or decisions a second
	measured string  // the figure as text, with its unit and with details
	best     string  // the best figure of all rounds, as text; empty if the line is measured only once and not in rounds
	base     ratio   // how the figure compares with the base, such as the same work without a feature
	peer     ratio   // the figure divided by the figure of the fastest peer (limiter of another module)
}

// A ratio is the ratio of two figures. The zero ratio means that there is nothing to compare with.
type ratio struct {
	value float64
	text  string // such as "1.24 × floor (48.0 ns)"
}

// sizes holds how much a report measures.
type sizes struct {
	few, many, most int           // number of keys in a small, a large and the largest table
	rounds          int           // how often each subject is timed; a figure is the median of its rounds
	batch           time.Duration // how long a subject is timed in a round
	runs            int           // number of passes (sequences of timed calls) in the search for the slowest call
	serverKeys      int           // number of keys in a large table in Redis or PostgreSQL
	redisTurn       time.Duration // how long a subject in Redis is timed in a round
	postgresTurn    time.Duration // how long a subject in PostgreSQL is timed in a round
	strict          bool          // whether the report fails if too many or too few calls were allowed
}

var (
	full = sizes{
		few: 1000, many: 1_000_000, most: 10_000_000, rounds: 15, batch: 40 * time.Millisecond, runs: 5,
		serverKeys: 10_000, redisTurn: 100 * time.Millisecond, postgresTurn: 200 * time.Millisecond, strict: true,
	}
	quick = sizes{
		few: 1000, many: 10_000, most: 100_000, rounds: 3, batch: 5 * time.Millisecond, runs: 1,
		serverKeys: 1000, redisTurn: 20 * time.Millisecond, postgresTurn: 20 * time.Millisecond,
	}
)

// lines returns all lines of the report, in order.
func lines(s sizes) []line {
	return slices.Concat(
		group("One limiter, one key", limiterLines()),
		group("Windows that turn", windowLines()),
		group("Rules", ruleLines()),
		group("HTTP and gRPC", middlewareLines()),
		group("All cores, many keys, memory", tableLines(s)),
		group("Redis", redisLines(s)),
		group("PostgreSQL", postgresLines(s)),
	)
}

// group gives all lines in ls the same heading, in their field group. It returns ls.
func group(heading string, ls []line) []line {
	for i := range ls {
		ls[i].group = heading
	}
	return ls
}

var (
	one       = bench.Workload{Keys: 1, Outcome: bench.Allowed}
	oneDenied = bench.Workload{Keys: 1, Outcome: bench.Denied}

	oneEven       = bench.Workload{Keys: 1, Outcome: bench.Allowed, Even: true}
	oneEvenDenied = bench.Workload{Keys: 1, Outcome: bench.Denied, Even: true}
)

// limiterLines returns the lines of the report that measure a limiter without rules, on one key.
func limiterLines() []line {
	mixed := bench.Workload{Keys: 1, Outcome: bench.Mixed}
	long := bench.Workload{Keys: 1, Names: bench.Long, Outcome: bench.Allowed}
	return []line{
		bucketLine("TokenBucket.Allow, one key, serial", oneEven).titled("One limiter decides: `TokenBucket.Allow`, one key"),
		bucketLine("TokenBucket.Allow, one key, serial, denied", oneEvenDenied),
		bucketLine("TokenBucket.Allow, one key, serial, uneven: "+rateOf("tokenbucket", one), one),
		bucketLine("TokenBucket.Allow, one key, serial, uneven: "+rateOf("tokenbucket", oneDenied)+", denied", oneDenied),

		overFloor("FixedWindow.Allow, one key, serial", "fixedwindow", one),
		overFloor("FixedWindow.Allow, one key, serial, denied", "fixedwindow", oneDenied),
		over("FixedWindow.Allow, months of Europe/Berlin, one key, serial", "fixedwindow-calendar", "fixedwindow", "since the epoch", one),
		over("FixedWindow.Allow, from the first use, one key, serial", "fixedwindow-first", "fixedwindow", "since the epoch", one),
		overFloor("SlidingWindowCounter.Allow, one key, serial", "slidingwindowcounter", one),
		overFloor("SlidingWindowCounter.Allow, one key, serial, denied", "slidingwindowcounter", oneDenied),
		overFloor("LeakyBucket.Allow, one key, serial", "leakybucket", oneEven),
		overFloor("LeakyBucket.Allow, one key, serial, denied", "leakybucket", oneEvenDenied),
		overFloor("LeakyBucket.Allow, one key, serial, uneven: "+rateOf("leakybucket", one), "leakybucket", one),
		overFloor("LeakyBucket.Allow, one key, serial, uneven: "+rateOf("leakybucket", oneDenied)+", denied", "leakybucket", oneDenied),
		overFloor("SlidingWindowLog.Allow, one key, serial", "slidingwindowlog", one),
		overFloor("SlidingWindowLog.Allow, one key, serial, denied", "slidingwindowlog", oneDenied),

		bucketLine("TokenBucket.Allow, mixed: "+rateOf("tokenbucket", mixed), mixed),
		overFloor("LeakyBucket.Allow, mixed: "+rateOf("leakybucket", mixed), "leakybucket", mixed),
		bucketLine("TokenBucket.Allow, long keys of 64 bytes", long),
		overFloor("TokenBucket.Take of 5 units", "tokenbucket-take-5", one),
		overFloor("TokenBucket.Take of 5 units, denied", "tokenbucket-take-5", oneDenied),
	}
}

// windowLines returns the lines of the report that measure limiters whose windows end during the
// run. In the window before each measured window, units were used too.
func windowLines() (table []line) {
	for _, a := range []struct{ name, algo string }{
		{"FixedWindow", "fixedwindow"},
		{"SlidingWindowCounter", "slidingwindowcounter"},
		{"SlidingWindowLog", "slidingwindowlog"},
	} {
		for _, w := range []bench.Workload{
			{Keys: 1, Outcome: bench.Allowed, Window: time.Second},
			{Keys: 1, Outcome: bench.Denied, Window: time.Second},
			{Keys: 1, Outcome: bench.Allowed, Window: 10 * time.Millisecond},
			{Keys: 1, Outcome: bench.Denied, Window: 10 * time.Millisecond},
			{Keys: 1, Outcome: bench.Allowed, Window: time.Millisecond}, // only for the sliding window log
		} {
			if s, err := bench.Find(a.algo); err != nil || !s.Can(w) || w.Window == time.Millisecond && a.algo != "slidingwindowlog" {
				continue
			}
			work := a.name + ".Allow, windows that turn: " + rateOf(a.algo, w)
			if w.Outcome == bench.Denied {
				work += ", mostly denied"
			}
			table = append(table, overFloor(work, a.algo, w))
		}
	}
	return table
}

// rateOf returns the rate that a subject has under the workload w, in the text form of
// [ratelimit.Rate.String]. The parameter algo is the subject's name.
func rateOf(algo string, w bench.Workload) string {
	s, err := bench.Find(algo)
	if err != nil {
		return err.Error()
	}
	l := s.Limit(w)
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per, Burst: l.Burst}.String()
}

// ruleLines returns the lines of the report that measure a RateLimiter with a hundred rules.
func ruleLines() []line {
	return []line{
		overFloor("RateLimiter.Allow, 100 rules by user", "rules-user", one).titled("One rule of 100 decides: `RateLimiter.Allow`"),
		overFloor("RateLimiter.Allow, 100 rules by user, denied", "rules-user", oneDenied),
		overFloor("RateLimiter.Allow, 100 rules by endpoint", "rules-endpoint", one),
		overFloor("RateLimiter.Allow, 100 rules by user and endpoint", "rules-user-endpoint", one),
		overFloor("RateLimiter.Allow, 100 rules by IP", "rules-ip", one),
		overFloor("RateLimiter.Allow, 100 global rules", "rules-global", one),
		overFloor("RateLimiter.Allow, 100 rules by user, every endpoint in turn", "rules-every-endpoint", one),
		overFloor("RateLimiter.Check, 100 rules by user", "rules-check-user", one),
		overFloor("RateLimiter.Check, 100 rules by user, denied", "rules-check-user", oneDenied),
		overFloor("RateLimiter.Check, 100 rules by endpoint", "rules-check-endpoint", one),
		overFloor("RateLimiter.Check, 100 rules by user and endpoint", "rules-check-user-endpoint", one),
		overFloor("RateLimiter.Check, 100 rules by IP", "rules-check-ip", one),
		overFloor("RateLimiter.Check, 100 global rules", "rules-check-global", one),
		overFloor("RateLimiter.Check, 100 rules with three tiers each", "rules-tiers", one),
		overFloor("RateLimiter.Check, 100 rules with three tiers each, denied", "rules-tiers", oneDenied),
		overFloor("RateLimiter.Allow, 100 rules by user with FixedWindow", "rules-fixedwindow", one),
		over("RateLimiter.Allow, 100 rules by user with FixedWindow, months of Europe/Berlin", "rules-fixedwindow-calendar",
			"rules-fixedwindow", "since the epoch", one),
		over("RateLimiter.Allow, 100 rules by user with FixedWindow, from the first use", "rules-fixedwindow-first",
			"rules-fixedwindow", "since the epoch", one),
		overFloor("RateLimiter.Allow, two rules in one decision", "rules-two", one).titled("Two rules decide together"),
		overFloor("RateLimiter.Allow, two rules in one decision, denied", "rules-two", oneDenied),
		overFloor("RateLimiter.Check, two rules in one decision", "rules-check-two", one),
		overFloor("RateLimiter.Check, 100 rules by user, an observer", "rules-observer", one).
			titled("One rule of 100 decides, and an observer is told"),
		overFloor("RateLimiter.Check, 100 rules by user, an observer, denied", "rules-observer", oneDenied),
		overFloor("RateLimiter.Check, a shadow rule beside each rule", "rules-shadow", one),
		overFloor("RateLimiter.Check, a shadow rule beside each rule, denied", "rules-shadow", oneDenied),
		over("RateLimiter.Reserve and Settle", "rules-reserved", "rules-check-user", "Check", one),
		over("RateLimiter.Check, an ID that was granted before", "rules-replayed", "rules-check-user", "Check", one),
		over("RateLimiter.Check, a warm-up, keys grown", "rules-grown", "rules-check-user", "Check", one),
		over("RateLimiter.Check, a warm-up, keys young", "rules-young", "rules-check-user", "Check", one),
		over("RateLimiter.Allow, statistics read all the time", "rules-stats", "rules-user", "without", one),
		over("RateLimiter.Allow, dead store under FailLocal", "rules-dead-store", "rules-user", "without a store", one),
		over("RateLimiter.Allow, dead store under FailLocal, denied", "rules-dead-store", "rules-user", "without a store", oneDenied),
	}
}

// tableLines returns the lines of the report that measure large numbers of keys, calls from all
// cores, and the memory for keys.
func tableLines(s sizes) []line {
	var (
		hot       = bench.Workload{Keys: 1, Outcome: bench.Allowed, Parallel: true}
		hotDenied = bench.Workload{Keys: 1, Outcome: bench.Denied, Parallel: true}
		wide      = bench.Workload{Keys: s.many, Outcome: bench.Allowed, Parallel: true}
		wideDeny  = bench.Workload{Keys: s.many, Outcome: bench.Denied, Parallel: true}

		many = bench.Count(s.many)
		most = bench.Count(s.most)
	)
	return []line{
		bucketLine("TokenBucket.Allow, "+many+" keys, uniform, all cores", wide),
		bucketLine("TokenBucket.Allow, "+many+" keys, uniform, all cores, denied", wideDeny),
		bucketLine("TokenBucket.Allow, one hot key, all cores", hot),
		bucketLine("TokenBucket.Allow, one hot key, all cores, denied", hotDenied),

		allocations("Allocations for a known key, every algorithm, allowed and denied"),
		bytesPerKey("Bytes per key, all in, "+many+" keys of 24 bytes, TokenBucket", s.many).
			titled("Memory for each of " + many + " keys, in bytes"),
		bytesPerKeyOfARule("Bytes per key of a rule, "+many+" keys of 24 bytes, TokenBucket", s.many),
		collection("Extra time of a forced collection, "+most+" keys held", s.most).
			titled("Extra time of a garbage collection, " + most + " keys held"),
		slowestGrowing("Slowest single Allow while growing to "+most+" keys", s.most),
		slowestFlooded("Slowest single Allow at MaxKeys of "+many+" under a flood", s.many),
		growth("TokenBucket.Allow, growth from "+bench.Count(s.few)+" to "+most+" keys, serial", s.few, s.most),
	}
}
