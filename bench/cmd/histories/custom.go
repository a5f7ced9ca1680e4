package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// The type named "guess" is a custom limiter that allows or denies calls at random. Some of its calls also
// fail, in each of the ways in which a call of a limiter can fail.
type guess struct {
	w    *world
	name int
	good int // percentage of allowed calls among the calls that do not fail
	bad  int // percentage of the calls that fail
}

// Allow panics, because a RateLimiter must never call this method of a custom limiter. A RateLimiter
// must call the method Take.
func (g *guess) Allow(string) ratelimit.Result { panic("a rule has no use for Allow") }

// Take returns a random answer. It records the call and the answer in the transcript, which is the
// text of all calls.
func (g *guess) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	w := g.w
	if w.slow != nil && n > 0 && w.chance(50) {
		w.event("limiter %d take %q %d begins", g.name, key, n)
		select {
		case <-w.slow.After(oneOf(w.history, time.Millisecond, time.Second, time.Minute)):
		case <-ctx.Done():
		}
	}
	res, err := g.answer(ctx)
	w.event("limiter %d take %q %d ctx %v = %s", g.name, key, n, ctx.Err(), answer(res, err))
	if err != nil && err.Error() == "panic" {
		panic("the limiter panics")
	}
	return res, err
}

func (g *guess) answer(ctx context.Context) (res ratelimit.Result, err error) {
	h := g.w.history
	if h.chance(g.bad) {
		switch h.IntN(8) {
		case 0:
			return res, ratelimit.ErrInvalidCount
		case 1:
			return res, fmt.Errorf("no: %w", ratelimit.ErrExceedsLimit)
		case 2:
			res = ratelimit.Result{Allowed: h.chance(50), Limit: 7, Degraded: true, RetryAfter: time.Second}
			return res, fmt.Errorf("%w: %w", ratelimit.ErrStore, errDown)
		case 3:
			return res, errors.New("panic")
		case 4:
			if st := g.w.store; st != nil {
				st.end()
			}
			return res, ctx.Err()
		}
		return ratelimit.Result{Allowed: h.chance(50)}, errDown
	}
	res = ratelimit.Result{Limit: 5, Remaining: h.IntN(5), ResetAfter: time.Duration(h.IntN(3)) * time.Second}
	res.Allowed, res.Degraded = h.chance(g.good), h.chance(5)
	if res.Allowed {
		res.Delay = oneOf(h, 0, 0, 0, time.Millisecond, time.Second)
	} else {
		res.RetryAfter = oneOf(h, 0, time.Second, time.Millisecond, time.Minute, ratelimit.Never)
	}
	return res, nil
}

// The type named "settable" is a custom limiter like guess that also has the methods Reset and SetRate.
type settable struct {
	*guess
	rate ratelimit.Rate
}

// Reset records the call in the transcript. At random, it fails.
func (s *settable) Reset(key string) (err error) {
	if s.w.chance(10) {
		err = errDown
	}
	s.w.event("limiter %d reset %q = %s", s.name, key, problem(err))
	return err
}

// SetRate records the call in the transcript. At random, it fails.
func (s *settable) SetRate(r ratelimit.Rate) (err error) {
	if err = r.Validate(); err == nil && s.w.chance(20) {
		err = errDown
	}
	s.w.event("limiter %d set rate %+v = %s", s.name, r, problem(err))
	if err == nil {
		s.rate = r
	}
	return err
}

// The type named "rated" is a custom limiter like settable that also has the method Rate.
type rated struct{ *settable }

// Rate returns the rate that SetRate has set last or, before the first call of SetRate, the rate at
// the start.
func (r rated) Rate() ratelimit.Rate { return r.rate }

// The type named "closing" is a custom limiter like settable that also has the method Close.
type closing struct{ *settable }

// Close records the call in the transcript.
func (c closing) Close() error {
	c.w.event("limiter %d closed", c.name)
	return nil
}

// drawCustom returns a random custom limiter for a rule with the rate r. It is either a limiter of
// the package ratelimit with another random rate, or a limiter that answers at random.
func (w *world) drawCustom(r ratelimit.Rate) ratelimit.Limiter {
	if w.chance(40) {
		a := oneOf(w.history, algorithms...)
		if l, err := newLimiter(a, w.drawRate(a, 0), ratelimit.WithClock(w.clock)); err == nil {
			return l
		}
	}
	return w.drawGuess(r)
}

// drawGuess returns a custom limiter that answers at random. Its type is guess, or a type with
// further methods. A limiter of such a type has the rate r at the start.
func (w *world) drawGuess(r ratelimit.Rate) ratelimit.Limiter {
	g := &guess{w, w.IntN(100), oneOf(w.history, 50, 80, 100), oneOf(w.history, 0, 0, 10, 50)}
	switch w.IntN(4) {
	case 0:
		return g
	case 1:
		return rated{&settable{g, r}}
	case 2:
		return closing{&settable{g, r}}
	}
	return &settable{g, r}
}

// factory returns a Factory that knows a custom algorithm with the name Guess.
func (w *world) factory() *ratelimit.Factory {
	f := ratelimit.NewFactory()
	err := f.Register("Guess", func(config map[string]any, env ratelimit.Env) (ratelimit.Limiter, error) {
		w.event("build %v, %d keys", config, env.MaxKeys)
		switch config["good"] {
		case 13:
			return nil, errDown
		case 14:
			panic("the build panics")
		}
		good, _ := config["good"].(int)
		return closing{&settable{&guess{w, good, good, 0}, ratelimit.PerSecond(1)}}, nil
	})
	if err != nil {
		panic(err)
	}
	return f
}

// drawConfig returns a random configuration of one rule, as a map.
func (w *world) drawConfig() map[string]any {
	c := map[string]any{"endpoint": oneOf(w.history, patterns...), "key": string(oneOf(w.history, keyTypes[1:]...))}
	if w.chance(60) {
		c["name"] = oneOf(w.history, names...)
	}
	a := oneOf(w.history, algorithms...)
	c["algorithm"], c["rate"] = string(a), oneOf(w.history, "3/s", "5/m", "1/s", "2/100ms")
	if w.customs && w.chance(40) {
		good := oneOf(w.history, 50, 50, 80, 100, 13, 14)
		c = map[string]any{"endpoint": c["endpoint"], "algorithm": "Guess", "algoConfig": map[string]any{"good": good}}
		c["name"] = oneOf(w.history, names...)
	}
	if w.chance(10) {
		c["mode"] = oneOf(w.history, "shadow", "enforce", "strict")
	}
	if w.chance(10) {
		c["additional"] = true
	}
	if w.chance(10) {
		c["onStoreError"] = oneOf(w.history, "open", "closed", "local", "local:3", "x")
	}
	if w.chance(3) {
		c["colour"] = "red"
	}
	return c
}

// drawConfigs returns random configurations of several rules. It also returns a configuration of
// the default rule, or nil if there is to be no default rule.
func (w *world) drawConfigs() (configs []map[string]any, defaultConfig map[string]any) {
	for range 1 + w.IntN(3) {
		configs = append(configs, w.drawConfig())
	}
	if w.chance(30) {
		defaultConfig = map[string]any{"algorithm": "FixedWindow", "rate": oneOf(w.history, "3/s", "5/m")}
	}
	return configs, defaultConfig
}
