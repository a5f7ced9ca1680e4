package redisstore

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An answer is the part of a script's reply that contains the decision on one ask (a request for units of one key).
type answer struct {
	granted             bool
	left                int64         // how many units remain for the key
	retry, reset, delay time.Duration // the RetryAfter, ResetAfter and Delay of the result
	block               time.Duration // if a block denies the request: how long the block still lasts

	limit int64 // the limit of the rule; set only for a request with an ID

	// The fields below are needed to give a charge back, and set only if the script was asked for them.
	// Without the charge, leftBefore units would remain, and the ResetAfter would be resetBefore. The fields
	// at, before and after are set only if there was a charge: the instant of the charge, and the stored
	// state before and after the charge.
	leftBefore        int64
	resetBefore       time.Duration
	at, before, after string

	// keeps is set if the key still has an older rate, and not the rate of the request: in the mode tentative, the script
	// does not change the rate of a key.
	keeps bool
}

func (a *answer) charged() bool { return a.at != "" }

// result returns the answer as the Result of a rule with the given limit.
func (a *answer) result(limit int64) ratelimit.Result {
	var reason ratelimit.Reason
	switch {
	case a.block > 0:
		reason = ratelimit.ReasonPenalty
	case !a.granted:
		reason = ratelimit.ReasonLimit
	}
	return ratelimit.Result{
		Allowed:    a.granted,
		Limit:      int(limit),
		Remaining:  int(a.left),
		RetryAfter: a.retry,
		ResetAfter: a.reset,
		Delay:      a.delay,
		Reason:     reason,
	}
}

// answersIn reads n answers, the decisions on n asks, from the reply of a script. If returnable is true, the
// reply also contains, for each answer, what is needed to give its charge back.
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
			a.at, a.keeps = strings.CutSuffix(a.at, "+")
		}
	}
	if r.err != nil {
		return nil, newError(ClassOther, r.err)
	}
	return answers, nil
}

// A reader reads the values in a reply of a script, one after the other.
type reader struct {
	items []any
	err   error // the first error that occurred while reading, or nil
}

// The method answer reads the five values with which each answer in a reply begins. The first value is 1 for a grant and 0
// for a denial. If a block denies the request, the first value is how many microseconds the block still lasts, plus 1.
func (r *reader) answer() (a answer) {
	verdict := r.number()
	a.granted, a.left = verdict == 1, r.number()
	if verdict > 1 {
		a.block = micros(verdict - 1)
	}
	a.retry, a.reset, a.delay = r.duration(), r.duration(), r.duration()
	return a
}

func (r *reader) next() any {
	item := r.items[0]
	r.items = r.items[1:]
	return item
}

// number reads an integer from the reply. Scripts send an integer as text if it is too large for a double.
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

// duration reads a number of microseconds from the reply and returns it as a Duration. It returns Never if the
// number is -1, which scripts send for a time that is too long, or if the number is too large for a Duration.
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
