package verify

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// retryRules are three rules that enforce, and one in shadow.
var retryRules = []ratelimit.Rule{
	{Name: "own", Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerMinute(60).WithBurst(20)},
	{Name: "all", Endpoint: "/", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerMinute(60).WithBurst(500)},
	{Name: "more", Endpoint: "/", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerMinute(60).WithBurst(600)},
	{Name: "planned", Endpoint: "/", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(60).WithBurst(30)},
}

// A retrier sends requests of alice, and compares what is charged and replayed.
type retrier struct {
	t     *testing.T
	clock *ratelimit.FakeClock
	l     *ratelimit.RateLimiter
}

// inBothPlaces runs test with the state, and the answers to requests with an ID, in this process and
// in a store.
func inBothPlaces(t *testing.T, rules []ratelimit.Rule, test func(r *retrier)) {
	t.Helper()
	for _, place := range []string{"memory", "store"} {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
				opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithRequestIDs(time.Hour)}
				if place == "store" {
					st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1000))
					require.NoError(t, err)
					opts = append(opts, ratelimit.WithStore(st), ratelimit.WithName("test"))
				}
				l, err := ratelimit.New(rules, nil, opts...)
				require.NoError(t, err)
				test(&retrier{t, clock, l})
			})
		})
	}
}

// send sends req, and reports whether it was replayed.
func (r *retrier) send(req ratelimit.Request) (res ratelimit.Result, each []ratelimit.Result, replayed bool) {
	r.t.Helper()
	before := r.l.Stats()[0].Replayed
	res, each, err := r.l.CheckAll(r.t.Context(), req, nil)
	require.NoError(r.t, err)
	return res, each, r.l.Stats()[0].Replayed > before
}

// TestRetries proves for how long and how often a grant answers, and with what.
func TestRetries(t *testing.T) {
	inBothPlaces(t, retryRules, func(r *retrier) {
		req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1", Cost: 10}
		first, each, replayed := r.send(req)
		require.False(t, replayed)
		require.Equal(t, 490, each[1].Remaining)
		req.ID = "2"
		second, eachSecond, _ := r.send(req)
		require.Equal(t, 10*time.Second, second.Delay)
		r.clock.Advance(4 * time.Second)
		again, eachAgain, replayed := r.send(req)
		require.True(t, replayed)
		for _, res := range []*ratelimit.Result{&second, &eachSecond[0], &eachSecond[1], &eachSecond[2]} {
			res.ResetAfter -= 4 * time.Second
			res.Delay = max(res.Delay-4*time.Second, 0)
		}
		require.Equal(t, second, again)
		require.Equal(t, eachSecond, eachAgain)
		again, err := r.l.Check(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, second, again)
		r.clock.Advance(time.Hour - 4*time.Second - 1)
		first.ResetAfter, first.Delay = 0, 0
		for _, id := range []string{"1", "2"} {
			req.ID = id
			got, _, replayed := r.send(req)
			require.True(t, replayed, "the last instant")
			require.Zero(t, got.ResetAfter)
		}
		r.clock.Advance(1)
		for i := range 101 {
			req.ID = "1"
			_, _, replayed := r.send(req)
			require.Equal(t, i > 0, replayed, "100 replays")
		}
		_, _, replayed = r.send(req)
		require.False(t, replayed, "and no more")
		for _, stats := range r.l.Stats() {
			require.EqualValues(t, 4, stats.Allowed, stats.Rule)
			require.EqualValues(t, 104, stats.Replayed, stats.Rule)
		}
	})
}

