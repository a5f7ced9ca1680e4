package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/bench"
)

// A line is one promise: a work, the most that it may cost, and how to find
// out what it does cost. A new promise is a new line in the table below; a new
// subject is a new line in bench.Specs.
type line struct {
	work   string
	target string                      // the bound as a reader wants it
	bound  float64                     // the most that reading.value may be
	cells  []cell                      // what has to be timed before
	read   func(*lab) (reading, error) // takes the figure
	chosen bool                        // whether it is one of the few of the summary
}

// inSummary returns l as one of the few lines of the summary.
func (l line) inSummary() line {
	l.chosen = true
	return l
}

// A reading is the figure of a line.
type reading struct {
	value    float64 // what the line's bound is about
	measured string
	ratio    string // empty where the bound is no ratio
}

// sizes are how much a report does.
type sizes struct {
	few, many, most int           // keys: of a small, a large and the largest table
	rounds          int           // how often each subject is timed
	batch           time.Duration // how long it is timed in a round
	runs            int           // how often a slowest ask is looked for
	redisKeys       int           // keys of a large table in Redis
	redisTurn       time.Duration // how long a subject in Redis is asked in a round
	strict          bool          // whether workloads must be what they claim to be
}

var (
	full = sizes{
		few: 1000, many: 1_000_000, most: 10_000_000, rounds: 15, batch: 40 * time.Millisecond, runs: 5,
		redisKeys: 10_000, redisTurn: 100 * time.Millisecond, strict: true,
	}
	quick = sizes{
		few: 1000, many: 10_000, most: 100_000, rounds: 3, batch: 5 * time.Millisecond, runs: 1,
		redisKeys: 1000, redisTurn: 20 * time.Millisecond,
	}
)

// lines is the table of what is promised.
func lines(s sizes) []line {
	return slices.Concat(limiterLines(), windowLines(), ruleLines(), httpLines(), grpcLines(), tableLines(s), redisLines(s))
}

var (
	one       = bench.Workload{Keys: 1, Outcome: bench.Allowed}
	oneDenied = bench.Workload{Keys: 1, Outcome: bench.Denied}

	oneEven       = bench.Workload{Keys: 1, Outcome: bench.Allowed, Even: true}
	oneEvenDenied = bench.Workload{Keys: 1, Outcome: bench.Denied, Even: true}
)

// limiterLines are about a limiter by itself, with one key.
func limiterLines() []line {
	mixed := bench.Workload{Keys: 1, Outcome: bench.Mixed}
	long := bench.Workload{Keys: 1, Names: bench.Long, Outcome: bench.Allowed}
	return []line{
		overFloor("TokenBucket.Allow, one key, serial", "tokenbucket", oneEven, 1.15).inSummary(),
		overFloor("TokenBucket.Allow, one key, serial, denied", "tokenbucket", oneEvenDenied, 1.15),
		overFloor("TokenBucket.Allow, one key, serial, uneven: "+rateOf("tokenbucket", one), "tokenbucket", one, 1.15),
		overFloor("TokenBucket.Allow, one key, serial, uneven: "+rateOf("tokenbucket", oneDenied)+", denied", "tokenbucket", oneDenied, 1.15),
		overPeers("TokenBucket.Allow, one key, serial", one, 0.85).inSummary(),
		overPeers("TokenBucket.Allow, one key, serial, denied", oneDenied, 0.85),

		overFloor("FixedWindow.Allow, one key, serial", "fixedwindow", one, 1.3),
		overFloor("FixedWindow.Allow, one key, serial, denied", "fixedwindow", oneDenied, 1.3),
		overFloor("SlidingWindowCounter.Allow, one key, serial", "slidingwindowcounter", one, 1.3),
		overFloor("SlidingWindowCounter.Allow, one key, serial, denied", "slidingwindowcounter", oneDenied, 1.3),
		overFloor("LeakyBucket.Allow, one key, serial", "leakybucket", oneEven, 1.3),
		overFloor("LeakyBucket.Allow, one key, serial, denied", "leakybucket", oneEvenDenied, 1.3),
		overFloor("LeakyBucket.Allow, one key, serial, uneven: "+rateOf("leakybucket", one), "leakybucket", one, 1.3),
		overFloor("LeakyBucket.Allow, one key, serial, uneven: "+rateOf("leakybucket", oneDenied)+", denied", "leakybucket", oneDenied, 1.3),
		overFloor("SlidingWindowLog.Allow, one key, serial", "slidingwindowlog", one, 1.6),
		overFloor("SlidingWindowLog.Allow, one key, serial, denied", "slidingwindowlog", oneDenied, 1.6),

		overFloor("TokenBucket.Allow, mixed: "+rateOf("tokenbucket", mixed), "tokenbucket", mixed, 1.3),
		overFloor("LeakyBucket.Allow, mixed: "+rateOf("leakybucket", mixed), "leakybucket", mixed, 1.3),
		overPeers("TokenBucket.Allow, mixed: "+rateOf("tokenbucket", mixed), mixed, 0.85),
		overFloor("TokenBucket.Allow, long keys of 64 bytes", "tokenbucket", long, 1.3),
		overPeers("TokenBucket.Allow, long keys of 64 bytes", long, 0.85),
		overFloor("TokenBucket.Take of 5 units", "tokenbucket-take-5", one, 1.5),
		overFloor("TokenBucket.Take of 5 units, denied", "tokenbucket-take-5", oneDenied, 1.5),
	}
}

