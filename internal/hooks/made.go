package hooks

import (
	"io"
	"sync/atomic"
)

// A Made is a value that a hook has made of a config. Rules share it, and once none has it any
// more it is closed.
type Made struct {
	Config map[string]any // what it was made of
	Value  any            // what the hook has made

	// Build is nil once Value is made. If a config is read again, and what it had made before
	// will stay, Value is that, and Build is called only if it does not stay after all.
	Build func() (any, error)

	uses   atomic.Int64
	closed atomic.Bool
}

// Finish calls Build.
func (m *Made) Finish() error {
	v, err := m.Build()
	if err == nil {
		m.Value, m.Build = v, nil
	}
	return err
}

// Use notes that n more rules have m, or fewer if n is negative. m may be nil.
func (m *Made) Use(n int64) {
	if m != nil {
		m.uses.Add(n)
	}
}

// CloseUnused closes those of all that no rule has, if they are closers. It closes none twice, and
// none for whose value used returns true: a hook may return one value several times. It recovers
// panics, and drops them like the errors: what has been changed, stays changed.
func CloseUnused(used func(v any) bool, all ...*Made) {
	for _, m := range all {
		if m == nil || m.Build != nil || m.uses.Load() > 0 {
			continue
		}
		if c, ok := m.Value.(io.Closer); ok && !used(m.Value) && m.closed.CompareAndSwap(false, true) {
			closeQuietly(c)
		}
	}
}

func closeQuietly(c io.Closer) {
	defer func() { _ = recover() }()
	_ = c.Close()
}