// TestRetriesOfOthers changes one thing after the other of a request.
func TestRetriesOfOthers(t *testing.T) {
	inBothPlaces(t, retryRules, func(r *retrier) {
		base := ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1", Cost: 1}
		r.send(base)
		_, _, replayed := r.send(base)
		require.True(t, replayed)
		for _, change := range []func(req *ratelimit.Request){
			func(req *ratelimit.Request) { req.Client = "bob" },
			func(req *ratelimit.Request) { req.ID = "2" },
			func(req *ratelimit.Request) { req.Cost = 2 },
			func(req *ratelimit.Request) { req.Endpoint, req.Rules = "", []string{"own"} },
			func(req *ratelimit.Request) { req.Endpoint, req.Rules = "", []string{"own", "all"} },
		} {
			req := base
			change(&req)
			_, _, replayed := r.send(req)
			require.False(t, replayed, "%+v", req)
		}
		rules := slices.Clone(retryRules)
		slices.Reverse(rules)
		require.NoError(t, r.l.Replace(rules, nil))
		res, _, err := r.l.CheckAll(t.Context(), base, nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, r.l.Stats()[0].Replayed, "the order of the rules does not matter: %+v", res)
		rules[0].Mode = ratelimit.ModeEnforce
		require.NoError(t, r.l.Replace(rules, nil))
		_, each, err := r.l.CheckAll(t.Context(), base, nil)
		require.NoError(t, err)
		require.EqualValues(t, 2, r.l.Stats()[0].Replayed, "their modes do")
		require.Len(t, each, 4)
	})
	a, b := retryRules[0], retryRules[1]
	for _, same := range []ratelimit.KeyType{ratelimit.KeyUser} {
		a.Key, b.Key = same, same
		a.Endpoint, b.Endpoint = "/a", "/b"
	}
	inBothPlaces(t, []ratelimit.Rule{a, b}, func(r *retrier) {
		r.send(ratelimit.Request{Client: "alice", Endpoint: "/a", ID: "1"})
		_, _, replayed := r.send(ratelimit.Request{Client: "alice", Endpoint: "/b", ID: "1"})
		require.False(t, replayed, "another rule")
		require.Zero(t, r.l.Stats()[1].Replayed)
	})
}

// TestRetriesInOtherOrders has two limiters on one store made their rules in different orders.
func TestRetriesInOtherOrders(t *testing.T) {
	st, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	rules := slices.Clone(retryRules)
	for range 2 {
		l, err := ratelimit.New(rules, nil, ratelimit.WithStore(st), ratelimit.WithName("test"), ratelimit.WithRequestIDs(time.Hour))
		require.NoError(t, err)
		_, each, err := l.CheckAll(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", ID: "1"}, nil)
		require.NoError(t, err)
		for _, res := range each {
			require.Equal(t, map[string]int{"own": 19, "all": 499, "more": 599}[res.Rule], res.Remaining, res.Rule)
		}
		slices.Reverse(rules)
	}
}

// TestRetriesForgotten proves that the oldest of three grants is forgotten for a fourth, and that a
// grant which has replaced another is not forgotten with that.
func TestRetriesForgotten(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(1000)}}, nil,
		ratelimit.WithClock(clock), ratelimit.WithMaxKeys(3), ratelimit.WithRequestIDs(time.Hour))
	require.NoError(t, err)
	r := &retrier{t, clock, l}
	send := func(id string) bool {
		_, _, replayed := r.send(ratelimit.Request{Endpoint: "/", ID: id})
		return replayed
	}
	for i := range 100 {
		require.False(t, send(strconv.Itoa(i)))
	}
	require.True(t, send("97") && send("98") && send("99"))
	require.False(t, send("96"), "it was forgotten; now 97 is")
	for range 99 {
		require.True(t, send("99"))
	}
	require.False(t, send("99"), "a new grant takes its place; it pushes out 98")
	require.False(t, send("100"), "which pushes out the first of 99")
	require.True(t, send("99"))
	_, _, replayed := r.send(ratelimit.Request{Endpoint: "/", ID: "denied", Client: "99"})
	require.False(t, replayed)
	_, _, replayed = r.send(ratelimit.Request{Endpoint: "/", ID: "100", Client: "bob"})
	require.False(t, replayed, "that of another client")
	require.False(t, send("96"))
	require.False(t, send("99"))
	require.False(t, send("100"))
	denied, _, _ := r.send(ratelimit.Request{Endpoint: "/", ID: "denied", Cost: 2000})
	require.False(t, denied.Allowed)
	require.True(t, send("96") && send("99") && send("100"), "a denial pushes out none")
}

