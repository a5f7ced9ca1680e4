package dbstoretest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/dbstore"
)

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }

// TestMemory checks the Backend in memory.
func TestMemory(t *testing.T) { TestBackend(t, NewMemory(realClock{})) }

// A faulty is a Backend with a fault.
type faulty struct {
	*Memory
	swap func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error)
}

func (f *faulty) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	return f.swap(f.Memory, ctx, now, groups)
}

// TestFaults proves that the kit finds faults.
func TestFaults(t *testing.T) {
	every := func(groups []dbstore.Group, f func(*dbstore.Change)) {
		for i := range groups {
			for j := range groups[i].Changes {
				f(&groups[i].Changes[j])
			}
		}
	}
	for name, swap := range map[string]func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error){
		"ignores the time": func(m *Memory, ctx context.Context, _ time.Time, groups []dbstore.Group) (time.Time, error) {
			return m.Swap(ctx, time.Time{}, groups)
		},
		"tells no time": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			_, err := m.Swap(ctx, now, groups)
			return time.Time{}, err
		},
		"ignores the context": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			return m.Swap(context.WithoutCancel(ctx), now, groups)
		},
		"each row by itself": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (at time.Time, err error) {
			for i := range groups {
				done := true
				for j := range groups[i].Changes {
					one := []dbstore.Group{{Changes: groups[i].Changes[j : j+1]}}
					at, err = m.Swap(ctx, now, one)
					done = done && err == nil && one[0].Done
				}
				groups[i].Done = done
			}
			return at, err
		},
		"all groups or none": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			one := []dbstore.Group{{}}
			every(groups, func(c *dbstore.Change) { one[0].Changes = append(one[0].Changes, *c) })
			at, err := m.Swap(ctx, now, one)
			n := 0
			for i := range groups {
				groups[i].Done = one[0].Done
				n += copy(groups[i].Changes, one[0].Changes[n:])
			}
			return at, err
		},
		"takes no row for an empty one": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			every(groups, func(c *dbstore.Change) {
				if c.Old == nil && !c.Read {
					c.Old, _ = m.Rows()[string(c.Key)]
				}
			})
			return m.Swap(ctx, now, groups)
		},
		"keys end at a zero byte": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			every(groups, func(c *dbstore.Change) { c.Key, _, _ = bytes.Cut(c.Key, []byte{0}) })
			return m.Swap(ctx, now, groups)
		},
		"does not delete": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			every(groups, func(c *dbstore.Change) {
				if c.New == nil {
					c.New = c.Old
				}
			})
			return m.Swap(ctx, now, groups)
		},
		"compares, and writes later": func(m *Memory, ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
			rows := m.Rows()
			<-time.After(time.Millisecond) // others write meanwhile
			for i := range groups {
				same := true
				for _, c := range groups[i].Changes {
					old, ok := rows[string(c.Key)]
					same = same && !c.Read && ok == (c.Old != nil) && bytes.Equal(old, c.Old)
				}
				for j := range groups[i].Changes {
					if c := &groups[i].Changes[j]; same {
						c.Old = m.Rows()[string(c.Key)]
					}
				}
			}
			return m.Swap(ctx, now, groups)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kit{&faulty{NewMemory(realClock{}), swap}}
			require.Error(t, errors.Join(k.oneRow(), k.groups(), k.time(), k.bytes(), k.ended(), k.concurrent()))
		})
	}
}
