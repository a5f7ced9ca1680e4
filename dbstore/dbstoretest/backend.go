package dbstoretest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit/dbstore"
)

// TestBackend checks that b does what [dbstore.Backend] says: that b writes all rows of a group or none, whatever happens to the other
// groups; that b tells the time of the database, and does not write what was decided for another time; and that no change is lost
// when several goroutines change the same rows.
//
// The keys of all rows that TestBackend uses begin with "test". No such row may exist before the test, and some exist after it. The
// clock of b must run: a clock that only a test moves is not enough. TestBackend does not check what b does when the database fails.
// Also run [github.com/ratelimit-go/ratelimit/ratelimittest.TestStore] on a Store with b.
func TestBackend(t *testing.T, b dbstore.Backend) {
	t.Helper()
	k := &kit{b}
	for _, x := range []struct {
		name  string
		check func() error
	}{
		{"one-row", k.oneRow},
		{"groups", k.groups},
		{"time", k.time},
		{"bytes", k.bytes},
		{"ended-context", k.ended},
		{"concurrent", k.concurrent},
	} {
		t.Run(x.name, func(t *testing.T) {
			if err := x.check(); err != nil {
				t.Error(err)
			}
		})
	}
}

type kit struct{ dbstore.Backend }

// expires is when the rows of the kit expire.
func expires() time.Time { return time.Now().Add(time.Hour) }

// row returns the Change of a row from the value old to the value next. The value "" stands for no row.
func row(key, old, next string) dbstore.Change {
	c := dbstore.Change{Key: []byte("test" + key)}
	if old != "" {
		c.Old = []byte(old)
	}
	if next != "" {
		c.New, c.Expires = []byte(next), expires()
	}
	return c
}

func read(key string) dbstore.Change { return dbstore.Change{Key: []byte("test" + key), Read: true} }

// swap calls Swap once, without a time. The slice done says for each group whether Swap must do it, and values has the values that the
// rows of all other groups must have, in order. If Swap answers anything else, swap returns an error.
func (k *kit) swap(groups [][]dbstore.Change, done []bool, values ...string) error {
	all := make([]dbstore.Group, len(groups))
	for i := range groups {
		all[i].Changes = groups[i]
	}
	if _, err := k.Swap(context.Background(), time.Time{}, all); err != nil {
		return fmt.Errorf("swap fails: %w", err)
	}
	for i, g := range all {
		if g.Done != done[i] {
			return fmt.Errorf("group %d of %s: done is %t, must be %t", i, texts(groups), g.Done, done[i])
		}
		for _, c := range g.Changes {
			if g.Done {
				continue
			}
			if got := string(c.Value); len(values) == 0 || got != values[0] {
				return fmt.Errorf("group %d of %s: the row %s has %q, must have %q", i, texts(groups), c.Key, got, values[:min(len(values), 1)])
			}
			values = values[1:]
		}
	}
	return nil
}

func texts(groups [][]dbstore.Change) (s string) {
	for _, g := range groups {
		s += "{"
		for _, c := range g {
			s += fmt.Sprintf(" %s: %q to %q", c.Key, c.Old, c.New)
		}
		s += " }"
	}
	return s
}

// oneRow changes one row.
func (k *kit) oneRow() error {
	for _, step := range []struct {
		change dbstore.Change
		done   bool
		value  string // what the row has, if the change is not done
	}{
		{read("a"), false, ""},
		{row("a", "", ""), true, ""},
		{row("a", "x", "y"), false, ""},
		{row("a", "x", ""), false, ""},
		{row("a", "", "1"), true, ""},
		{row("a", "", "2"), false, "1"},
		{row("a", "", ""), false, "1"},
		{read("a"), false, "1"},
		{row("a", "1", "1"), true, ""},
		{row("a", "2", "2"), false, "1"},
		{row("a", "2", "3"), false, "1"},
		{row("a", "1", "a longer value"), true, ""},
		{row("a", "1", ""), false, "a longer value"},
		{row("a", "a longer value", ""), true, ""},
		{read("a"), false, ""},
	} {
		var values []string
		if !step.done {
			values = []string{step.value}
		}
		if err := k.swap([][]dbstore.Change{{step.change}}, []bool{step.done}, values...); err != nil {
			return err
		}
	}
	return nil
}

// The check groups calls Swap with groups of several rows, and with several groups.
func (k *kit) groups() error {
	type rows = []dbstore.Change
	yes, no := true, false
	return errors.Join(
		k.swap([][]dbstore.Change{{row("b", "", "1"), row("c", "", "1")}, {row("d", "", "1")}}, []bool{yes, yes}),
		k.swap([][]dbstore.Change{{row("b", "1", "2"), row("c", "x", "2")}, {row("d", "1", "2")}}, []bool{no, yes}, "1", "1"),
		k.swap([][]dbstore.Change{{row("d", "1", "3")}, {row("c", "1", "2"), row("b", "1", "2")}}, []bool{no, yes}, "2"),
		k.swap([][]dbstore.Change{{row("e", "", "1"), row("b", "x", "3")}}, []bool{no}, "", "2"), // the new row e must not be written
		k.swap([][]dbstore.Change{{row("a9", "", "1"), row("b", "x", "3")}}, []bool{no}, "", "2"),
		k.swap([][]dbstore.Change{{read("a9")}, {read("e")}}, []bool{no, no}, "", ""),
		k.swap([][]dbstore.Change{{row("b", "2", ""), row("c", "x", "")}}, []bool{no}, "2", "2"),
		k.swap([][]dbstore.Change{{row("a0", "", ""), row("b", "2", "2"), row("d", "2", "3")}}, []bool{yes}),
		k.swap([][]dbstore.Change{{row("b", "2", "2"), row("d", "2", "4")}}, []bool{no}, "2", "3"),
		k.swap([][]dbstore.Change{{row("b", "2", "3"), read("d")}, {row("c", "2", "")}, {read("b0")}}, []bool{no, yes, no}, "2", "3", ""),
		k.swap([][]dbstore.Change{rows{row("b", "2", ""), row("d", "3", ""), row("e", "", "")}, rows{row("c", "", "")}}, []bool{yes, yes}),
		k.swap([][]dbstore.Change{{read("b"), read("c"), read("d"), read("e")}}, []bool{no}, "", "", "", ""),
	)
}

