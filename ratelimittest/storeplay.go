package ratelimittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A storeCall is one call of a store's method in a schedule.
type storeCall struct {
	at     time.Duration     // the time of the clock, since the start
	reset  bool              // whether this is a call of Reset
	settle bool              // whether this is a call of Settle
	once   ratelimit.Attempt // the argument of a call of Once; otherwise the zero value
	over   error             // the error of the call's context; nil if the context has not ended
	asks   []ratelimit.Ask
}

// late is a context whose deadline has passed.
var late = func() context.Context {
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	cancel()
	return ctx
}()

// context returns the context for the call c.
func (c storeCall) context() context.Context {
	switch {
	case c.over == nil:
		return context.Background()
	case errors.Is(c.over, context.Canceled):
		return ended
	}
	return late
}

// A storeAnswer holds the results of one call.
type storeAnswer struct {
	results  []ratelimit.Result
	replayed bool
	err      error
}

// do makes the call c. It adds prefix to the names of the states, so that no other schedule uses them. If
// the method panics, the answer has the panic as its error.
func (k *storeKit) do(c storeCall, prefix string) (a storeAnswer) {
	defer func() {
		if p := recover(); p != nil {
			a = storeAnswer{err: fmt.Errorf("panic: %v", p)}
		}
	}()
	asks := make([]ratelimit.Ask, len(c.asks))
	for i, ask := range c.asks {
		if ask.Rule == "" { // an empty Rule must stay empty: some schedules test how the store handles an empty Rule
			ask.Key = prefix + ask.Key
		} else {
			ask.Rule = prefix + ask.Rule
		}
		asks[i] = ask
	}
	switch {
	case c.reset:
		a.err = k.store.Reset(c.context(), asks)
	case c.settle:
		a.err = k.store.(settler).Settle(c.context(), asks)
	case c.once.ID != "":
		a.results, a.replayed, a.err = k.store.(oncer).Once(c.context(), c.once, asks)
	default:
		a.results, a.err = k.store.Take(c.context(), asks)
	}
	return a
}

// prefix returns a new prefix for the names of states, so that a schedule uses no state of an earlier one.
func (k *storeKit) prefix() string {
	k.played++
	return fmt.Sprintf("%08d/", k.played)
}

// A storeTrace is a schedule of calls, with the answers up to the first one that breaks a promise.
type storeTrace struct {
	start   time.Time
	calls   []storeCall
	answers []storeAnswer
	broken  string // how the last answer breaks a promise; "" if no answer does
}

// play makes the calls on new states of the store, and compares the answers with those of the
// models.
func (k *storeKit) play(start time.Time, calls []storeCall) *storeTrace {
	t := &storeTrace{start: start, calls: calls}
	prefix, models := k.prefix(), newModelStore(start, k.Resolution, slices.ContainsFunc(calls, func(c storeCall) bool { return c.settle }))
	for i, c := range calls {
		at := start.Add(c.at)
		k.clock.Set(at)
		looked := i%2 == 0 && k.looks(c)
		var look storeAnswer
		if looked {
			look = k.do(lookOf(c), prefix)
		}
		a := k.do(c, prefix)
		t.answers = append(t.answers, a)
		switch {
		case c.over != nil:
			if !errors.Is(a.err, c.over) {
				t.broken = fmt.Sprintf("with a context that is over, Take returns its error, not %v", a.err)
			}
		case a.err != nil:
			t.broken = "an error without a cause"
		case c.reset:
			models.reset(c.asks)
		case c.settle:
			for _, ask := range c.asks {
				models.settle(at, ask)
			}
		case c.once.ID != "":
			want, replayed := models.once(at, c.once, c.asks)
			if t.broken = k.differs(a.results, want); t.broken == "" && a.replayed != replayed {
				t.broken = fmt.Sprintf("replayed is %t", a.replayed)
			}
		default:
			t.broken = k.differs(a.results, models.take(at, c.asks))
			if looked && t.broken == "" && (look.err != nil || !slices.Equal(look.results, a.results)) {
				t.broken = fmt.Sprintf("asked the same with Look before, it says %v, %v", look.results, look.err)
			}
		}
		if t.broken != "" {
			break
		}
	}
	return t
}

// looks reports whether the call c can be repeated with Look set: c is a call of Take, its context
// has not ended, and the store accepts the asks of c with Look.
func (k *storeKit) looks(c storeCall) bool {
	accepting, ok := k.store.(interface{ Accepts(a ratelimit.Ask) error })
	if !ok || c.reset || c.settle || c.once.ID != "" || c.over != nil {
		return false
	}
	return !slices.ContainsFunc(lookOf(c).asks, func(a ratelimit.Ask) bool { return accepting.Accepts(a) != nil })
}

