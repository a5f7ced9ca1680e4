package hooks

import (
	"io"
	"sync/atomic"
)

// A Built holds a value that a function of the user has built from a config. Several rules may share
// the value. The value is closed when no rule uses it any more.
type Built struct {
	Config map[string]any // the config from which Value was built
	Value  any            // the value, which may have a method Close

	// Build is the function that builds Value. It is nil once Value is built.
	//
	// If a rule already has a value from the same config, Value is set to that value although Build is
	// not nil. The value is then kept, and Build is not called, unless another change of the rules takes
	// that value away from the rule first.
	Build func() (any, error)

	uses   atomic.Int64 // how many rules use the value
	closed atomic.Bool  // whether the value was closed
}

// Finish calls Build. Unless Build fails, Finish sets Value to the result.
func (m *Built) Finish() error {
	v, err := m.Build()
	if err == nil {
		m.Value, m.Build = v, nil
	}
	return err
}

// Use notes that n more rules use the value of m. A negative n notes that fewer rules use it. m may be
// nil.
func (m *Built) Use(n int64) {
	if m != nil {
		m.uses.Add(n)
	}
}

// CloseUnused calls Close on the values of the given Builts, if they have that method and no rule uses
// them. It closes no Built twice. The user's function may have returned the same value for several configs.
// CloseUnused therefore leaves a value open if the function in its first parameter returns true, which means
// that a rule still uses the value. Errors and panics of Close are ignored, because the change of the rules
// has already been made.
func CloseUnused(used func(v any) bool, all ...*Built) {
	for _, m := range all {
		if m == nil || m.Build != nil || m.uses.Load() > 0 {
			continue
		}
		if c, ok := m.Value.(io.Closer); ok && !used(m.Value) && m.closed.CompareAndSwap(false, true) {
			closeQuietly(c)
		}
	}
}

// Close closes the values of the given Builts, which were made for rules that will not be used. Unlike
// CloseUnused, it does not ask whether a value also belongs to another Built.
func Close(all ...*Built) { CloseUnused(func(any) bool { return false }, all...) }

func closeQuietly(c io.Closer) {
	defer func() { _ = recover() }()
	_ = c.Close()
}