// The check time calls Swap with decisions for a time that is too late, too early or right.
func (k *kit) time() error {
	ctx := context.Background()
	at, err := k.Swap(ctx, time.Time{}, []dbstore.Group{{Changes: []dbstore.Change{read("t")}}})
	if err != nil {
		return err
	}
	if at.IsZero() {
		return errors.New("swap tells no time")
	}
	for _, off := range []time.Duration{time.Hour, -dbstore.MaxBehind - time.Minute} {
		for _, n := range []int{1, 2} {
			changes := []dbstore.Change{row("t", "", "1"), row("u", "", "1")}[:n]
			g := []dbstore.Group{{Changes: changes}}
			if _, err := k.Swap(ctx, at.Add(off), g); err != nil {
				return err
			}
			if g[0].Done {
				return fmt.Errorf("a decision for a time that is off by %v is done", off)
			}
		}
	}
	for range 100 { // try again if the machine has stopped for a moment between the two calls
		g := []dbstore.Group{{Changes: []dbstore.Change{row("t", "", "1")}}, {Changes: []dbstore.Change{row("u", "", "1"), row("v", "", "1")}}}
		later, err := k.Swap(ctx, at, g)
		switch {
		case err != nil:
			return err
		case later.Before(at):
			return fmt.Errorf("the time steps from %v back to %v", at, later)
		case g[0].Done && g[1].Done:
			return k.swap([][]dbstore.Change{{row("t", "1", ""), row("u", "1", ""), row("v", "1", "")}}, []bool{true})
		}
		at = later
	}
	return errors.New("a decision for the time of the last call is never done")
}

// bytes uses keys and values with all bytes.
func (k *kit) bytes() error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	keys := []string{"\x00", "\x00\x00", "\xff", "\xff\xfe", "a\x00b", "a", "A", "ä", "'", "\\", "\n", string(every[:196])}
	for _, key := range keys {
		value := string(bytes.Repeat(append(slices.Clone(every), key...), 40))
		if err := k.swap([][]dbstore.Change{{row(key, "", value)}}, []bool{true}); err != nil {
			return err
		}
		if err := k.swap([][]dbstore.Change{{read(key)}}, []bool{false}, value); err != nil {
			return err
		}
		if err := k.swap([][]dbstore.Change{{row(key, value, "1"+key)}}, []bool{true}); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if err := k.swap([][]dbstore.Change{{row(key, "1"+key, "")}}, []bool{true}); err != nil {
			return err
		}
	}
	return nil
}

// ended calls Swap with a context that has ended.
func (k *kit) ended() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := k.Swap(ctx, time.Time{}, []dbstore.Group{{Changes: []dbstore.Change{row("f", "", "1")}}}); err == nil {
		return errors.New("swap returns no error for a context that has ended")
	}
	return k.swap([][]dbstore.Change{{read("f")}}, []bool{false}, "")
}

// concurrent adds to counters from several goroutines: one counter, and two that change together.
func (k *kit) concurrent() error {
	const adders, each = 8, 25
	var all sync.WaitGroup
	errs := make([]error, adders)
	for i := range adders {
		all.Go(func() {
			for n := 0; n < each && errs[i] == nil; n++ {
				errs[i] = errors.Join(k.add("g"), k.add("h", "g2"))
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	want := string(binary.BigEndian.AppendUint32(nil, adders*each))
	return k.swap([][]dbstore.Change{{row("g", want, "")}, {row("h", want, ""), row("g2", want, "")}}, []bool{true, true})
}

// add adds 1 to each of the counters in the rows with these keys. The rows are one group, so they change together.
func (k *kit) add(keys ...string) error {
	changes := make([]dbstore.Change, len(keys))
	for i, key := range keys {
		changes[i] = read(key)
	}
	for range 100_000 {
		g := []dbstore.Group{{Changes: changes}}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := k.Swap(ctx, time.Time{}, g)
		cancel()
		if err != nil {
			return err
		}
		if g[0].Done {
			return nil
		}
		for i := range changes {
			old, n := changes[i].Value, uint32(0)
			if old != nil {
				n = binary.BigEndian.Uint32(old)
			}
			changes[i] = dbstore.Change{Key: changes[i].Key, Old: old, New: binary.BigEndian.AppendUint32(nil, n+1), Expires: expires()}
		}
	}
	return errors.New("a counter is never changed")
}
