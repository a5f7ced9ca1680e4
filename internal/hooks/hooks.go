// Package hooks helps to make a change that needs a lock and also needs the results of functions of
// the user. These functions must not run while the lock is held.
//
// The change is planned under the lock. Where the plan needs the result of a user's function, it gets
// the result from a [Calls]. If a result is missing, the lock is released, the missing calls are made,
// and the change is planned again under the lock. No call is made twice. If a user's function makes
// another change itself, that change takes effect before the first one.
package hooks

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
// call has not been made yet, Ask returns nil, and the next Run makes the call with the function do.
func (c *Calls) Ask(key any, do func() error) error {
	answer, known := c.answers[key]
	if !known {
		c.missing = append(c.missing, call{key, do})
	}
	return answer
}

// Begin clears the list of calls that Ask has noted. It is called before a change of the rules is
// planned again.
func (c *Calls) Begin() { c.missing = nil }

// Missing reports whether Ask has noted a call since Begin. The plan then lacks the result of that
// call.
func (c *Calls) Missing() bool { return len(c.missing) > 0 }

// Run makes the calls that Ask has noted, in that order. It does not recover
// panics of the calls.
func (c *Calls) Run() {
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
