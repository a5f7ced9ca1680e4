package ratelimittest

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// TestRight checks that limiters made of the models keep every promise. The kit thus finds
// each mutant only because of its fault.
func TestRight(t *testing.T) {
	models := map[string]func(time.Time, ratelimit.Rate) Model{
		"token bucket": TokenBucketModel, "fixed window": FixedWindowModel,
		"sliding log": SlidingWindowLogModel, "sliding counter": SlidingWindowCounterModel,
		"leaky bucket": LeakyBucketModel,
	}
	for name, model := range models {
		t.Run(name, func(t *testing.T) {
			TestLimiter(t, Config{New: newLimiter(model, parts{}), Rates: smallRates, Model: model, Schedules: 50, Seed: 1})
		})
	}
}

// TestFailure checks the text of a failure, which can be pasted into a test.
func TestFailure(t *testing.T) {
	lavish := edit(func(res ratelimit.Result, n int) ratelimit.Result {
		res.ResetAfter += 5
		return res
	})
	k, err := newKit(Config{
		New:    newLimiter(SlidingWindowLogModel, lavish),
		Model:  SlidingWindowLogModel,
		Rates:  []ratelimit.Rate{{Requests: 2, Per: 10}},
		Starts: []time.Time{time.Unix(7, 8)},
		Seed:   1,
	})
	if err != nil {
		t.Fatal(err)
	}
	broken := k.run()
	if len(broken) != 1 || broken["model"] == nil {
		t.Fatalf("broken: %v", broken)
	}
	got := broken["model"].String()
	if again := k.run()["model"].String(); got != again {
		t.Errorf("the same seed shows another failure:\n%s", again)
	}
	for _, line := range []string{
		"seed 1, schedule 0;",
		"\tstart := time.Unix(7, 8)\n",
		"\tclock := ratelimit.NewFakeClock(start)\n",
		"\tl, _ := New(ratelimit.Rate{Requests:2, Per:10, Burst:0, Window:\"\"}, clock)\n",
		"\tclock.Set(start.Add(0)) // 0s\n",
		"\tl.Take(ctx, \"a\", 1) // allowed, 1 of 2 remain, reset after 15ns\n",
		"\t// the model says: allowed, 1 of 2 remain, reset after 10ns",
	} {
		if !strings.Contains(got, line) {
			t.Errorf("the failure lacks %q:\n%s", line, got)
		}
	}
}

// A hasty limiter looks, lets other goroutines run, and then takes without looking again.
type hasty struct{ *modelLimiter }

func (l hasty) Allow(key string) ratelimit.Result {
	res := l.Peek(key)
	runtime.Gosched()
	if res.Allowed {
		l.modelLimiter.Allow(key)
	}
	return res
}

func TestConcurrent(t *testing.T) {
	right := newLimiter(TokenBucketModel, parts{})
	k, err := newKit(Config{New: right})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.concurrent(); err != nil {
		t.Errorf("a limiter that makes one decision at a time must pass: %v", err)
	}
	k.New = func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
		l, err := right(r, clock)
		return hasty{l.(*modelLimiter)}, err
	}
	for range 100 {
		if k.concurrent() != nil {
			return
		}
	}
	t.Error("the kit does not find a limiter that looks first and takes later")
}

func TestConfig(t *testing.T) {
	refuse := errors.New("too slow")
	picky := func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
		if r.Per > time.Second {
			return nil, refuse
		}
		return newLimiter(TokenBucketModel, parts{})(r, clock)
	}
	k, err := newKit(Config{New: picky})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range k.Rates {
		if r.Per > time.Second {
			t.Errorf("a default rate that New refuses is kept: %v", r)
		}
	}
	if k.Steps != 60 || k.Resolution != 1 || k.Span != math.MaxInt64 {
		t.Errorf("defaults: %d steps, resolution %v, span %v", k.Steps, k.Resolution, k.Span)
	}
	if _, err := newKit(Config{New: picky, Rates: []ratelimit.Rate{ratelimit.PerDay(1)}}); !errors.Is(err, refuse) {
		t.Errorf("a given rate that New refuses must be an error, got %v", err)
	}
	if _, err := newKit(Config{}); err == nil {
		t.Error("a Config without New must be an error")
	}
	never := func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error) { return nil, refuse }
	if _, err := newKit(Config{New: never}); err == nil {
		t.Error("a Config without a rate that New accepts must be an error")
	}
}

// TestSchedules checks that the random schedules obey the Config, and reach the cases that
// they are meant to reach.
func TestSchedules(t *testing.T) {
	const span = 366 * 24 * time.Hour
	k, err := newKit(Config{New: newLimiter(LeakyBucketModel, parts{}), Resolution: time.Microsecond, Span: span, KeepRate: true})
	if err != nil {
		t.Fatal(err)
	}
	asks, denied, back, same := 0, 0, 0, 0
	for i := range 200 {
		tr, err := k.write(i)
		if err != nil {
			t.Fatal(err)
		}
		if tr.start.Nanosecond()%1000 != 0 {
			t.Errorf("start %v is not a whole microsecond", tr.start)
		}
		for j, c := range tr.calls {
			if c.at%time.Microsecond != 0 || c.at > span || c.at < -span || c.verb == setRate {
				t.Fatalf("schedule %d: %v at %v", i, c, c.at)
			}
			if tr.limited(j) {
				asks++
			}
			if tr.denies(j) {
				denied++
			}
			if j > 0 && c.at < tr.calls[j-1].at {
				back++
			}
			if j > 0 && c.at == tr.calls[j-1].at {
				same++
			}
		}
	}
	total := 200 * k.Steps
	for _, row := range []struct {
		what             string
		count, min, most int
	}{{"asks", asks, 85, 95}, {"denied", denied, 15, 60}, {"back", back, 8, 40}, {"same", same, 30, 60}} {
		if percent := 100 * row.count / total; percent < row.min || percent > row.most {
			t.Errorf("%s: %d%% of the calls, want %d%% to %d%%", row.what, percent, row.min, row.most)
		}
	}
}

// TestUnlimited checks that a limiter without a limit can keep every promise.
func TestUnlimited(t *testing.T) {
	TestLimiter(t, Config{
		New: func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error) { return unlimited{}, nil },
	})
}

type unlimited struct{}

func (unlimited) Allow(string) ratelimit.Result {
	return ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}
}

func (l unlimited) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	if n < 0 {
		return ratelimit.Result{}, ratelimit.ErrInvalidCount
	}
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, err
	}
	return l.Allow(key), nil
}