// lookOf returns a copy of the call c with Look set in each ask.
func lookOf(c storeCall) storeCall {
	c.asks = slices.Clone(c.asks)
	for i := range c.asks {
		c.asks[i].Look = true
	}
	return c
}

// differs compares the results of the store (got) with the results of the models (want). It returns a
// text that explains the first difference, or "" if the results are equal.
func (k *storeKit) differs(got, want []ratelimit.Result) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d results for %d asks", len(got), len(want))
	}
	for i := range got {
		if got, want := rounded(got[i], k.Resolution), rounded(want[i], k.Resolution); got != want {
			text := fmt.Sprintf("the model says of ask %d: %v", i, answer{res: want})
			if got.Rule != "" || got.Degraded {
				text += "; Rule and Degraded are not the store's to set"
			}
			return text
		}
	}
	return ""
}

// A storeFailure is a schedule (a list of calls) in which the store breaks a promise of TestStore.
type storeFailure struct {
	*storeTrace
	seed     uint64
	schedule int
}

// String returns the schedule as Go code. A comment after the call that broke the promise explains
// the breach.
func (f *storeFailure) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "seed %d, schedule %d; instants since the start:\n", f.seed, f.schedule)
	fmt.Fprintf(&s, "\tstart := time.Unix(%d, %d)\n", f.start.Unix(), f.start.Nanosecond())
	fmt.Fprintf(&s, "\tclock := ratelimit.NewFakeClock(start)\n")
	fmt.Fprintf(&s, "\ts, _ := New(clock)\n")
	for i, a := range f.answers {
		c := f.calls[i]
		if i == 0 || c.at != f.calls[i-1].at {
			fmt.Fprintf(&s, "\tclock.Set(start.Add(%d)) // %v\n", int64(c.at), c.at)
		}
		fmt.Fprintf(&s, "\t%s []ratelimit.Ask{\n", c.head())
		for j, ask := range c.asks {
			fmt.Fprintf(&s, "\t\t%s,", askText(ask))
			if j < len(a.results) {
				fmt.Fprintf(&s, " // %v", answer{res: a.results[j]})
			}
			s.WriteString("\n")
		}
		s.WriteString("\t})")
		if a.err != nil {
			fmt.Fprintf(&s, " // %v", a.err)
		}
		s.WriteString("\n")
	}
	fmt.Fprintf(&s, "\t// %s", f.broken)
	return s.String()
}

// head returns the Go code of the call, up to its asks.
func (c storeCall) head() string {
	switch {
	case c.reset:
		return "s.Reset(ctx,"
	case c.settle:
		return "s.Settle(ctx,"
	case c.once.ID != "":
		return fmt.Sprintf("s.Once(ctx, %#v,", c.once)
	case c.over == nil:
		return "s.Take(ctx,"
	case errors.Is(c.over, context.Canceled):
		return "s.Take(canceled,"
	}
	return "s.Take(late,"
}

// askText returns an ask as Go code. It leaves out most fields that are zero.
func askText(a ratelimit.Ask) string {
	s := fmt.Sprintf("{Rule: %s, Key: %s, ", quoted(a.Rule), quoted(a.Key))
	if a.Client != "" {
		s += fmt.Sprintf("Client: %s, ", quoted(a.Client))
	}
	s += fmt.Sprintf("Algorithm: %q, Rate: %#v, N: %d", a.Algorithm, a.Rate, a.N)
	if a.Shadow {
		s += ", Shadow: true"
	}
	if a.Warmup != (ratelimit.Warmup{}) {
		s += fmt.Sprintf(", Warmup: %#v", a.Warmup)
	}
	if a.Receipt != 0 {
		s += fmt.Sprintf(", Receipt: %d", a.Receipt)
	}
	if a.HoldFor != 0 {
		s += fmt.Sprintf(", HoldFor: %d", int64(a.HoldFor))
	}
	if a.Charged != 0 {
		s += fmt.Sprintf(", Charged: %d", a.Charged)
	}
	return s + "}"
}

// quoted returns s as Go code. Many equal bytes at the beginning are shortened to a call of
// strings.Repeat.
func quoted(s string) string {
	if len(s) < 100 {
		return fmt.Sprintf("%q", s)
	}
	rest := strings.TrimLeft(s, s[:1])
	return fmt.Sprintf("strings.Repeat(%q, %d)+%q", s[:1], len(s)-len(rest), rest)
}
