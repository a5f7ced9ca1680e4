package verify

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A gate is a custom limiter that denies until it is opened, and asks to come again after retry.
type gate struct {
	mu     sync.Mutex // held by Take, which two callers may call between two steps of a test
	open   bool
	denies int // how many requests it denies even so
	asked  int
	retry  time.Duration
	delay  time.Duration // of what it grants
}

func (g *gate) Allow(key string) ratelimit.Result {
	res, _ := g.Take(context.Background(), key, 1)
	return res
}

func (g *gate) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > 0 {
		g.asked++
	}
	if g.denies > 0 && n > 0 {
		g.denies--
	} else if g.open {
		return ratelimit.Result{Allowed: true, Limit: 1, Remaining: 1, Delay: g.delay}, nil
	}
	return ratelimit.Result{Limit: 1, RetryAfter: g.retry}, nil
}

// A customLine drives a RateLimiter with a global rule of 1 a second. Requests for "/custom" are
// decided by a gate too.
type customLine struct {
	t     *testing.T
	l     *ratelimit.RateLimiter
	clock *ratelimit.FakeClock // nil for the machine's clock
	gate  *gate
}

func inCustomLine(t *testing.T, fake bool, test func(c *customLine)) {
	synctest.Test(t, func(t *testing.T) {
		c := &customLine{t: t, gate: &gate{open: true, retry: time.Second}}
		var opts []ratelimit.Option
		if fake {
			c.clock = ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
			opts = append(opts, ratelimit.WithClock(c.clock))
		}
		var err error
		c.l, err = ratelimit.New([]ratelimit.Rule{
			{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1)},
			{Name: "gate", Endpoint: "/custom", Limiter: c.gate},
		}, nil, opts...)
		require.NoError(t, err)
		test(c)
	})
}

// wait starts a Wait for endpoint and returns a channel that is closed when it is served.
func (c *customLine) wait(ctx context.Context, endpoint string) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		if _, err := c.l.Wait(ctx, ratelimit.Request{Endpoint: endpoint}); err == nil {
			close(done)
		}
	}()
	synctest.Wait()
	return done
}

// advance moves the clock and waits until everybody has seen it.
func (c *customLine) advance(d time.Duration) {
	if c.clock != nil {
		c.clock.Advance(d)
	} else {
		<-time.After(d)
	}
	synctest.Wait()
}

// TestACustomLimiterHasAPlaceInLine has requests that a custom limiter decides wait for a rule
// whose line never gets empty: each is served after those that were there when its turn to stand
// in that line came.
func TestACustomLimiterHasAPlaceInLine(t *testing.T) {
	inCustomLine(t, true, func(c *customLine) {
		require.True(t, c.l.Allow("", "/").Allowed)
		plain := []<-chan struct{}{c.wait(c.t.Context(), "/"), c.wait(c.t.Context(), "/")}
		custom := []<-chan struct{}{c.wait(c.t.Context(), "/custom"), c.wait(c.t.Context(), "/custom")}
		require.Zero(t, c.gate.asked, "it is asked when the other rules grant")
		var order []string
		for second := range 9 {
			plain = append(plain, c.wait(c.t.Context(), "/"))
			c.advance(time.Second)
			for i, done := range plain {
				if done != nil && served(done) {
					order, plain[i] = append(order, "plain"), nil
				}
			}
			for i, done := range custom {
				if done != nil && served(done) {
					order, custom[i] = append(order, fmt.Sprint("custom ", i)), nil
				}
			}
			require.Len(t, order, second+1, "one is served every second")
		}
		require.Equal(t, []string{"plain", "plain", "custom 0", "plain", "plain", "plain", "custom 1", "plain", "plain"}, order)
		require.Equal(t, 2, c.gate.asked)
		c.advance(time.Minute)
	})
}

