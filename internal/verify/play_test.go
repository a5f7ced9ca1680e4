package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A player makes the calls of a schedule on a limiter and on one model for each key. As
// long as the rate is the first one, it also asks one oracle for each key.
type player struct {
	algorithm algorithm
	limiter   limiter
	clock     *manualClock
	made      time.Time
	rate      ratelimit.Rate
	rates     []ratelimit.Rate // rates to change to
	changed   bool             // whether the rate has changed, so that oracles can no longer judge
	seats     map[string]*seat

	calls, judged int
}

// A seat is what a player knows of one key.
type seat struct {
	model  ratelimittest.Model
	oracle *oracle
	asked  time.Time // time of the last ask
	last   ratelimit.Result
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// newPlayer returns a player of a limiter of a, which is made at the instant made with the
// rate first.
func newPlayer(a algorithm, made time.Time, first ratelimit.Rate, rates []ratelimit.Rate) (*player, error) {
	p := &player{algorithm: a, made: made, rate: first, rates: rates, seats: make(map[string]*seat)}
	p.clock = &manualClock{made}
	l, err := a.make(first, ratelimit.WithClock(p.clock))
	if err != nil {
		return nil, err
	}
	p.limiter = l
	p.seat(made)
	return p, nil
}

// seat makes every key new, for a limiter that is made at the instant made.
func (p *player) seat(made time.Time) {
	p.made = made
	for _, key := range keys {
		p.seats[key] = &seat{
			model:  p.algorithm.model(made, p.rate),
			oracle: &oracle{rate: p.rate, made: made, fits: p.algorithm.fits},
			asked:  made,
		}
	}
}

// reads must be called before the limiter reads the clock. If the limiter was made at a time
// outside the years 1678 to 2262, all its keys are as new at the first reading inside.
func (p *player) reads() error {
	if usual(p.made) || !usual(p.clock.now) {
		return nil
	}
	for _, key := range keys {
		if err := p.obeyed(p.seats[key]); err != nil {
			return err
		}
	}
	p.changed = false
	p.seat(p.clock.now)
	return nil
}

func usual(t time.Time) bool { return 1678 <= t.Year() && t.Year() <= 2262 }

func (p *player) key(c call) string { return keys[int(c.Key)%len(keys)] }

// play makes the calls, and then checks the laws over everything that was granted.
func (p *player) play(schedule []call) error {
	for i, c := range schedule {
		if err := p.do(c); err != nil {
			return fmt.Errorf("%s, made at %v, call %d, at the start %+d ns: %w", p.algorithm.name, p.made, i, p.clock.now.Sub(p.made), err)
		}
	}
	for _, key := range keys {
		if err := p.obeyed(p.seats[key]); err != nil {
			return err
		}
	}
	return nil
}

// obeyed checks the laws over what the key of s was granted.
func (p *player) obeyed(s *seat) error {
	if problem := s.oracle.broken(p.algorithm.laws); problem != "" {
		return fmt.Errorf("%s at %#v: %s", p.algorithm.name, p.rate, problem)
	}
	return nil
}

// do makes one call, and compares the answers.
func (p *player) do(c call) error {
	p.calls++
	p.clock.now = p.moved(c)
	key := p.key(c)
	if verb := c.Verb % verbs; verb != takeEnded && (verb != take || p.counted(c) >= 0) {
		if err := p.reads(); err != nil {
			return err
		}
	}
	s := p.seats[key]
	switch c.Verb % verbs {
	case allow:
		return p.compare(s, c, 1, p.limiter.Allow(key))
	case peek:
		return p.compare(s, c, 0, p.limiter.Peek(key))
	case reset:
		if err := p.obeyed(s); err != nil {
			return err
		}
		s.model.Reset()
		s.oracle.grants = nil
		return p.limiter.Reset(key)
	case setRate:
		return p.change(p.nextRate(c))
	case takeEnded:
		res, err := p.limiter.Take(ended, key, max(p.counted(c), 0))
		return refused(res, err, context.Canceled)
	}
	n := p.counted(c)
	res, err := p.limiter.Take(context.Background(), key, n)
	if n < 0 {
		return refused(res, err, ratelimit.ErrInvalidCount)
	}
	if err != nil {
		return err
	}
	return p.compare(s, c, n, res)
}

// compare compares the whole of res, an answer for n units, with that of the model, and
// lets the oracle judge it.
func (p *player) compare(s *seat, c call, n int, res ratelimit.Result) error {
	s.asked, s.last = p.clock.now, res
	if want := s.model.Ask(p.clock.now, n); res != want {
		return fmt.Errorf("%v of %d at %#v:\n got %+v\nwant %+v", c, n, p.rate, res, want)
	}
	if p.changed {
		return nil
	}
	p.judged++
	if problem := s.oracle.judge(p.clock.now, n, res, p.algorithm.name == "LeakyBucket"); problem != "" {
		return fmt.Errorf("%v of %d at %#v: %s\n got %+v", c, n, p.rate, problem, res)
	}
	return nil
}

// change changes the rate of the limiter and of all models.
func (p *player) change(r ratelimit.Rate) error {
	if err := p.limiter.SetRate(ratelimit.Rate{}); !errors.Is(err, ratelimit.ErrInvalidConfig) {
		return fmt.Errorf("SetRate of the zero Rate: %w", err)
	}
	if err := p.limiter.SetRate(r); err != nil {
		return err
	}
	if got := p.limiter.Rate(); got != r {
		return fmt.Errorf("Rate is %#v after SetRate(%#v)", got, r)
	}
	for _, key := range keys {
		s := p.seats[key]
		if r != p.rate {
			if err := p.obeyed(s); err != nil {
				return err
			}
			s.oracle.grants = nil
		}
		s.model.SetRate(p.clock.now, r)
	}
	p.changed = p.changed || r != p.rate
	p.rate = r
	return nil
}

// refused requires that nothing was decided, and that the error is want.
func refused(res ratelimit.Result, err, want error) error {
	if !errors.Is(err, want) || res != (ratelimit.Result{}) {
		return fmt.Errorf("got %+v and the error %w, want the zero Result and %w", res, err, want)
	}
	return nil
}
