package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit"
)

var (
	errDown    = errors.New("connection refused")
	errRefused = errors.New("cannot do that")
)

// A store passes its calls to a MemoryStore. It records each call in the transcript, and makes some
// of the calls fail.
type store struct {
	h      *history
	memory *ratelimit.MemoryStore

	down  int    // percentage of the calls that fail
	picky bool   // if true, a call of Take that requests no units does not fail
	call  uint64 // the number of the last call that failed with an error of the type shared
	parts int    // how many parts (such as servers) the store has: the method Part returns a number from 0 to parts-1

	refuses int           // the method Supports refuses rates whose field Requests has this value
	looks   bool          // whether the method Accepts allows asks whose field Look is true
	cancel  func()        // ends the context of the current call; nil if this context must not be ended
	later   []func(error) // functions that report the late result of a call whose caller gave up before the call ended
}

// newStore returns a store whose MemoryStore reads the given clock.
func newStore(h *history, clock ratelimit.Clock) *store {
	opts := []ratelimit.Option{ratelimit.WithClock(clock)}
	if h.chance(15) {
		opts = append(opts, ratelimit.WithMaxKeys(1+h.IntN(4)))
	}
	memory, err := ratelimit.NewMemoryStore(opts...)
	if err != nil {
		panic(err)
	}
	st := &store{h: h, memory: memory, parts: oneOf(h, 1, 2, 3, 70), looks: h.chance(80), down: oneOf(h, 0, 0, 5, 20)}
	if h.chance(20) {
		st.refuses = 5
	}
	return st
}

// faults sometimes changes the percentage of calls that fail. It also sometimes reports the result of
// a call that ended late, after its caller had given up.
func (st *store) faults() {
	h := st.h
	if h.chance(8) {
		st.picky = h.chance(30)
		st.down = oneOf(h, 0, 0, 10, 50, 95, 100)
		h.say("store fails %d%%, only where it takes units: %v", st.down, st.picky)
	}
	if len(st.later) > 0 && h.chance(30) {
		end := st.later[0]
		st.later = st.later[1:]
		err := oneOf(h, nil, errDown, errDown, context.Canceled)
		h.try("later "+problem(err), func() string { end(err); return "told" })
	}
}

// The method named "ends" returns a context for the next call of the store. At random, this is the context
// ctx itself, or a child of ctx that the store may cancel during the call. If st is nil, there is no
// store, and the result is ctx.
func (st *store) ends(ctx context.Context) context.Context {
	if st == nil || ctx == nil || ctx.Err() != nil || st.h.chance(60) {
		return ctx
	}
	ctx, st.cancel = context.WithCancel(ctx)
	return ctx
}

// mayEnd returns the context ctx. At random, it also lets the next call of the store end this
// context. If st is nil, there is no store, and no call ends the context.
func (st *store) mayEnd(ctx *deadline) context.Context {
	if st != nil && st.h.chance(30) {
		st.cancel = func() { ctx.end(context.Canceled) }
	}
	return ctx
}

// The method named "end" calls st.cancel, which ends the context of the current call. If st.cancel is nil,
// it does nothing.
func (st *store) end() {
	if st.cancel != nil {
		st.cancel()
		st.cancel = nil
	}
}

// The type fault is an error of a store. Its method Parts returns which parts of the store have
// failed.
type fault struct {
	error
	parts []int
}

func (f fault) Unwrap() error { return f.error }
func (f fault) Parts() []int  { return f.parts }

// The type named "answered" is an error with the method Answered. This method tells the limiter that the
// store was reached and has answered.
type answered struct{ error }

func (answered) Answered() bool { return true }

// The type named "shared" is the error of one call to the store that several callers share: each of them gets
// this error. The method Call returns the number of the call to the store.
type shared struct {
	error
	call uint64
}

func (s shared) Call() uint64 { return s.call }

// The type named "unfinished" is the error for a caller that gave up before its call to the store ended. The
// limiter passes a function to the method Later. The store calls this function with the result of the
// call when the result is known.
type unfinished struct {
	error
	st *store
}

func (u unfinished) Unwrap() error         { return u.error }
func (u unfinished) Later(end func(error)) { u.st.later = append(u.st.later, end) }

// serve handles one call to the store. At random, it calls the given function, or makes the call
// fail, or does both. It records the call in the transcript under the given name.
func (st *store) serve(ctx context.Context, name string, do func() (text string, err error)) error {
	h := st.h
	outcome := "fine"
	if h.chance(st.down) {
		outcome = oneOf(h, "before", "before", "before", "after", "answered", "shared", "parts", "parts", "panic", "left", "left", "unfinished")
	} else if st.cancel != nil && h.chance(40) {
		outcome = oneOf(h, "left", "unfinished", "late")
	}
	text, err := "", error(nil)
	if outcome == "fine" || outcome == "after" || outcome == "late" {
		text, err = do()
	}
	switch outcome {
	case "before", "after":
		err = oneOf(h, errDown, fmt.Errorf("%w: %w", ratelimit.ErrStore, errDown))
	case "answered":
		err = answered{errRefused}
	case "shared":
		st.call += uint64(h.IntN(2))
		err = shared{errDown, st.call}
	case "parts":
		err = fault{errDown, []int{h.IntN(4), h.IntN(80)}[:h.IntN(3)]}
	case "panic":
		h.event("store.%s ctx %v panics", name, ctx.Err())
		panic("the store panics")
	case "left", "unfinished", "late":
		if st.end(); ctx.Err() == nil {
			err = errDown
		} else if outcome == "left" {
			err = ctx.Err()
		} else if outcome == "unfinished" {
			err = unfinished{ctx.Err(), st}
		}
	}
	h.event("store.%s ctx %v %s: %s %s", name, ctx.Err(), outcome, text, problem(err))
	return err
}

// Take calls the method Take of the MemoryStore. Some calls fail at random.
func (st *store) Take(ctx context.Context, asks []ratelimit.Ask) (all []ratelimit.Result, err error) {
	down := st.down
	if st.picky && len(asks) > 0 && asks[0].N == 0 {
		st.down = 0
	}
	defer func() { st.down = down }()
	err = st.serve(ctx, "take "+st.h.asks(asks), func() (string, error) {
		all, err = st.memory.Take(ctx, asks)
		all = st.miscount(all)
		return results(all), err
	})
	return all, err
}

// miscount returns the given results. To imitate a faulty store, it sometimes leaves one result out
// or adds one.
func (st *store) miscount(all []ratelimit.Result) []ratelimit.Result {
	switch {
	case st.down == 0 || len(all) == 0 || !st.h.chance(3):
		return all
	case st.h.chance(50):
		return all[1:]
	}
	return append(all, all[0])
}

// Reset calls the method Reset of the MemoryStore. Some calls fail at random.
func (st *store) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return st.serve(ctx, "reset "+st.h.asks(asks), func() (string, error) { return "", st.memory.Reset(ctx, asks) })
}