// windowLines are about windows that turn, of which the one before has left a count.
func windowLines() (table []line) {
	for _, a := range []struct {
		name, algo string
		bound      float64
	}{
		{"FixedWindow", "fixedwindow", 1.2},
		{"SlidingWindowCounter", "slidingwindowcounter", 1.3},
		{"SlidingWindowLog", "slidingwindowlog", 1.6},
	} {
		for _, w := range []bench.Workload{
			{Keys: 1, Outcome: bench.Allowed, Window: time.Second},
			{Keys: 1, Outcome: bench.Denied, Window: time.Second},
			{Keys: 1, Outcome: bench.Allowed, Window: 10 * time.Millisecond},
			{Keys: 1, Outcome: bench.Denied, Window: 10 * time.Millisecond},
			{Keys: 1, Outcome: bench.Allowed, Window: time.Millisecond}, // for the log
		} {
			if s, err := bench.Find(a.algo); err != nil || !s.Can(w) || w.Window == time.Millisecond && a.algo != "slidingwindowlog" {
				continue
			}
			work := a.name + ".Allow, windows that turn: " + rateOf(a.algo, w)
			if w.Outcome == bench.Denied {
				work += ", mostly denied"
			}
			l := overFloor(work, a.algo, w, a.bound)
			l.chosen = a.algo == "slidingwindowcounter" && w.Outcome == bench.Denied && w.Window == time.Second
			table = append(table, l)
		}
	}
	return table
}

// rateOf returns the rate of a subject under w, as the module writes it.
func rateOf(algo string, w bench.Workload) string {
	s, err := bench.Find(algo)
	if err != nil {
		return err.Error()
	}
	l := s.Limit(w)
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per, Burst: l.Burst}.String()
}

// checkBound is what Check may cost with one rule: Allow's 1.8, and what it takes to hand over
// a Request.
const checkBound = 1.9

// ruleLines are about a RateLimiter.
func ruleLines() []line {
	return []line{
		overFloor("RateLimiter.Allow, 100 rules by user", "rules-user", one, 1.8).inSummary(),
		overFloor("RateLimiter.Allow, 100 rules by user, denied", "rules-user", oneDenied, 1.8),
		overFloor("RateLimiter.Allow, 100 rules by endpoint", "rules-endpoint", one, 1.8),
		overFloor("RateLimiter.Allow, 100 rules by user and endpoint", "rules-user-endpoint", one, 1.8),
		overFloor("RateLimiter.Allow, 100 rules by IP", "rules-ip", one, 1.8),
		overFloor("RateLimiter.Allow, 100 global rules", "rules-global", one, 1.8),
		overFloor("RateLimiter.Allow, 100 rules by user, every endpoint in turn", "rules-every-endpoint", one, 1.8),
		overFloor("RateLimiter.Check, 100 rules by user", "rules-check-user", one, checkBound),
		overFloor("RateLimiter.Check, 100 rules by user, denied", "rules-check-user", oneDenied, checkBound),
		overFloor("RateLimiter.Check, 100 rules by endpoint", "rules-check-endpoint", one, checkBound),
		overFloor("RateLimiter.Check, 100 rules by user and endpoint", "rules-check-user-endpoint", one, checkBound),
		overFloor("RateLimiter.Check, 100 rules by IP", "rules-check-ip", one, checkBound),
		overFloor("RateLimiter.Check, 100 global rules", "rules-check-global", one, checkBound),
		overFloor("RateLimiter.Check, 100 rules with three tiers each", "rules-tiers", one, 2.5).inSummary(),
		overFloor("RateLimiter.Check, 100 rules with three tiers each, denied", "rules-tiers", oneDenied, 2.5),
		overFloor("RateLimiter.Check, 100 rules by user, an observer", "rules-observer", one, 3),
		overFloor("RateLimiter.Check, 100 rules by user, an observer, denied", "rules-observer", oneDenied, 3),
		overFloor("RateLimiter.Check, a shadow rule beside each rule", "rules-shadow", one, 3.5),
		overFloor("RateLimiter.Check, a shadow rule beside each rule, denied", "rules-shadow", oneDenied, 3.5),
		overFloor("RateLimiter.Allow, two rules in one decision", "rules-two", one, 3).inSummary(),
		overFloor("RateLimiter.Allow, two rules in one decision, denied", "rules-two", oneDenied, 3),
		overFloor("RateLimiter.Check, two rules in one decision", "rules-check-two", one, 3),
		over("RateLimiter.Reserve and Settle", "rules-reserved", "rules-check-user", "Check", one, 2.5),
		over("RateLimiter.Check, an ID that was granted before", "rules-replayed", "rules-check-user", "Check", one, 2),
		over("RateLimiter.Check, a warm-up, keys grown", "rules-grown", "rules-check-user", "Check", one, 1.3),
		over("RateLimiter.Check, a warm-up, keys young", "rules-young", "rules-check-user", "Check", one, 1.3),
		over("RateLimiter.Allow, statistics read all the time", "rules-stats", "rules-user", "without", one, 1.05),
		over("RateLimiter.Allow, dead store under FailLocal", "rules-dead-store", "rules-user", "without a store", one, 2),
		over("RateLimiter.Allow, dead store under FailLocal, denied", "rules-dead-store", "rules-user", "without a store", oneDenied, 2),
	}
}

