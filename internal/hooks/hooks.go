// Package hooks helps to make a change that needs a lock and also needs the results of functions that
// the user of the library wrote. These functions must not run while the lock is held.
//
// [Calls.Change] plans the change under the lock. Where the plan needs the result of a user's function,
// it gets the result from the Calls. If a result is missing, the lock is released, the missing calls are made,
// and the change is planned again under the lock. No call is made twice. If a user's function makes
// another change itself, that change takes effect before the first one.
package hooks

import "sync"

// Calls holds the calls of user's functions that one change needs, and their results. The zero Calls
// is ready for use.
type Calls struct {
	answers map[any]error // the error (or nil) that each call returned, by the key of the call
	missing []call        // calls that the plan needs and that have yet to be made
}

// A call describes a call of a user's function that has yet to be made.
type call struct {
	key any
	do  func() error
}

// Ask returns the error that the call with this key has returned. The key must be comparable. If the
// call has not been made yet, Ask returns nil, and Change later makes the call, without the lock, by
// calling the function do.
func (c *Calls) Ask(key any, do func() error) error {
	answer, known := c.answers[key]
	if !known {
		c.missing = append(c.missing, call{key, do})
	}
	return answer
}

// Missing reports whether a step of Change has asked for the result of a call that has yet to be made.
// Change then runs the steps again after it has made the call.
func (c *Calls) Missing() bool { return len(c.missing) > 0 }

// Change makes a change that consists of the given steps. It holds the lock mu while it runs the steps one
// after the other. If a step calls Ask for a result that is missing, Change releases the lock after this
// step, makes the missing calls, and runs the steps again from the first one. If a step returns an error
// and no result is missing, Change returns this error, and the further steps do not run.
//
// The parameter tries says how many times Change may run the steps from the first one. Change returns false if
// results were missing each time. It does not recover panics of the calls.
func (c *Calls) Change(mu sync.Locker, tries int, steps ...func() error) (done bool, err error) {
	for range tries {
		if done, err := c.try(mu, steps); done {
			return true, err
		}
		c.run()
	}
	return false, nil
}

// try runs the steps under the lock mu. If done is false, the results of calls are missing.
func (c *Calls) try(mu sync.Locker, steps []func() error) (done bool, err error) {
	mu.Lock()
	defer mu.Unlock()
	for _, step := range steps {
		err := step()
		if c.Missing() {
			return false, nil
		}
		if err != nil {
			return true, err
		}
	}
	return true, nil
}

// run makes the calls that Ask has noted, in the order in which it noted them.
func (c *Calls) run() {
	if c.answers == nil {
		c.answers = make(map[any]error)
	}
	for _, call := range c.missing {
		if _, known := c.answers[call.key]; !known {
			c.answers[call.key] = call.do()
		}
	}
	c.missing = nil
}
