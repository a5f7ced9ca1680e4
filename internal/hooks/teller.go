package hooks

import (
	"errors"
	"slices"
)

// A Teller calls the method SetRate of the user's limiters that get a new rate by a change of rules. If the
// change fails, the Teller sets the old rates again.
//
// A change may be planned several times. In each plan, a key of type K stands for the present state of the
// rule that has the limiter. If another change alters that rule between two plans, the later plan has another
// key, and SetRate is called again. The zero Teller is ready for use.
type Teller[K, R comparable] struct {
	plan []telling[K, R]  // the calls of SetRate that the current plan needs
	told []*telling[K, R] // the calls of SetRate that have been made, including calls of earlier plans
}

// A telling describes one call of SetRate.
type telling[K, R comparable] struct {
	name      string         // the name of the rule that has the limiter
	of        question[K, R] // the key by which the type Calls finds the result of this call
	limiter   rated[R]
	before    R    // the rate of the limiter before the call
	committed bool // true once the change is made: Undo then leaves the new rate in place
}

// A rated is a limiter of the user whose rate can be changed. If SetRate returns an error, it has changed
// nothing.
type rated[R comparable] interface{ SetRate(r R) error }

// A question is the key under which [Calls] records a call of SetRate.
type question[K, R comparable] struct {
	key  K
	rate R
}

// Begin starts a new plan: it clears the list of planned calls of SetRate. It does not change the rates
// that have been set already.
func (t *Teller[K, R]) Begin() { t.plan = nil }

// Plan adds a call of the limiter's method SetRate(R) error to the plan, with the given rate. It returns
// false if the limiter has no such method. The parameter name is the name of the rule that has this limiter,
// and key identifies the state of that rule. The parameter before is the limiter's present rate, or the zero R
// if the present rate is not known. If the limiter has a method Rate() R, its result is used instead.
func (t *Teller[K, R]) Plan(name string, key K, limiter any, before, rate R) bool {
	l, ok := limiter.(rated[R])
	if ok {
		t.plan = append(t.plan, telling[K, R]{name: name, of: question[K, R]{key, rate}, limiter: l, before: before})
	}
	return ok
}

// Ask calls [Calls.Ask] for each planned call of SetRate, and returns the errors of these calls, joined. It passes
// the name of the rule and the error that SetRate returned, which may be nil, to the function in the parameter
// refused. The error that this function returns, which may be nil too, is the error of the call.
func (t *Teller[K, R]) Ask(calls *Calls, refused func(name string, err error) error) error {
	var problems []error
	for _, p := range t.plan {
		problems = append(problems, calls.Ask(p.of, func() error {
			if has, ok := p.limiter.(interface{ Rate() R }); ok {
				p.before = has.Rate()
			}
			t.told = append(t.told, &p) // added before the call, so that Undo sets the old rate even if SetRate panics
			err := refused(p.name, p.limiter.SetRate(p.of.rate))
			if err != nil {
				t.told = t.told[:len(t.told)-1]
			}
			return err
		}))
	}
	return errors.Join(problems...)
}

// Commit records that the change was made as planned. From then on, Undo leaves the rates of all rules in
// the plan as they are, even rates that an earlier plan has set.
func (t *Teller[K, R]) Commit() {
	for _, done := range t.told {
		for _, p := range t.plan {
			done.committed = done.committed || done.name == p.name
		}
	}
}

// Undo undoes the calls of SetRate that were made but not committed. For each of these calls, it calls the
// function in its parameter with the key of the call. If a later change has given the limiter another rate, this
// function returns that rate and true, and Undo sets that rate. Otherwise, Undo sets the rate that the limiter
// had before the call of SetRate, if that rate is known.
func (t *Teller[K, R]) Undo(now func(key K) (rate R, ok bool)) {
	var unknown R
	for _, done := range slices.Backward(t.told) { // newest call first, so that the rate before the first call is set last
		if done.committed {
			continue
		}
		rate, ok := now(done.of.key)
		if !ok {
			rate = done.before
		}
		if rate != unknown {
			_ = done.limiter.SetRate(rate)
		}
	}
}
