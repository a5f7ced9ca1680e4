package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A Rate is a limit: Requests units are granted every Per, such as 100 a minute.
//
// [PerSecond], [PerMinute], [PerHour], [PerDay] and [ParseRate] make a Rate. Rates can be
// compared with ==. The zero Rate is invalid.
type Rate struct {
	// Requests is how many units are granted every Per. It is at least 1.
	Requests int

	// Per is the time in which Requests units are granted. It is above 0.
	Per time.Duration

	// Burst is the largest number of units granted at once; 0 means Requests. Only
	// [TokenBucket] and [LeakyBucket] have a burst; for the other algorithms it must be 0.
	Burst int
}

// Unlimited is the Rate of a tier, or one that [Rule.Resolve] returns, for requests that the
// rule does not limit: they pass, nothing is charged, and Limit and Remaining are -1 if no
// other rule limits them. Its text is "unlimited". It is invalid as the Rate of a limiter or
// rule.
var Unlimited = unlimitedRate

var unlimitedRate = Rate{Requests: -1, Per: -1, Burst: -1}

const unlimitedText = "unlimited"

// PerSecond returns the Rate of n units a second.
func PerSecond(n int) Rate { return Rate{Requests: n, Per: time.Second} }

// PerMinute returns the Rate of n units a minute.
func PerMinute(n int) Rate { return Rate{Requests: n, Per: time.Minute} }

// PerHour returns the Rate of n units an hour.
func PerHour(n int) Rate { return Rate{Requests: n, Per: time.Hour} }

// PerDay returns the Rate of n units every 24 hours.
func PerDay(n int) Rate { return Rate{Requests: n, Per: day} }

// WithBurst returns r with a Burst of n: at most n units are granted at once.
func (r Rate) WithBurst(n int) Rate {
	r.Burst = n
	return r
}

// Validate returns everything that makes r invalid for every algorithm, joined, or nil. Each
// problem is a [*ConfigError]. A rate that Validate accepts may still be refused by one
// algorithm, such as a Burst by [FixedWindow].
func (r Rate) Validate() error {
	if r == unlimitedRate {
		return &ConfigError{"requests", unlimitedText, "must be a number: only a tier or Resolve makes a request unlimited"}
	}
	var errs []error
	if r.Requests < 1 {
		errs = append(errs, &ConfigError{"requests", r.Requests, "must be at least 1"})
	}
	if r.Per <= 0 {
		errs = append(errs, &ConfigError{"per", r.Per, "must be longer than zero"})
	}
	if r.Burst < 0 {
		errs = append(errs, &ConfigError{"burst", r.Burst, "must be at least 1, or 0 for as many as requests"})
	}
	return errors.Join(errs...)
}

// burst returns the largest number of units that r grants at once.
func (r Rate) burst() int {
	if r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}

// bucket returns the bucket that grants r, or everything that is wrong with r, joined.
func (r Rate) bucket() (exact.Bucket, error) {
	err := r.Validate()
	switch burst := int64(r.burst()); {
	case burst > exact.MaxBurst && r.Burst == 0:
		err = errors.Join(err, &ConfigError{"requests", r.Requests, "must be at most 4294967295 without a burst"})
	case burst > exact.MaxBurst:
		err = errors.Join(err, &ConfigError{"burst", r.Burst, "must be at most 4294967295"})
	}
	if err != nil {
		return exact.Bucket{}, err
	}
	return exact.NewBucket(int64(r.Requests), int64(r.Per), int64(r.burst())), nil
}

