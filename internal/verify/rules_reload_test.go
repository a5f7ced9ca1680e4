package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A version is what one set of rules says of one of its rules.
type version struct {
	set  int
	rate ratelimit.Rate
}

// An edition is a set of rules that is in force for a while.
type edition struct {
	rules    []ratelimit.Rule
	fallback *ratelimit.Rule
}

const reloadCallers = 4

// editions returns sets of rules that follow one another, and everything that they say of
// each rule. The first two sets have rules of the same names, which differ in each rate;
// the other sets have other rules. If shadows is true, each set has a shadow rule that
// names the set. Without shadow rules, decisions go the short way.
func editions(shadows bool) (all []edition, versions map[string][]version) {
	versions = make(map[string][]version)
	slow := ratelimit.Rate{Requests: 1, Per: time.Hour, Burst: 1}
	fast := ratelimit.Rate{Requests: 1000, Per: time.Second, Burst: 1000}
	for set, rates := range []map[string]ratelimit.Rate{
		{"user": slow, "all": slow},
		{"user": fast, "all": fast},
		{"user": fast, "only-2": ratelimit.Rate{Requests: 3, Per: time.Minute, Burst: 7}},
		{"only-3a": ratelimit.Rate{Requests: 5, Per: time.Minute, Burst: 5}, "only-3b": slow, "only-3c": fast},
	} {
		var e edition
		for name, rate := range rates {
			r := ratelimit.Rule{Name: name, Endpoint: "/e", Rate: rate}
			if name == "all" {
				r.Key = ratelimit.KeyGlobal
			}
			e.rules = append(e.rules, r)
			versions[name] = append(versions[name], version{set, rate})
		}
		e.rules = append(e.rules, ratelimit.Rule{
			Name: "shadow-" + strconv.Itoa(set), Endpoint: "/e", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerSecond(1 << 30),
		})
		if !shadows {
			e.rules = e.rules[:len(e.rules)-1]
		}
		if set%2 == 1 {
			e.fallback = &ratelimit.Rule{Rate: ratelimit.PerSecond(9)}
		}
		all = append(all, e)
	}
	return all, versions
}

// torn returns a text that says why res cannot be the answer of a single version of its
// rule, or "".
func torn(res ratelimit.Result, versions map[string][]version) string {
	i := slices.IndexFunc(versions[res.Rule], func(v version) bool {
		limit := v.rate.Burst
		if limit == 0 {
			limit = v.rate.Requests
		}
		each := v.rate.Per / time.Duration(v.rate.Requests)
		return res.Limit == limit && res.Remaining >= 0 && res.Remaining <= limit &&
			res.RetryAfter <= each && res.ResetAfter <= time.Duration(limit)*each &&
			res.Allowed == (res.RetryAfter == 0)
	})
	if i < 0 {
		return fmt.Sprintf("no version of its rule can give this answer: %+v", res)
	}
	return ""
}

// A watcher checks that everything that it observes about one request belongs to one set of
// rules. A request names its goroutine.
type watcher struct {
	versions map[string][]version
	binding  [reloadCallers]ratelimit.Decision // of the request that is being observed
	heard    [reloadCallers]int
	problem  atomic.Pointer[string]
}

func (w *watcher) Observe(_ context.Context, d ratelimit.Decision) {
	g, err := strconv.Atoi(d.Request.Client)
	if err != nil || g >= reloadCallers {
		return
	}
	w.heard[g]++
	if d.Mode != ratelimit.ModeShadow {
		w.binding[g] = d
		return
	}
	for _, v := range w.versions[w.binding[g].Rule] {
		if "shadow-"+strconv.Itoa(v.set) == d.Rule {
			return
		}
	}
	problem := fmt.Sprintf("%s and %s are not of one set", w.binding[g].Rule, d.Rule)
	w.problem.Store(&problem)
}

// decideUntil makes requests until stop is set, and some more. It returns how many it made,
// and the first answer that belongs to no version, or "".
func decideUntil(l *ratelimit.RateLimiter, g int, stop *atomic.Bool, versions map[string][]version) (n int, problem string) {
	random := rand.New(rand.NewPCG(3, uint64(g)))
	for ; !stop.Load() || n < 1000; n++ {
		req := ratelimit.Request{Client: strconv.Itoa(g), Endpoint: "/e"}
		var res ratelimit.Result
		var err error
		switch random.IntN(3) {
		case 0:
			res = l.Allow(req.Client, req.Endpoint)
		case 1:
			res, err = l.Check(context.Background(), req)
		default:
			res, err = l.Peek(context.Background(), req)
		}
		if err != nil {
			return n, err.Error()
		}
		if problem := torn(res, versions); problem != "" {
			return n, problem
		}
	}
	return n, ""
}