// TestACustomLimiterThatDeniesGivesItsTurnBack has a custom limiter deny a request whose turn has
// come: whoever is behind it takes the unit at once, and the request comes again after the
// RetryAfter of the limiter.
func TestACustomLimiterThatDeniesGivesItsTurnBack(t *testing.T) {
	inCustomLine(t, true, func(c *customLine) {
		c.gate.open, c.gate.retry = false, 2*time.Second
		require.True(t, c.l.Allow("", "/").Allowed)
		custom := c.wait(c.t.Context(), "/custom")
		plain := c.wait(c.t.Context(), "/")
		require.Equal(t, 3*time.Second, c.l.Allow("", "/").RetryAfter, "both are ahead")
		c.advance(time.Second)
		require.Equal(t, 1, c.gate.asked)
		require.False(t, served(custom))
		require.True(t, served(plain))
		c.advance(time.Second)
		require.Equal(t, 1, c.gate.asked, "not before its RetryAfter")
		require.True(t, c.l.Allow("", "/").Allowed, "it does not stand in line meanwhile")
		c.gate.open = true
		c.advance(time.Second)
		require.True(t, served(custom))
		var stats []uint64
		for _, s := range c.l.Stats() {
			stats = append(stats, s.Allowed, s.Denied)
		}
		require.Equal(t, []uint64{4, 1, 1, 0}, stats, "what was given back is not counted")
	})
}

// TestACustomLimiterInLineIsCancelled cancels a request that a custom limiter decides, in line and
// at the instant at which its turn comes. It has taken nothing, unless it was served.
func TestACustomLimiterInLineIsCancelled(t *testing.T) {
	for _, late := range []bool{false, true} {
		inCustomLine(t, true, func(c *customLine) {
			require.True(t, c.l.Allow("", "/").Allowed)
			ctx, cancel := context.WithCancel(c.t.Context())
			custom := c.wait(ctx, "/custom")
			plain := c.wait(c.t.Context(), "/")
			if late {
				c.clock.Advance(time.Second) // before anybody has woken up
			}
			cancel()
			synctest.Wait()
			if !late {
				c.advance(time.Second)
			}
			if served(custom) {
				require.True(t, late)
				c.advance(time.Second)
			}
			require.True(t, served(plain), "late: %t", late)
			require.Equal(t, time.Second, c.l.Allow("", "/").RetryAfter, "late: %t: no unit is lost", late)
		})
	}
}

// TestACustomLimiterInLineMeetsOtherRules changes the rules while a request that a custom limiter
// decides stands in line: it keeps its place unless its own rules change, and goes by the new
// ones then.
func TestACustomLimiterInLineMeetsOtherRules(t *testing.T) {
	for _, row := range []struct {
		change func(l *ratelimit.RateLimiter) error
		served bool // the custom one, before the plain one
		why    string
	}{
		{func(l *ratelimit.RateLimiter) error {
			return l.AddRule(ratelimit.Rule{Endpoint: "/other", Rate: ratelimit.PerSecond(1)})
		}, true, "a rule of others"},
		{func(l *ratelimit.RateLimiter) error {
			return l.UpdateRate("all", ratelimit.PerSecond(1).WithBurst(2))
		}, true, "another rate"},
		{func(l *ratelimit.RateLimiter) error {
			return l.Reset(context.Background(), ratelimit.Request{Endpoint: "/other", Rules: []string{"all"}})
		}, true, "a reset serves both"},
		{func(l *ratelimit.RateLimiter) error {
			return l.AddRule(ratelimit.Rule{Name: "new", Endpoint: "/custom", Rate: ratelimit.PerSecond(1)})
		}, false, "a rule of its own: it lines up behind"},
		{func(l *ratelimit.RateLimiter) error { return l.RemoveRule("gate") }, false, "without the limiter it waits anew, like any other"},
	} {
		inCustomLine(t, true, func(c *customLine) {
			require.True(t, c.l.Allow("", "/").Allowed)
			custom := c.wait(c.t.Context(), "/custom")
			plain := c.wait(c.t.Context(), "/")
			require.NoError(t, row.change(c.l), row.why)
			synctest.Wait()
			c.advance(time.Second)
			require.Equal(t, row.served, served(custom), row.why)
			c.advance(time.Second)
			require.True(t, served(custom), row.why)
			require.True(t, served(plain), row.why)
			require.Zero(t, c.l.Stats()[0].Errors)
		})
	}
}