// TestRetriesInLine has callers wait with IDs.
func TestRetriesInLine(t *testing.T) {
	inBothPlaces(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, func(r *retrier) {
		type answer struct {
			res ratelimit.Result
			err error
		}
		wait := func(id string) chan answer {
			done := make(chan answer, 1)
			go func() {
				res, err := r.l.Wait(r.t.Context(), ratelimit.Request{Endpoint: "/", ID: id})
				done <- answer{res, err}
			}()
			synctest.Wait()
			return done
		}
		first, _, _ := r.send(ratelimit.Request{Endpoint: "/", ID: "0"})
		one, same, next := wait("1"), wait("1"), wait("2")
		res, _, replayed := r.send(ratelimit.Request{Endpoint: "/", ID: "0"})
		require.True(r.t, replayed, "a request that was granted before does not wait")
		require.Equal(r.t, first, res)
		require.Len(r.t, wait("0"), 1)
		denied, _, _ := r.send(ratelimit.Request{Endpoint: "/", ID: "1"})
		require.False(r.t, denied.Allowed)
		require.EqualValues(r.t, 1, r.l.Stats()[0].Denied)
		r.clock.Advance(time.Minute)
		synctest.Wait()
		require.Len(r.t, one, 1)
		require.Len(r.t, same, 1)
		require.Empty(r.t, next)
		granted := <-one
		require.Equal(r.t, answer{res: first}, granted, "the same as the first had, a minute ago")
		require.Equal(r.t, granted, <-same)
		res, _, replayed = r.send(ratelimit.Request{Endpoint: "/", ID: "1"})
		require.True(r.t, replayed)
		require.Equal(r.t, first, res)
		r.clock.Advance(time.Minute)
		synctest.Wait()
		require.Len(r.t, next, 1)
		require.EqualValues(r.t, 3, r.l.Stats()[0].Allowed)
	})
}

// A meddling is a context that calls a function when its deadline is read, which Wait does just before
// the caller joins a line.
type meddling struct {
	context.Context
	meddle func()
}

func (c meddling) Deadline() (time.Time, bool) {
	c.meddle()
	return c.Context.Deadline()
}

// TestGrantedWhileItJoinsTheLine has a request granted for another caller after Wait has looked for its
// record, and before Wait joins the line. It must not be charged again, nor wait.
func TestGrantedWhileItJoinsTheLine(t *testing.T) {
	for _, others := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, nil, ratelimit.WithRequestIDs(time.Hour))
			require.NoError(t, err)
			wait := func(id string) {
				go func() { _, _ = l.Wait(t.Context(), ratelimit.Request{Endpoint: "/", ID: id}) }()
				synctest.Wait()
			}
			start, joined := time.Now(), time.Duration(0)
			res, err := l.Wait(meddling{t.Context(), func() {
				wait("1")
				if others {
					l.Allow("", "/")
					wait("2")
				} else {
					<-time.After(time.Minute)
				}
				joined = time.Since(start)
			}}, ratelimit.Request{Endpoint: "/", ID: "1"})
			require.NoError(t, err)
			require.True(t, res.Allowed)
			require.Equal(t, joined, time.Since(start), "it is answered at once")
			require.EqualValues(t, 1, l.Stats()[0].Allowed, "it is charged once")
			require.EqualValues(t, 1, l.Stats()[0].Replayed)
			<-time.After(time.Hour)
		})
	}
}

// TestRetriesBehindOthers has a retry wait behind another request. It is answered as soon as its first
// attempt is granted, also if its context ends then. If the first attempt leaves, it is served in its
// own turn.
func TestRetriesBehindOthers(t *testing.T) {
	for _, row := range []struct {
		leaves int
		after  [3]int // after how many minutes each is served; 0 if it leaves
	}{{-1, [3]int{1, 2, 1}}, {0, [3]int{0, 1, 2}}, {1, [3]int{1, 0, 1}}, {2, [3]int{1, 2, 0}}} {
		inBothPlaces(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}, func(r *retrier) {
			first, _, _ := r.send(ratelimit.Request{Endpoint: "/", ID: "0"})
			require.True(r.t, first.Allowed)
			var cancels [3]context.CancelFunc
			var done [3]chan error
			for i, id := range []string{"1", "2", "1"} {
				ctx, cancel := context.WithCancel(r.t.Context())
				cancels[i], done[i] = cancel, make(chan error, 1)
				go func() {
					_, err := r.l.Wait(ctx, ratelimit.Request{Endpoint: "/", ID: id})
					done[i] <- err
				}()
				synctest.Wait()
			}
			denied, _, _ := r.send(ratelimit.Request{Endpoint: "/", ID: "3"})
			require.Equal(r.t, 3*time.Minute, denied.RetryAfter, "a newcomer does not count the retry")
			if row.leaves >= 0 {
				cancels[row.leaves]()
				synctest.Wait()
				require.ErrorIs(r.t, <-done[row.leaves], context.Canceled)
			}
			for minute := 1; minute <= 2; minute++ {
				r.clock.Advance(time.Minute)
				synctest.Wait()
				for i, after := range row.after {
					require.Len(r.t, done[i], min(max(0, minute-after+1), 1)*min(after, 1), "leaves %d, waiter %d after %d minutes", row.leaves, i, minute)
				}
			}
			for i := range done {
				if cancels[i](); i != row.leaves {
					require.NoError(r.t, <-done[i])
				}
			}
		})
	}
}

