package redisstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// maxWarmup is the longest time in which a limit may grow.
const maxWarmup = 366 * 24 * time.Hour

// checkWarmup returns why the store cannot warm up as a says, or nil. The rate of a is right.
func checkWarmup(a *ratelimit.Ask) (err error) {
	w, r := a.Warmup, a.Rate
	if w == (ratelimit.Warmup{}) {
		return nil
	}
	reject := func(field string, value any, format string, args ...any) {
		err = errors.Join(err, unsupported(field, value, format, args...))
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.Requests
	}
	least := (r.Requests-1)/burst + 1
	switch {
	case w.From < 1:
		reject("warmup.from", w.From, "must be at least 1")
	case min(w.From, r.Requests) < least:
		reject("warmup.from", w.From, "must be at least %d: with less, a burst of %d grants a new key nothing", least, burst)
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

// warmupOf returns the numbers by which the scripts know the Warmup of a, whose burst is that of
// its plan. They are empty if it has none.
func warmupOf(a *ratelimit.Ask, burst int64) string {
	w := a.Warmup
	if w == (ratelimit.Warmup{}) {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d", burst, w.From, a.Rate.Requests, w.Over.Microseconds())
}

// letterOf returns the letter of the algorithm of a, or 0 if there is none. It is a capital one if
// the state warms up.
func letterOf(a *ratelimit.Ask) byte {
	letter := algorithms[a.Algorithm]
	if letter != 0 && a.Warmup != (ratelimit.Warmup{}) {
		letter -= 'a' - 'A'
	}
	return letter
}

// letter returns the letter of u in the scripts.
func (u *item) letter() string { return string(rune(letterOf(u.ask))) }