// tableLines are about all cores, many keys and the memory of them.
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
		overPeers("TokenBucket.Allow, "+many+" keys, uniform, all cores", wide, 0.5).inSummary(),
		overPeers("TokenBucket.Allow, "+many+" keys, uniform, all cores, denied", wideDeny, 0.5),
		overPeers("TokenBucket.Allow, one hot key, all cores", hot, 1),
		overPeers("TokenBucket.Allow, one hot key, all cores, denied", hotDenied, 1),

		allocations("Allocations for a known key, every algorithm, allowed and denied"),
		bytesPerKey("Bytes per key, all in, "+many+" keys of 24 bytes, TokenBucket", s.many, 72).inSummary(),
		collection("Extra time of a forced collection, "+most+" keys held", s.most, 10*time.Millisecond),
		slowestGrowing("Slowest single Allow while growing to "+most+" keys", s.most, time.Millisecond),
		slowestFlooded("Slowest single Allow at MaxKeys of "+many+" under a flood", s.many, time.Millisecond),
		growth("TokenBucket.Allow, growth from "+bench.Count(s.few)+" to "+most+" keys, serial", s.few, s.most),
	}
}

// overFloor promises at most bound times what the floor costs.
func overFloor(work, algo string, w bench.Workload, bound float64) line {
	return over(work, algo, "floor", "floor", w, bound)
}

// over promises at most bound times what base costs, which readers know as name.
func over(work, algo, base, name string, w bench.Workload, bound float64) line {
	mine, than := cell{algo, w}, cell{base, w}
	target := fmt.Sprintf("≤ %.4g × %s", bound, name)
	return line{work: work, target: target, bound: bound, cells: []cell{mine, than},
		read: func(l *lab) (reading, error) {
			r := l.ratio(mine, than)
			return reading{
				value:    r,
				measured: fmt.Sprintf("%s; %s %s%s", nanos(l.median(mine)), name, nanos(l.median(than)), l.share(mine)),
				ratio:    fmt.Sprintf("%.2f", r),
			}, nil
		}}
}

// overPeers promises that a TokenBucket costs at most bound times what the fastest
// peer does.
func overPeers(work string, w bench.Workload, bound float64) line {
	mine := cell{"tokenbucket", w}
	timed := []cell{mine}
	var peers []cell
	for _, s := range bench.Specs() {
		switch {
		case !s.Can(w):
		case s.Kind == bench.Peer:
			peers = append(peers, cell{s.Name, w})
			fallthrough
		case s.Kind == bench.Unkeyed:
			timed = append(timed, cell{s.Name, w})
		}
	}
	target := fmt.Sprintf("≤ %.4g × fastest peer", bound)
	return line{work: work, target: target, bound: bound, cells: timed,
		read: func(l *lab) (reading, error) {
			best := l.fastest(peers)
			r := l.ratio(mine, best)
			return reading{
				value:    r,
				measured: fmt.Sprintf("%s; %s %s%s", nanos(l.median(mine)), best.algo, nanos(l.median(best)), l.share(mine)),
				ratio:    fmt.Sprintf("%.2f", r),
			}, nil
		}}
}

// growth promises that a limiter slows down by no larger a factor than one
// lookup in a bare map, when both grow from few keys to most.
func growth(work string, few, most int) line {
	at := func(algo string, keys int) cell {
		return cell{algo, bench.Workload{Keys: keys, Outcome: bench.Allowed}}
	}
	mine := [2]cell{at("tokenbucket", few), at("tokenbucket", most)}
	bare := [2]cell{at("map", few), at("map", most)}
	return line{work: work, target: "factor ≤ a bare map's", bound: 1, cells: []cell{mine[0], mine[1], bare[0], bare[1]},
		read: func(l *lab) (reading, error) {
			factor := l.median(mine[1]) / l.median(mine[0])
			allowed := l.median(bare[1]) / l.median(bare[0])
			return reading{
				value: factor / allowed,
				measured: fmt.Sprintf("%s → %s; map %s → %s",
					nanos(l.median(mine[0])), nanos(l.median(mine[1])),
					nanos(l.median(bare[0])), nanos(l.median(bare[1]))),
				ratio: fmt.Sprintf("×%.1f; map ×%.1f", factor, allowed),
			}, nil
		}}
}

// nanos writes nanoseconds with three digits or so.
func nanos(ns float64) string {
	if ns < 100 {
		return fmt.Sprintf("%.1f ns", ns)
	}
	return fmt.Sprintf("%.0f ns", ns)
}
