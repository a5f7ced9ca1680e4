package ratelimittest

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A modelLimiter is a limiter that has no faults, because it is made of models.
type modelLimiter struct {
	parts
	clock ratelimit.Clock
	start time.Time
	model func(time.Time, ratelimit.Rate) Model

	mu   sync.Mutex
	rate ratelimit.Rate
	keys map[string]Model
	seen map[string]time.Time // for mutants that need a memory
}

// parts replace parts of a modelLimiter, to put a fault into it.
type parts struct {
	take    func(l *modelLimiter, ctx context.Context, key string, n int) (ratelimit.Result, error)
	decide  func(l *modelLimiter, key string, n int) ratelimit.Result
	allow   func(l *modelLimiter, key string) ratelimit.Result
	peek    func(l *modelLimiter, key string) ratelimit.Result
	reset   func(l *modelLimiter, key string) error
	setRate func(l *modelLimiter, r ratelimit.Rate) error
}

// newLimiter returns a function for Config.New, which makes modelLimiters with the parts p.
func newLimiter(model func(time.Time, ratelimit.Rate) Model, p parts) func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error) {
	return func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
		if err := r.Validate(); err != nil {
			return nil, err
		}
		return &modelLimiter{
			parts: p, clock: clock, start: clock.Now(), model: model, rate: r,
			keys: make(map[string]Model), seen: make(map[string]time.Time),
		}, nil
	}
}

func (l *modelLimiter) of(key string) Model {
	if l.keys[key] == nil {
		l.keys[key] = l.model(l.start, l.rate)
	}
	return l.keys[key]
}

func (l *modelLimiter) ask(key string, n int) ratelimit.Result {
	if l.decide != nil {
		return l.decide(l, key, n)
	}
	return l.of(key).Ask(l.clock.Now(), n)
}

func (l *modelLimiter) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.take != nil {
		return l.take(l, ctx, key, n)
	}
	if n < 0 {
		return ratelimit.Result{}, ratelimit.ErrInvalidCount
	}
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, err
	}
	return l.ask(key, n), nil
}

func (l *modelLimiter) Allow(key string) ratelimit.Result {
	if l.allow != nil {
		return l.allow(l, key)
	}
	res, _ := l.Take(context.Background(), key, 1)
	return res
}

func (l *modelLimiter) Peek(key string) ratelimit.Result {
	if l.peek != nil {
		return l.peek(l, key)
	}
	res, _ := l.Take(context.Background(), key, 0)
	return res
}

func (l *modelLimiter) Reset(key string) error {
	if l.reset != nil {
		return l.reset(l, key)
	}
	l.of(key).Reset()
	return nil
}

func (l *modelLimiter) SetRate(r ratelimit.Rate) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.setRate != nil {
		return l.setRate(l, r)
	}
	return l.change(r)
}

func (l *modelLimiter) change(r ratelimit.Rate) error {
	if err := r.Validate(); err != nil {
		return err
	}
	for _, m := range l.keys {
		m.SetRate(l.clock.Now(), r)
	}
	l.rate = r
	return nil
}

// edit returns parts that change the answers of the models.
func edit(change func(res ratelimit.Result, n int) ratelimit.Result) parts {
	return parts{decide: func(l *modelLimiter, key string, n int) ratelimit.Result {
		return change(l.of(key).Ask(l.clock.Now(), n), n)
	}}
}

// deciding returns parts that let decide make the decisions.
func deciding(decide func(l *modelLimiter, key string, n int) ratelimit.Result) parts {
	return parts{decide: decide}
}

// faster makes models as m does, but at twice the rate and with the same limit.
func faster(m func(time.Time, ratelimit.Rate) Model) func(time.Time, ratelimit.Rate) Model {
	return func(start time.Time, r ratelimit.Rate) Model {
		return m(start, ratelimit.Rate{Requests: r.Requests * 2, Per: r.Per, Burst: burst(r)})
	}
}

// A rewinding bucket moves its clock back at each ask that is granted.
type rewinding struct {
	Model
	lead time.Duration // of the model's clock
	last time.Time
}

func (m *rewinding) Ask(at time.Time, n int) ratelimit.Result {
	if back := m.last.Sub(at); back > 0 {
		m.lead += back
	}
	m.last = at
	return m.Model.Ask(at.Add(m.lead), n)
}
