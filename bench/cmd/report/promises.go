package main

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"
)

// A promise is a bound on a figure. The bound has held, with a margin, on every machine on which
// the report was run. A full report fails if a promise is broken. A quick report checks only those
// promises that do not depend on how busy the machine is.
type promise struct {
	says  string // the promise in words, up to the bound: "A limiter decides in"
	bound string // the bound in words, such as "at most 2 × floor"
	limit float64
	least bool           // true: the limit is a minimum; false: the limit is a maximum
	lines *regexp.Regexp // matches the names (field work) of the lines to which the promise applies
	of    number         // what the promise bounds: the figure of a line or one of its ratios
	quick bool           // whether a quick report checks the promise too
}

// A number selects what a promise bounds: the figure of a line, or one of the line's two ratios.
type number int

const (
	ofValue number = iota // the figure itself
	ofBase                // the ratio to the base: the figure with which the line compares its own figure
	ofPeer                // the ratio to the fastest peer (limiter of another module)
)

// The method named "in" returns the number that n selects from the reading r.
func (n number) in(r reading) float64 {
	switch n {
	case ofBase:
		return r.base.value
	case ofPeer:
		return r.peer.value
	default:
		return r.value
	}
}

// written returns the number that n selects from the reading r, as text.
func (n number) written(r reading) string {
	if n != ofValue {
		return fmt.Sprintf("%.2f", n.in(r))
	}
	figure, _, _ := strings.Cut(r.measured, ";")
	return figure
}

// promises returns all promises, in the order of the report. Each limit leaves a margin: the worst
// figure in any report so far is at least 10 % better than the limit. The margins of bytes and
// allocations may be smaller, because these figures do not vary.
func promises() []promise {
	works := regexp.MustCompile
	return []promise{
		{says: "A decision on a known key allocates nothing", bound: "0", limit: 0,
			lines: works(`^Allocations for a known key`), of: ofValue, quick: true},
		{says: "A token bucket's key of 24 bytes takes", bound: "at most 72 bytes", limit: 72,
			lines: works(`^Bytes per key, all in`), of: ofValue, quick: true},
		{says: "The same key of a rule takes", bound: "at most 80 bytes", limit: 80,
			lines: works(`^Bytes per key of a rule`), of: ofValue},
		{says: "A limiter decides in", bound: "at most 1.6 × floor", limit: 1.6,
			lines: works(`^(TokenBucket|LeakyBucket|FixedWindow|SlidingWindowCounter)\.Allow, (one key, serial|mixed|long|windows)`), of: ofBase},
		{says: "With windows of a calendar, or from the first use, a fixed window decides in",
			bound: "at most 1.3 × windows since the epoch", limit: 1.3,
			lines: works(`, (months of|from the first use)`), of: ofBase},
		{says: "A sliding window log decides in", bound: "at most 2 × floor", limit: 2,
			lines: works(`^SlidingWindowLog\.Allow, `), of: ofBase},
		{says: "A token bucket decides in", bound: "at most 0.95 × the fastest peer", limit: 0.95,
			lines: works(`^TokenBucket\.Allow, (one key, serial|mixed|long)`), of: ofPeer},
		{says: "One rule of 100 decides in", bound: "at most 2.6 × floor", limit: 2.6,
			lines: works(`^RateLimiter\.(Allow|Check), 100 (global rules|rules by [^,]*)(, denied|, every endpoint in turn)?$`), of: ofBase},
		{says: "Two rules, a rule with a shadow rule, or a rule with an observer decide in", bound: "at most 4.5 × floor", limit: 4.5,
			lines: works(`two rules in one decision|a shadow rule|an observer`), of: ofBase},
		{says: "On 1M keys and all cores, a token bucket decides in", bound: "at most 0.75 × the fastest peer", limit: 0.75,
			lines: works(`^TokenBucket\.Allow, \w+ keys, uniform, all cores`), of: ofPeer},
		{says: "From 1k to 10M keys a token bucket slows down by", bound: "at most 0.6 × a bare map's factor", limit: 0.6,
			lines: works(`^TokenBucket\.Allow, growth`), of: ofBase},
		{says: "10M keys make a garbage collection longer by", bound: "at most 15 ms", limit: millisecond(15),
			lines: works(`^Extra time of a forced collection`), of: ofValue},
		{says: "Beyond the pauses of the machine, the slowest call among new keys takes", bound: "at most 2 ms", limit: millisecond(2),
			lines: works(`^Slowest single Allow`), of: ofValue},
		{says: "The HTTP middleware and the gRPC interceptor add to a request", bound: "at most 2000 ns", limit: 2000,
			lines: works(`a handler, over|a ServeMux, over|a unary call, over`), of: ofValue},
		{says: "In Redis, 64 callers of one key get", bound: "at least 3 × redis_rate's decisions", limit: 3, least: true,
			lines: works(`^Redis: TokenBucket\.Take, one hot key, 64`), of: ofBase},
		{says: "In Redis, 64 callers of 10k keys get", bound: "at least 1.4 × redis_rate's decisions", limit: 1.4, least: true,
			lines: works(`^Redis: TokenBucket\.Take, \w+ keys, uniform, 64`), of: ofBase},
		{says: "With Redis, a denial that is known here needs no call and takes", bound: "at most 5 × floor", limit: 5,
			lines: works(`^Redis: .*, serial, denied$`), of: ofBase},
		{says: "In Redis, a token bucket's key of 24 bytes takes", bound: "at most 1.5 × redis_rate's bytes", limit: 1.5,
			lines: works(`^Redis: bytes per key`), of: ofBase, quick: true},
	}
}

// millisecond converts n milliseconds to nanoseconds, the unit of all times in a reading.
func millisecond(n float64) float64 { return n * float64(time.Millisecond) }

// A verdict is the result of checking one promise.
type verdict struct {
	promise
	worst  row // the row that comes closest to breaking the promise, or breaks it by most
	status string
}

// The possible statuses of a verdict.
const (
	kept       = "holds"
	broken     = "BROKEN"
	notChecked = "not checked"
)

// check returns a verdict on each promise that bounds at least one of the rows. If isQuick is true,
// the promises that a quick report leaves out get the status notChecked.
func check(rows []row, isQuick bool) (verdicts []verdict) {
	for _, p := range promises() {
		v := verdict{promise: p}
		for _, r := range rows {
			if !r.missing && p.lines.MatchString(r.work) && (v.status == "" || p.worse(p.of.in(r.reading), p.of.in(v.worst.reading))) {
				v.worst, v.status = r, kept
			}
		}
		switch {
		case v.status == "":
			continue
		case isQuick && !p.quick:
			v.status = notChecked
		case !p.keeps(p.of.in(v.worst.reading)):
			v.status = broken
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// keeps reports whether the figure x is within the limit. NaN is not within the limit.
func (p promise) keeps(x float64) bool {
	if p.least {
		return x >= p.limit
	}
	return x <= p.limit
}

// worse reports whether the figure x is closer to breaking the promise p than the figure y, or
// breaks it by more. NaN is worse than any number.
func (p promise) worse(x, y float64) bool {
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return math.IsNaN(x)
	case p.least:
		return x < y
	}
	return x > y
}

// allHold returns false if one of the promises is broken.
func allHold(verdicts []verdict) bool {
	for _, v := range verdicts {
		if v.status == broken {
			return false
		}
	}
	return true
}

// figure returns a text with the worst of the figures that the promise bounds, and with the name of
// its row.
func (v verdict) figure() string { return v.of.written(v.worst.reading) + ": " + v.worst.work }