// TestRetriesInFlight sends a request again while a custom limiter decides on it.
func TestRetriesInFlight(t *testing.T) {
	for _, row := range []struct {
		answer ratelimit.Result
		err    error
		calls  int
		why    string
	}{
		{ratelimit.Result{Allowed: true, Limit: 5, Remaining: 4}, nil, 1, "the retry has the answer of the first"},
		{ratelimit.Result{Limit: 5, RetryAfter: time.Second}, nil, 2, "a denial is not kept"},
		{ratelimit.Result{}, ratelimit.ErrStore, 2, "nor is the answer of a policy"},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, let := make(chan int, 9), make(chan bool)
			l, err := ratelimit.New([]ratelimit.Rule{
				{Name: "own", Endpoint: "/", Rate: ratelimit.PerMinute(5)},
				{Name: "custom", Endpoint: "/", OnStoreError: ratelimit.FailOpen, Limiter: gated(func(ctx context.Context) (ratelimit.Result, error) {
					calls <- 1
					<-let
					return row.answer, row.err
				})},
			}, nil, ratelimit.WithRequestIDs(time.Hour))
			require.NoError(t, err)
			for range 2 {
				go func() { _, _ = l.Check(context.Background(), ratelimit.Request{Endpoint: "/", ID: "1"}) }()
			}
			synctest.Wait()
			require.Len(t, calls, 1, "the other waits")
			close(let)
			synctest.Wait()
			require.Len(t, calls, row.calls, row.why)
		})
	}
}

// TestRetryGivesItsTurnBack has a Wait charge the other rules while a custom limiter still decides on
// the same request for another caller. When that is granted, the Wait has its answer, and the other
// rules have their units.
func TestRetryGivesItsTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, let := 0, make(chan bool)
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(9)},
			{Name: "custom", Endpoint: "/", Limiter: gated(func(context.Context) (ratelimit.Result, error) {
				if calls++; calls > 1 {
					return ratelimit.Result{Limit: 5, RetryAfter: 100 * time.Second}, nil
				}
				<-let
				return ratelimit.Result{Allowed: true, Limit: 50, Remaining: 40}, nil
			})},
		}, nil, ratelimit.WithRequestIDs(time.Hour))
		require.NoError(t, err)
		answers := make(chan ratelimit.Result, 2)
		left, cancel := context.WithCancel(t.Context())
		for _, call := range []func(){
			func() { answers <- answered(l.Check(t.Context(), ratelimit.Request{Endpoint: "/", ID: "1"})) },
			func() { _, _ = l.Wait(left, ratelimit.Request{Endpoint: "/", ID: "2"}) },
			func() { answers <- answered(l.Wait(t.Context(), ratelimit.Request{Endpoint: "/", ID: "1"})) },
			cancel,
			func() { answered(l.Check(t.Context(), ratelimit.Request{Rules: []string{"own"}})) },
			// The Wait for 1 is now the first in its line, and was due at 130 s.
			func() { close(let) },
		} {
			go call()
			synctest.Wait()
			<-time.After(30 * time.Second)
		}
		for range 2 {
			require.Equal(t, 8, (<-answers).Remaining)
		}
		require.Equal(t, 2, calls)
		require.Equal(t, 7, answered(l.Peek(t.Context(), ratelimit.Request{Rules: []string{"own"}})).Remaining)
		require.EqualValues(t, 1, l.Stats()[0].Replayed)
	})
}

// A gated is a custom limiter that is a function.
type gated func(ctx context.Context) (ratelimit.Result, error)

func (f gated) Allow(string) ratelimit.Result { return ratelimit.Result{} }

func (f gated) Take(ctx context.Context, _ string, _ int) (ratelimit.Result, error) { return f(ctx) }

// answered returns res. It panics if err is not nil.
func answered(res ratelimit.Result, err error) ratelimit.Result {
	if err != nil {
		panic(err)
	}
	return res
}