// TestACustomLimiterInLineIsLate has requests with a deadline wait behind others for a rule beside
// a custom limiter: one that cannot be served in time fails at once, also when it lines up again.
func TestACustomLimiterInLineIsLate(t *testing.T) {
	inCustomLine(t, false, func(c *customLine) {
		require.True(t, c.l.Allow("", "/").Allowed)
		c.gate.open = false
		wait := func(d time.Duration) (<-chan struct{}, *error) {
			done, failed := make(chan struct{}), new(error)
			ctx, cancel := context.WithTimeout(c.t.Context(), d)
			go func() {
				defer close(done)
				defer cancel()
				_, *failed = c.l.Wait(ctx, ratelimit.Request{Endpoint: "/custom"})
			}()
			synctest.Wait()
			return done, failed
		}
		done, failed := wait(time.Second)
		require.True(t, served(done), "its turn comes at its deadline")
		require.ErrorIs(t, *failed, context.DeadlineExceeded)
		done, failed = wait(2500 * time.Millisecond)
		require.False(t, served(done))
		c.advance(time.Second) // it is denied, and is to come again at 2 s
		require.Equal(t, 1, c.gate.asked)
		for range 3 {
			c.wait(c.t.Context(), "/")
		}
		c.advance(time.Second)
		require.True(t, served(done), "its turn would come at 5 s")
		require.ErrorIs(t, *failed, context.DeadlineExceeded)
		require.Equal(t, 1, c.gate.asked)
		c.advance(time.Minute)
	})
}

// A hookLimiter is a custom limiter that is a function.
type hookLimiter func(ctx context.Context, key string, n int) (ratelimit.Result, error)

func (h hookLimiter) Allow(key string) ratelimit.Result {
	res, _ := h(context.Background(), key, 1)
	return res
}

func (h hookLimiter) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	return h(ctx, key, n)
}

