package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An answer is what a script says of one ask.
type answer struct {
	granted             bool
	left                int64
	retry, reset, delay time.Duration

	limit int64 // of the rate; only for a request that is charged once

	// Set if the charges of the script may have to be given back: what would be left
	// without the charge, and if there was a charge, its instant and the stored state
	// before and after it.
	leftBefore        int64
	resetBefore       time.Duration
	at, before, after string
}

func (a *answer) charged() bool { return a.at != "" }

// result returns a as the result of a rule with this limit.
func (a *answer) result(limit int64) ratelimit.Result {
	return ratelimit.Result{
		Allowed:    a.granted,
		Limit:      int(limit),
		Remaining:  int(a.left),
		RetryAfter: a.retry,
		ResetAfter: a.reset,
		Delay:      a.delay,
	}
}

// answersIn returns the answers to n asks that reply contains.
func answersIn(reply any, n int, returnable bool) ([]answer, error) {
	width := 5
	if returnable {
		width = 10
	}
	items, ok := reply.([]any)
	if !ok || len(items) != n*width {
		return nil, newError(ClassOther, fmt.Errorf("the script replied %d items for %d asks", len(items), n))
	}
	r := reader{items: items}
	answers := make([]answer, n)
	for i := range answers {
		answers[i] = r.answer()
		if a := &answers[i]; returnable {
			a.leftBefore, a.resetBefore = r.number(), r.duration()
			a.at, a.before, a.after = r.text(), r.text(), r.text()
		}
	}
	if r.err != nil {
		return nil, newError(ClassOther, r.err)
	}
	return answers, nil
}

// A reader reads the items of a reply one after the other.
type reader struct {
	items []any
	err   error // the first error
}

// answer reads the five items that every answer begins with.
func (r *reader) answer() (a answer) {
	a.granted, a.left = r.number() == 1, r.number()
	a.retry, a.reset, a.delay = r.duration(), r.duration(), r.duration()
	return a
}

func (r *reader) next() any {
	item := r.items[0]
	r.items = r.items[1:]
	return item
}

// number reads an integer. A script sends an integer that a double cannot hold as text.
func (r *reader) number() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err == nil {
			return n
		}
	}
	if r.err == nil {
		r.err = fmt.Errorf("the script replied something that is not a number")
	}
	return 0
}

// duration reads a number of microseconds. A script sends -1, and this returns Never, for a
// time that is too long for a Duration.
func (r *reader) duration() time.Duration {
	if us := r.number(); us >= 0 && us <= math.MaxInt64/1000 {
		return time.Duration(us) * time.Microsecond
	}
	return ratelimit.Never
}

func (r *reader) text() string {
	s, _ := r.next().(string)
	return s
}