// TestRulesReload replaces the rules a thousand times while other goroutines decide. Each
// answer must be possible for one version of one rule, and each decision must be made by
// one set of rules.
func TestRulesReload(t *testing.T) {
	for _, observed := range []bool{false, true} {
		t.Run(fmt.Sprintf("observed=%v", observed), func(t *testing.T) {
			all, versions := editions(observed)
			w := &watcher{versions: versions}
			clock := new(hostileClock)
			opts := []ratelimit.Option{ratelimit.WithClock(clock)}
			if observed {
				opts = append(opts, ratelimit.WithObserver(w), ratelimit.WithObservedRequests())
			}
			l, err := ratelimit.New(all[0].rules, all[0].fallback, opts...)
			require.NoError(t, err)
			decisions := whileDeciding(t, l, 1000, versions, func(i int) {
				e := all[i%2]
				if i%10 == 0 {
					e = all[i/10%len(all)]
				}
				clock.now.Add(int64(time.Millisecond))
				require.NoError(t, l.Replace(e.rules, e.fallback))
				require.ErrorIs(t, l.Replace(append(e.rules, ratelimit.Rule{Name: "user"}), nil), ratelimit.ErrInvalidConfig)
			})
			if p := w.problem.Load(); p != nil {
				t.Error(*p)
			}
			if observed {
				require.Positive(t, w.heard[0])
			}
			t.Logf("%d decisions while 1000 sets of rules followed one another: torn 0", decisions)
		})
	}
}

// whileDeciding calls change several times while other goroutines decide. It returns how
// many decisions they made.
func whileDeciding(t *testing.T, l *ratelimit.RateLimiter, times int, versions map[string][]version, change func(i int)) (decisions int) {
	var stop atomic.Bool
	var done sync.WaitGroup
	made, problems := make([]int, reloadCallers), make([]string, reloadCallers)
	for g := range reloadCallers {
		done.Go(func() { made[g], problems[g] = decideUntil(l, g, &stop, versions) })
	}
	func() {
		defer done.Wait()
		defer stop.Store(true)
		for i := range times {
			change(i)
			runtime.Gosched()
		}
	}()
	for g := range reloadCallers {
		require.Empty(t, problems[g])
		decisions += made[g]
	}
	return decisions
}

// TestRulesChangeOneByOne does the same with the methods that change one rule.
func TestRulesChangeOneByOne(t *testing.T) {
	_, versions := editions(false)
	slow, fast := versions["user"][0].rate, versions["user"][1].rate
	extra := ratelimit.Rate{Requests: 2, Per: time.Minute, Burst: 3}
	versions["extra"] = []version{{0, extra}}
	versions["default"] = []version{{0, slow}, {0, fast}}
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "user", Endpoint: "/e", Rate: slow},
		{Name: "all", Endpoint: "/e", Rate: slow, Key: ratelimit.KeyGlobal},
	}, nil, ratelimit.WithClock(ratelimit.NewFakeClock(starts[0])))
	require.NoError(t, err)
	times := scaled(500)
	decisions := whileDeciding(t, l, times, versions, func(i int) {
		rate := []ratelimit.Rate{slow, fast}[i%2]
		require.NoError(t, l.UpdateRate("user", rate))
		require.NoError(t, l.UpdateRate("all", rate))
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "extra", Endpoint: "/e", Rate: extra}))
		require.ErrorIs(t, l.AddRule(ratelimit.Rule{Name: "extra", Endpoint: "/e", Rate: extra}), ratelimit.ErrInvalidConfig)
		require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Rate: rate}))
		require.Len(t, l.Stats(), 4)
		require.NoError(t, l.RemoveRule("extra"))
		require.ErrorIs(t, l.RemoveRule("extra"), ratelimit.ErrUnknownRule)
		require.NoError(t, l.RemoveRule("default"))
	})
	t.Logf("%d decisions during %d changes: torn 0", decisions, 8*times)
}
