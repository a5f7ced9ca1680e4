package redisstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// maxWarmup is the longest duration of a warm-up.
const maxWarmup = 366 * 24 * time.Hour

// checkWarmup returns an error if the store cannot apply the Warmup of the ask, and otherwise nil. The
// Rate of the ask must be valid.
func checkWarmup(a *ratelimit.Ask) (err error) {
	w, r := a.Warmup, a.Rate
	if w == (ratelimit.Warmup{}) {
		return nil
	}
	if a.Algorithm == ratelimit.AlgorithmInFlight {
		return &ratelimit.ConfigError{Field: "warmup", Value: w, Reason: "must be left out: a rule that counts what is running has none"}
	}
	reject := func(field string, value any, format string, args ...any) {
		err = errors.Join(err, unsupported(field, value, format, args...))
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	minFrom := (r.Requests-1)/burst + 1
	switch {
	case w.From < 1:
		reject("warmup.from", w.From, "must be at least 1")
	case min(w.From, r.Requests) < minFrom:
		reject("warmup.from", w.From, "must be at least %d: with less, a burst of %d grants a new key nothing", minFrom, burst)
	}
	switch {
	case w.Over < time.Microsecond || w.Over > maxWarmup:
		reject("warmup.over", w.Over, "must be from a microsecond to 366 days")
	case w.Over%time.Microsecond != 0:
		reject("warmup.over", w.Over, "must be whole microseconds in a Redis store: its clock has no finer ones")
	}
	if int64(r.Requests) > maxNumber {
		reject("requests", r.Requests, "must be at most 2^50 with a warm-up in a Redis store")
	}
	return err
}

// warmupOf returns the Warmup of the ask as a text with the numbers that warmup.lua reads. The text is
// empty if the ask has no Warmup. The argument burst is the capacity of the key's bucket, or 0 for a
// window.
func warmupOf(a *ratelimit.Ask, burst int64) string {
	w := a.Warmup
	if w == (ratelimit.Warmup{}) {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d", burst, w.From, a.Rate.Requests, w.Over.Microseconds())
}

// letterOf returns the letter for the algorithm of the ask, or 0 if the algorithm is unknown. The letter
// is in upper case if the ask has a Warmup.
func letterOf(a *ratelimit.Ask) byte {
	letter := algorithms[a.Algorithm]
	if letter != 0 && a.Warmup != (ratelimit.Warmup{}) {
		letter -= 'a' - 'A'
	}
	return letter
}

// The method letter returns the letter by which scripts name the algorithm of the item. The letter is in upper
// case if the ask has a Warmup.
func (it *item) letter() string { return string(rune(letterOf(it.ask))) }