// TestACustomLimiterInLineMisbehaves has the custom limiter of a request whose turn has come panic,
// call the RateLimiter, change the rules and ask for a Delay, and the clock step back meanwhile.
func TestACustomLimiterInLineMisbehaves(t *testing.T) {
	for _, mode := range []string{"panic", "callback", "back", "burst", "leaky", "remove in hook"} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
				var l *ratelimit.RateLimiter
				ask := 0
				lim := hookLimiter(func(_ context.Context, _ string, n int) (ratelimit.Result, error) {
					if n == 0 {
						return ratelimit.Result{Allowed: true, Limit: 3, Remaining: 3, Delay: 5 * time.Second}, nil
					}
					ask++
					switch mode {
					case "panic":
						panic("the limiter")
					case "callback":
						l.Allow("", "/")
						l.Allow("", "/c")
					case "remove in hook":
						if ask == 1 {
							_ = l.RemoveRule("gate")
							return ratelimit.Result{Limit: 3, RetryAfter: time.Hour}, nil
						}
					case "leaky":
						return ratelimit.Result{Allowed: true, Limit: 3, Remaining: 3, Delay: 5 * time.Second}, nil
					}
					return ratelimit.Result{Allowed: true, Limit: 3, Remaining: 3}, nil
				})
				var err error
				l, err = ratelimit.New([]ratelimit.Rule{
					{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1).WithBurst(3)},
					{Name: "gate", Endpoint: "/c", Limiter: lim},
				}, nil, ratelimit.WithClock(clock))
				require.NoError(t, err)
				for range 3 {
					require.True(t, l.Allow("", "/").Allowed)
				}
				done := make(chan struct{})
				var panicked any
				cost := 1
				if mode == "burst" {
					cost = 3
				}
				go func() {
					defer close(done)
					defer func() { panicked = recover() }()
					_, err := l.Wait(t.Context(), ratelimit.Request{Endpoint: "/c", Cost: cost})
					require.NoError(t, err)
				}()
				synctest.Wait()
				plain := make(chan struct{})
				go func() {
					defer close(plain)
					_, err := l.Wait(t.Context(), ratelimit.Request{Endpoint: "/"})
					require.NoError(t, err)
				}()
				synctest.Wait()
				step := func(d time.Duration) { clock.Advance(d); synctest.Wait() }
				switch mode {
				case "panic":
					step(time.Second)
					require.True(t, served(done))
					require.Equal(t, "the limiter", panicked)
					require.True(t, served(plain))
				case "callback":
					step(time.Second)
					require.True(t, served(done))
					step(time.Second)
					require.True(t, served(plain))
				case "back":
					step(-10 * time.Second)
					step(9 * time.Second)
					require.False(t, served(done))
					step(time.Second)
					require.False(t, served(done))
					step(time.Second)
					require.True(t, served(done))
					step(time.Second)
					require.True(t, served(plain))
				case "burst":
					step(2 * time.Second)
					require.False(t, served(done))
					require.False(t, served(plain))
					step(time.Second)
					require.True(t, served(done))
					require.False(t, served(plain))
					step(time.Second)
					require.True(t, served(plain))
				case "leaky":
					step(10 * time.Second)
					require.False(t, served(done), "delay counts from when it was asked")
					step(5*time.Second - 1)
					require.False(t, served(done))
					step(1)
					require.True(t, served(done))
				case "remove in hook":
					step(time.Second)
					require.True(t, served(plain))
					require.False(t, served(done))
					step(time.Second)
					require.True(t, served(done))
				}
				step(time.Minute)
				require.True(t, served(plain) && served(done))
			})
		})
	}
}

// TestACustomLimiterBesideAStoreInLine proves that Wait asks the store each time it asks a custom
// limiter: the store's units are charged, and come back when the limiter denies.
func TestACustomLimiterBesideAStoreInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		g := &gate{open: true, retry: 10 * time.Second}
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "ours", Endpoint: "/", Rate: ratelimit.PerMinute(1)},
			{Name: "gate", Endpoint: "/", Limiter: g},
		}, nil, ratelimit.WithStore(store), ratelimit.WithName("line"))
		require.NoError(t, err)
		began := time.Now()
		for i := range 3 {
			res, err := l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/"})
			require.NoError(t, err)
			require.True(t, res.Allowed)
			require.Equal(t, time.Duration(i)*time.Minute, time.Since(began))
		}
		g.denies = 2
		_, err = l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/"})
		require.NoError(t, err)
		require.Equal(t, (120+80)*time.Second, time.Since(began), "denied at 60 and 70 s after the third, granted at 80")
		require.Equal(t, 6, g.asked)
	})
}

// TestWhoWaitsIsNotOneTooMany proves that a caller that a custom limiter denies again does not count
// against itself.
func TestWhoWaitsIsNotOneTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: true, denies: 5, retry: time.Second}
		l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/", Limiter: g}}, nil, ratelimit.WithMaxWaiters(1))
		require.NoError(t, err)
		var waited error
		go func() { _, waited = l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/"}) }()
		synctest.Wait()
		_, err = l.Wait(t.Context(), ratelimit.Request{Client: "d", Endpoint: "/"})
		require.ErrorIs(t, err, ratelimit.ErrTooManyWaiters)
		<-time.After(time.Minute)
		synctest.Wait()
		require.NoError(t, waited)
		require.Equal(t, 6, g.asked)
	})
}