// withoutBurst returns what is wrong with r for an algorithm that has no burst, joined, or
// nil. Such an algorithm grants at most Requests units at once.
func (r Rate) withoutBurst(algorithm string) error {
	if r.Burst <= 0 {
		return r.Validate()
	}
	return errors.Join(r.Validate(), &ConfigError{"burst", r.Burst, "must be 0: a " + algorithm + " has no burst"})
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// rateForm is the reason in the error for a text that has no form that ParseRate reads.
const rateForm = `must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`

// units are the units of time by name. "m" is a minute. There is no month, because months
// differ in length.
var units = map[string]time.Duration{
	"ns": 1, "nanosecond": 1, "nanoseconds": 1,
	"us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"microsecond": time.Microsecond, "microseconds": time.Microsecond,
	"ms": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": week, "week": week, "weeks": week,
}

// ParseRate returns the [Rate] that s spells, such as "100/m", "100/min", "10 per 2
// minutes", "100/90s", "5/1h30m" or "100/m burst 20". It reads everything that [Rate.String]
// writes. The text "unlimited" is [Unlimited]. An error matches [ErrInvalidConfig].
func ParseRate(s string) (Rate, error) {
	if strings.TrimSpace(s) == unlimitedText {
		return unlimitedRate, nil
	}
	reject := func(reason string) (Rate, error) {
		return Rate{}, &ConfigError{"rate", strconv.Quote(s), reason}
	}
	text, burst, hasBurst := strings.Cut(s, " burst ")
	count, per, ok := strings.Cut(text, "/")
	if !ok {
		count, per, ok = strings.Cut(text, " per ")
	}
	if !ok {
		return reject(rateForm)
	}
	var r Rate
	var err error
	if r.Requests, err = parseCount(count); err != nil {
		return reject("its count " + err.Error())
	}
	if r.Per, err = parsePer(per); err != nil {
		return reject("its time " + err.Error())
	}
	if hasBurst {
		if r.Burst, err = parseCount(burst); err != nil {
			return reject("its burst " + err.Error())
		}
	}
	return r, nil
}

// parseCount returns the whole number that s spells, which must be at least 1.
func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, strconv.IntSize-1)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("must be a whole number from 1 to %d", math.MaxInt)
	}
	return int(n), nil
}

// parsePer returns the length of time that s spells: a unit such as "m", a number and a unit
// such as "90s", or several of the latter together such as "1h30m".
func parsePer(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if d, ok := units[s]; ok {
		return d, nil
	}
	var sum time.Duration
	for rest := s; rest != ""; {
		end := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		number := rest[:end]
		rest = strings.TrimLeft(rest[end:], " ")
		end = strings.IndexAny(rest, "0123456789. ")
		if end < 0 {
			end = len(rest)
		}
		unit, ok := units[rest[:end]]
		if !ok {
			return 0, fmt.Errorf(`must be in ns, us, ms, s, m (minutes), h, d or w`)
		}
		rest = strings.TrimLeft(rest[end:], " ")
		d, err := scaled(number, unit)
		if err != nil {
			return 0, err
		}
		if sum > math.MaxInt64-d {
			return 0, errTooLong
		}
		sum += d
	}
	if sum <= 0 {
		return 0, fmt.Errorf("must be longer than zero")
	}
	return sum, nil
}

var errTooLong = fmt.Errorf("must be at most 292 years")

// scaled returns number times unit, which must be a whole number of nanoseconds. number has
// only digits and points.
func scaled(number string, unit time.Duration) (time.Duration, error) {
	whole, decimals, _ := strings.Cut(number, ".")
	if whole == "" || strings.Contains(decimals, ".") {
		return 0, fmt.Errorf("must have a number before each unit")
	}
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, errTooLong
	}
	d := time.Duration(n) * unit
	for _, digit := range strings.TrimRight(decimals, "0") {
		if unit%10 != 0 {
			return 0, fmt.Errorf("must be whole nanoseconds")
		}
		unit /= 10
		part := time.Duration(digit-'0') * unit
		if d > math.MaxInt64-part {
			return 0, errTooLong
		}
		d += part
	}
	return d, nil
}

// String returns r in a short form that [ParseRate] reads, such as "100/m" or "100/90s burst
// 20". ParseRate cannot read the text of an invalid Rate.
func (r Rate) String() string {
	if r == unlimitedRate {
		return unlimitedText
	}
	s := strconv.Itoa(r.Requests) + "/" + formatPer(r.Per)
	if r.Burst != 0 {
		s += " burst " + strconv.Itoa(r.Burst)
	}
	return s
}

// formatPer returns d as a whole number of the largest unit possible. If the number is 1, it
// returns the unit alone.
func formatPer(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1}} {
		switch {
		case d == u.unit:
			return u.name
		case d > 0 && d%u.unit == 0:
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String() // not positive
}

// MarshalText returns the text of [Rate.String]. For an invalid rate, it returns an error
// that matches [ErrInvalidConfig].
func (r Rate) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil && r != unlimitedRate {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText sets r to the rate that [ParseRate] reads from text. If that fails, it
// returns the error of ParseRate and leaves r unchanged.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}
