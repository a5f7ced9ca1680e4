// Package hooks lets a change that holds a lock depend on code of the user's, which must not
// run under that lock.
//
// The change is planned under the lock. Where it needs the answer of such code, it asks a
// [Calls]. If an answer is missing, the lock is released, the missing calls are made, and the
// change is planned anew, on what is there by then. No call is made twice, so it may itself
// make a change: that one comes first, and the outer one goes on after it.
package hooks

// Calls are the calls of the user's code for one change, and what they have answered. The zero
// Calls is ready for use.
type Calls struct {
	answers map[any]error
	missing []call
}

// A call is one call that is to be made.
type call struct {
	key any
	do  func() error
}

// Ask returns the answer of the call with this key, which must be comparable. If the call has not
// been made, Ask returns nil, and Run will make it by do.
func (c *Calls) Ask(key any, do func() error) error {
	answer, known := c.answers[key]
	if !known {
		c.missing = append(c.missing, call{key, do})
	}
	return answer
}

// Begin forgets what is missing: the change is planned anew.
func (c *Calls) Begin() { c.missing = nil }

// Missing reports whether any answer was missing since Begin.
func (c *Calls) Missing() bool { return len(c.missing) > 0 }

// Run makes the calls whose answers are missing, in the order in which they were asked for. If
// one of them panics, the panic goes on.
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
