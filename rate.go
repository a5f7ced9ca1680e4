package ratelimit

import (
	"cmp"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Rate is a limit: Requests units are granted every Per, such as 100 a minute, or in each window of a calendar, such as 10,000 a month.
//
// [PerSecond], [PerMinute], [PerHour], [PerDay] and [ParseRate] make a Rate. For 10,000 a month, it is
// Rate{Requests: 10000, Window: Calendar("month", "Europe/Berlin")}. Rates can be compared with ==. The zero Rate is invalid.
type Rate struct {
	// Requests is how many units are granted every Per. It is at least 1.
	Requests int

	// Per is the time in which Requests units are granted. It is above 0, or 0 if Window is a calendar.
	Per time.Duration

	// Burst is the largest number of units granted at once; 0 means Requests. Only [TokenBucket] and [LeakyBucket] have
	// a burst. It is at most 4,294,967,295 (2^32-1). For the other algorithms, it must be 0.
	Burst int

	// Window says which windows of time a [FixedWindow] counts in. Empty means the windows that begin at the multiples of Per
	// since the Unix epoch. Only a FixedWindow may have other windows.
	Window Window
}

// A Window says which windows of time a [FixedWindow] counts in: "first", or the text of a calendar that [Calendar] or
// [Monthly] returns, such as "month from day 15 Europe/Berlin".
//
// With "first", the windows of a key last [Rate.Per], and each begins with the first unit granted after the end of the
// one before. If all units of a window are given back, the window counts as not begun.
//
// A calendar has the days, weeks, months or years of a time zone, or of UTC if its text names none. A day begins at
// the first instant after which the local clock never shows an earlier date: mostly at midnight. So a day may have 23 or 25 hours.
// The zone is loaded from the time zone database of the machine. If it has none, the program must import time/tzdata.
type Window string

// Calendar returns the [Window] of a calendar: its unit is "day", "week" (from Monday), "month" or "year", and its zone a
// name such as "Europe/Berlin", or "" for UTC. [Rate.Validate] refuses an unknown unit or zone.
func Calendar(unit, zone string) Window { return Window(calendar.Text(unit, 1, zone)) }

// Monthly returns the [Window] of months that begin on this day, from 1 to 28, in this zone, see [Calendar].
func Monthly(day int, zone string) Window { return Window(calendar.Text("month", day, zone)) }

// Unlimited is a Rate for [Rule.Tiers] and [Rule.Resolve]. The rule then does not limit the request: it grants the
// request and charges nothing. If no other rule limits the request, Limit and Remaining are -1. The text of Unlimited
// is "unlimited". It is invalid as the Rate of a limiter or rule.
var Unlimited = unlimitedRate

var unlimitedRate = rateOf(ratetext.Unlimited)

// PerSecond returns the Rate of n units a second.
func PerSecond(n int) Rate { return Rate{Requests: n, Per: time.Second} }

// PerMinute returns the Rate of n units a minute.
func PerMinute(n int) Rate { return Rate{Requests: n, Per: time.Minute} }

// PerHour returns the Rate of n units an hour.
func PerHour(n int) Rate { return Rate{Requests: n, Per: time.Hour} }

const day = 24 * time.Hour

// PerDay returns the Rate of n units every 24 hours.
func PerDay(n int) Rate { return Rate{Requests: n, Per: day} }

// WithBurst returns the Rate r with a Burst of n: at most n units are granted at once.
func (r Rate) WithBurst(n int) Rate {
	r.Burst = n
	return r
}

// Validate returns nil if r is valid for some algorithm, and otherwise all its problems, joined. Each problem is a
// [*ConfigError]. One algorithm may still refuse a rate that Validate accepts: [FixedWindow] refuses a Burst.
func (r Rate) Validate() error { return r.faults(ruleconfig.RateFaults) }

// faults returns the mistakes that the function check finds in r, joined, or nil.
func (r Rate) faults(check func(ratetext.Rate) []ruleconfig.Fault) error {
	if r == unlimitedRate {
		return &ConfigError{"requests", r, "must be a limit: only a tier, or Resolve, makes a request unlimited"}
	}
	return joinFaults(check(r.data()))
}

// burst returns the largest number of units that the rate r grants at once.
func (r Rate) burst() int { return cmp.Or(r.Burst, r.Requests) }

// bucket returns a bucket that enforces the rate r. The error joins everything that is wrong with r.
func (r Rate) bucket() (exact.Bucket, error) {
	if err := r.faults(ruleconfig.BucketFaults); err != nil {
		return exact.Bucket{}, err
	}
	return exact.NewBucket(int64(r.Requests), int64(r.Per), int64(r.burst())), nil
}

// ParseRate returns the [Rate] that s spells, such as "100/m", "100/min", "10 per 2 minutes", "100/90s", "5/1h30m" or "100/m
// burst 20". It reads all that [Rate.String] writes. "unlimited" is [Unlimited]. An error matches [ErrInvalidConfig].
//
// Rates with a [Window] are spelled "10000/month", "10000/month from day 15 Europe/Berlin", "1000/week UTC" or "500/day from
// first". But "100/day" and "100/week" have no Window: their Per is 24 hours or 7 days, counted from the Unix epoch, a Thursday.
func ParseRate(s string) (Rate, error) {
	r, err := ratetext.Parse(s)
	if err != nil {
		return Rate{}, &ConfigError{"rate", strconv.Quote(s), err.Error()}
	}
	return rateOf(r), nil
}

// data returns r as a type of the internal packages, which rateOf converts back.
func (r Rate) data() ratetext.Rate {
	return ratetext.Rate{Requests: r.Requests, Per: r.Per, Burst: r.Burst, Window: string(r.Window)}
}

func rateOf[R engine.Rate | ratetext.Rate](r R) Rate {
	from := ratetext.Rate(r)
	return Rate{from.Requests, from.Per, from.Burst, Window(from.Window)}
}

// String returns r in a short form, such as "100/m", "100/90s burst 20" or "10000/month Europe/Berlin"; see [ParseRate].
func (r Rate) String() string { return r.data().String() }

// MarshalText returns the text of [Rate.String]. For an invalid rate, the error matches [ErrInvalidConfig].
func (r Rate) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil && r != unlimitedRate {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText sets r to the rate that [ParseRate] reads from text. If ParseRate fails, UnmarshalText returns the error and keeps r.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// A Warmup makes the limit of a new key grow. At first, the limit is From units. It grows evenly, in whole units, until
// the time Over has passed since the first grant to the key; it is then the full limit, [Rate.Requests]. The zero
// Warmup means that every key has the full limit at once.
//
// A key of a [FixedWindow], [SlidingWindowCounter] or [SlidingWindowLog] has this lower limit. A key of a bucket pays more tokens: while
// its limit is a quarter of the full limit, it pays 4 tokens for a unit, so its burst and rate are a quarter, too. The sum is rounded up.
//
// Bound: take an interval that begins after the key was new. L is the full limit, and l is the limit that the key has at the end of the
// interval. In a closed interval of length T, a bucket grants at most (Burst + T·L/Per)·l/L units. A fixed window grants at most l units
// in each window. In a half-open interval of length Per, a log grants at most l units, and a counter at most 2·l - 1.
//
// A key ages with time, whether it is used or not. But once nothing has been counted against a key for the time Over,
// the age of the key is forgotten, and the key is new again. So [WithMaxKeys] should have room for all clients that come
// within the time Over. A key for which there is no room, so that it has no state of its own, does not age.
//
// [Result.Limit] is the full limit, and [Result.Remaining] is what the key would be granted now. If a request for a new
// key needs more than From, it is denied with a RetryAfter of [Never]: the key does not age before its first grant.
// [Result.ResetAfter] is at least the time until the key has the full limit.
type Warmup struct {
	From int           // units that a new key is granted; from 1 to Rate.Requests
	Over time.Duration // time from the first grant to the full limit; from a microsecond to 366 days
}

// engine converts w to the type of the package engine. It returns nil if w is zero.
func (w Warmup) engine() *engine.Warmup {
	if w == (Warmup{}) {
		return nil
	}
	return &engine.Warmup{From: int64(w.From), Over: w.Over}
}

// fits returns an error if the Warmup w would grant a new key no unit at the rate r, and otherwise nil.
func (w Warmup) fits(r Rate) error { return joinFaults(ruleconfig.Warmup(w).Misfit(r.data())) }

// validate returns all errors that make the Warmup w invalid for every rate, joined, or nil. Each error names a field of Warmup.
func (w Warmup) validate() error { return joinFaults(ruleconfig.Warmup(w).Faults()) }

// A Penalty makes a rule block a key for some time after many denials. The zero Penalty blocks no key.
//
// A denial by the rule is a strike. If a key has After strikes within the time Within, it is blocked for the time For: all
// its requests are denied, with [ReasonPenalty]. While a key is blocked, denials are no strikes, so a client who goes on
// sending is not blocked for longer. A denial is a strike only if the key's own state denies, and the request does
// not wait. A denial because others wait, a denial by a [FailurePolicy], and the repeated answer of a retry are no strikes.
//
// [RateLimiter.Reset] ends the block of a key, and so does an [Override] with [EffectPardon].
type Penalty struct {
	After  int           // how many denials begin a block: at least 1; 0 only in the zero Penalty
	Within time.Duration // how long strikes count together, from the first one: from a microsecond to 366 days
	For    time.Duration // how long the first block lasts: from a microsecond to 366 days

	// If Most is not 0, and a block begins less than Most after the end of the block before it, it lasts twice as long as
	// that block, but no longer than Most. Most is at least For, and at most 366 days.
	Most time.Duration
}

// validate returns all errors that make the Penalty p invalid, joined, or nil. Each error names a field of Penalty.
func (p Penalty) validate() error { return joinFaults(ruleconfig.Penalty(p).Faults()) }
