package hooks

import (
	"errors"
	"slices"
)

// A Rated is code of the user's that has a rate of its own.
type Rated[R comparable] interface {
	Rate() R           // the zero R if that is not known
	SetRate(r R) error // changes nothing if it returns an error
}

// A Teller tells Rateds the rates that a change gives them. If the change fails, it tells them
// their rates before. K says which state of what the change is about a rate is told for: if
// another change comes between, which may have told the same Rated another rate, there is
// another K, and the Rated is told again. The zero Teller is ready for use.
type Teller[K, R comparable] struct {
	plan []telling[K, R] // what the change needs, by its present plan
	told []*telling[K, R]
}

// A telling is one rate for one Rated.
type telling[K, R comparable] struct {
	name   string
	of     question[K, R]
	rated  Rated[R]
	before R
	kept   bool // whether the change was made
}

type question[K, R comparable] struct {
	key  K
	rate R
}

// Begin forgets what is planned.
func (t *Teller[K, R]) Begin() { t.plan = nil }

// Plan adds to the plan that rated is told rate, for the state key of what has this name.
func (t *Teller[K, R]) Plan(name string, key K, rated Rated[R], rate R) {
	t.plan = append(t.plan, telling[K, R]{name: name, of: question[K, R]{key, rate}, rated: rated})
}

// Ask asks calls for all that is planned. It returns the errors of SetRate, joined.
func (t *Teller[K, R]) Ask(calls *Calls) error {
	var problems []error
	for _, p := range t.plan {
		problems = append(problems, calls.Ask(p.of, func() error {
			p.before = p.rated.Rate()
			t.told = append(t.told, &p) // also if SetRate panics
			err := p.rated.SetRate(p.of.rate)
			if err != nil {
				t.told = t.told[:len(t.told)-1]
			}
			return err
		}))
	}
	return errors.Join(problems...)
}

// Keep says that the change is made as it was planned. What was told before for the same names
// has been replaced by that.
func (t *Teller[K, R]) Keep() {
	for _, done := range t.told {
		for _, p := range t.plan {
			done.kept = done.kept || done.name == p.name
		}
	}
}

// Undo tells the Rateds that have heard of a rate which is not kept another one: that which now
// returns for the key, or the one before if now returns false.
func (t *Teller[K, R]) Undo(now func(key K) (rate R, ok bool)) {
	var unknown R
	for _, done := range slices.Backward(t.told) { // so that the first rate before comes last
		if done.kept {
			continue
		}
		rate, ok := now(done.of.key)
		if !ok {
			rate = done.before
		}
		if rate != unknown {
			_ = done.rated.SetRate(rate)
		}
	}
}
