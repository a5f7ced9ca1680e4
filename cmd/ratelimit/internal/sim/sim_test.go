package sim_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

var algorithms = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket, ratelimit.AlgorithmFixedWindow,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmSlidingWindowLog,
}

// of returns a target with one rule for each client.
func of(a ratelimit.Algorithm, r ratelimit.Rate) sim.Target {
	return sim.Target{Name: string(a), New: func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
		return ratelimit.New(nil, &ratelimit.Rule{Algorithm: a, Rate: r}, append(opts, ratelimit.WithMaxKeys(1000))...)
	}}
}

// ruled returns a target with these rules.
func ruled(rules ...ratelimit.Rule) sim.Target {
	return sim.Target{Name: "rules", New: func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
		return ratelimit.New(rules, nil, opts...)
	}}
}

func run(t *testing.T, target sim.Target, stream traffic.Stream, o sim.Options) *sim.Outcome {
	t.Helper()
	if o.MaxRequests == 0 {
		o.MaxRequests = 1e6
	}
	out, err := sim.Run(t.Context(), target, stream, o)
	require.NoError(t, err)
	return out
}

// A greedy stream sends one request at each of some instants until it is denied, and again as soon as
// it was told that it would be granted.
type greedy struct {
	at  []time.Duration // not yet sent
	end time.Duration
	now time.Duration
}

func (g *greedy) Next() (traffic.Request, bool) {
	if len(g.at) == 0 || g.at[0] > g.end {
		return traffic.Request{}, false
	}
	g.now = g.at[0]
	return traffic.Request{At: g.now, First: g.now, Client: "c", Cost: 1}, true
}

func (g *greedy) Answer(allowed bool, retryAfter time.Duration) {
	if allowed {
		return // once more at this instant
	}
	if g.at = g.at[1:]; len(g.at) == 0 {
		g.at = []time.Duration{g.now + retryAfter}
	}
}

// TestWorstCases sends what brings each algorithm to its bound.
func TestWorstCases(t *testing.T) {
	const limit = 10
	rate := ratelimit.PerMinute(limit)
	edge := []time.Duration{time.Minute - 1}
	for _, row := range []struct {
		algorithm ratelimit.Algorithm
		rate      ratelimit.Rate
		window    time.Duration // whose end does not count
		at        []time.Duration
		want      int
		why       string
	}{
		{ratelimit.AlgorithmFixedWindow, rate, time.Minute, edge, 2 * limit, "2L: before the edge, and at it"},
		{ratelimit.AlgorithmSlidingWindowCounter, rate, time.Minute, edge, 2*limit - 1,
			"2L-1: before the edge, and then each as soon as it is free"},
		{ratelimit.AlgorithmSlidingWindowLog, rate, time.Minute, edge, limit, "L"},
		{ratelimit.AlgorithmTokenBucket, rate.WithBurst(7), time.Minute + 1, edge, 7 + limit, "B+rT in a minute whose end counts"},
		{ratelimit.AlgorithmLeakyBucket, rate.WithBurst(7), time.Minute + 1, edge, 7 + limit, "B+rT in a minute whose end counts"},
		{ratelimit.AlgorithmTokenBucket, rate.WithBurst(7), time.Minute, edge, 7 + limit - 1, "the last is earned at the end"},
	} {
		start := sim.AlignedStart(row.rate.Per)
		out := run(t, of(row.algorithm, row.rate), &greedy{at: row.at, end: 4 * time.Minute},
			sim.Options{Start: start, Duration: 5 * time.Minute, Window: row.window})
		require.Equal(t, row.want, out.Rules[0].MaxGranted, "%s: %s", row.algorithm, row.why)
		require.Equal(t, row.want, out.Rules[0].Bound, "%s: %s", row.algorithm, row.why)
	}
}

// TestEdgeShape requires that the shape Edge brings a fixed window to its bound.
func TestEdgeShape(t *testing.T) {
	c := traffic.Config{Shape: traffic.Edge, Requests: 100, Per: time.Minute, Burst: 100, Clients: 1, Endpoints: []string{"/"}, Cost: 1,
		Duration: 5 * time.Minute, Retry: traffic.None}
	o := sim.Options{Start: sim.AlignedStart(time.Minute), Duration: c.Duration}
	require.Equal(t, 200, run(t, of(ratelimit.AlgorithmFixedWindow, ratelimit.PerMinute(100)), traffic.New(c), o).Rules[0].MaxGranted)
	require.Equal(t, 100, run(t, of(ratelimit.AlgorithmSlidingWindowLog, ratelimit.PerMinute(100)), traffic.New(c), o).Rules[0].MaxGranted)
}

// TestNeverAboveBound sends 1,000 random streams to each algorithm. No key is granted more in any
// window than MaxIn says, and the count is that of a slower way.
func TestNeverAboveBound(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 7))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	for _, a := range algorithms {
		reached := 0
		for range 1000 {
			rate := ratelimit.Rate{Requests: pick(1, 2, 3, 5, 10), Per: []time.Duration{10, 1000, 7919, time.Second, time.Hour}[r.IntN(5)]}
			if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
				rate.Burst = pick(0, 1, 3, 20)
			}
			c := traffic.Config{
				Shape: traffic.Shapes()[r.IntN(7)], Requests: rate.Requests * pick(1, 2, 5), Per: rate.Per, Burst: rate.Requests * pick(1, 2),
				Clients: pick(1, 2, 3), Endpoints: []string{"/"}, Cost: pick(1, 1, 2),
				Retry: traffic.Retries()[r.IntN(4)], RetryEvery: rate.Per/7 + 1, Seed: r.Uint64(),
			}
			c.Duration = rate.Per * time.Duration(pick(1, 2, 4))
			o := sim.Options{Start: sim.AlignedStart(rate.Per), Duration: c.Duration,
				Window: []time.Duration{0, 1, rate.Per/2 + 1, rate.Per + 1, 3 * rate.Per}[r.IntN(5)]}
			grants := make(map[string][]traffic.Request)
			target := of(a, rate)
			target.See = func(request traffic.Request, res ratelimit.Result, _ []ratelimit.Result) {
				if res.Allowed {
					grants[request.Client] = append(grants[request.Client], request)
				}
			}
			out := run(t, target, traffic.New(c), o)
			rule := out.Rules[0]
			if rule.MaxGranted > rule.Bound || rule.MaxGranted != maxUnits(grants, rule.Window) {
				require.Fail(t, "more than the bound, or counted wrong", "%s %v: %+v: %d, bound %d, counted slowly %d", a, rate, c, rule.MaxGranted,
					rule.Bound, maxUnits(grants, rule.Window))
			}
			if rule.MaxGranted == rule.Bound {
				reached++
			}
			for i, peak := range peaksOf(grants, rule.Window, c.Duration) {
				if peak != rule.Peaks[i] {
					require.Fail(t, "a wrong peak", "%s %v: %+v: %d in part %d, counted slowly %d", a, rate, c, rule.Peaks[i], i, peak)
				}
			}
			peak, offered, admitted := 0, 0, 0
			for i, b := range out.Bins {
				peak, offered, admitted = max(peak, rule.Peaks[i]), offered+b.Offered, admitted+b.Admitted
			}
			if peak != rule.MaxGranted || offered != out.Offered || admitted != out.Admitted || out.Offered != out.Admitted+out.Denied ||
				len(grants) != rule.Keys {
				require.Fail(t, "the parts do not add up", "%+v", out)
			}
		}
		require.Greater(t, reached, 100, "%s: the traffic comes near the bound", a)
		t.Logf("%s: 1,000 streams, none above the bound, %d at it", a, reached)
	}
}

// peaksOf returns, for each part of the duration, the most units of one client in a window that ends in it: when it begins, or at
// one of its grants.
func peaksOf(grants map[string][]traffic.Request, window, duration time.Duration) (peaks [sim.Bins]int) {
	for _, all := range grants {
		sums := make([]int, len(all)+1) // sums[i] is what all[:i] have taken
		for i, g := range all {
			sums[i+1] = sums[i] + g.Cost
		}
		ending := func(at time.Duration) int {
			before := func(end time.Duration) int { return sort.Search(len(all), func(i int) bool { return all[i].At > end }) }
			return sums[before(at)] - sums[before(at-window)]
		}
		for i := range peaks {
			begin := time.Duration(i) * duration / sim.Bins
			peaks[i] = max(peaks[i], ending(begin))
		}
		for _, g := range all {
			i := g.At * sim.Bins / duration
			peaks[i] = max(peaks[i], ending(g.At))
		}
	}
	return peaks
}

// maxUnits returns the most units of one client in a window that begins at one of its grants.
func maxUnits(grants map[string][]traffic.Request, window time.Duration) (largest int) {
	for _, all := range grants {
		for i, from := range all {
			units := 0
			for _, g := range all[i:] {
				if g.At-from.At >= window {
					break
				}
				units += g.Cost
			}
			largest = max(largest, units)
		}
	}
	return largest
}

func TestCounts(t *testing.T) {
	c := traffic.Config{Shape: traffic.Bursts, Requests: 6, Per: time.Minute, Burst: 6, Clients: 1, Endpoints: []string{"/"}, Cost: 1,
		Duration: 90 * time.Second, Retry: traffic.Obey}
	target := of(ratelimit.AlgorithmTokenBucket, ratelimit.PerMinute(6).WithBurst(3))
	out := run(t, target, traffic.New(c), sim.Options{Start: sim.AlignedStart(0), Duration: c.Duration})
	// Of the first 6, 3 are denied. All three come after 10 s, then two after 20 s, and one after 30 s.
	// At 60 s, 3 tokens are there; at 70 and 80 s, one comes through.
	require.Equal(t, 6+3+2+1+6+3+2, out.Offered)
	require.Equal(t, 3+1+1+1+3+1+1, out.Admitted)
	require.Equal(t, out.Offered-out.Admitted, out.Denied)
	require.Equal(t, 10*time.Second, out.LongestWait)
	require.Equal(t, 30*time.Second, out.LongestUntil)
	require.Equal(t, 1, out.Unserved, "it would come after 90 s")
	c.Cost = 4
	out = run(t, target, traffic.New(c), sim.Options{Start: sim.AlignedStart(0), Duration: c.Duration})
	require.Equal(t, 12, out.Never)
	require.Equal(t, 12, out.Unserved)
	require.Zero(t, out.LongestWait)

	leaky := run(t, of(ratelimit.AlgorithmLeakyBucket, ratelimit.PerMinute(6)), &greedy{at: []time.Duration{0}, end: 0},
		sim.Options{Start: sim.AlignedStart(0), Duration: 1})
	require.Equal(t, 50*time.Second, leaky.LongestDelay)
}

// TestRules requires that each rule has its own keys and its own counts.
func TestRules(t *testing.T) {
	rate := ratelimit.PerHour(5)
	var rules []ratelimit.Rule
	for i, key := range []ratelimit.KeyType{
		ratelimit.KeyUser, ratelimit.KeyIP, ratelimit.KeyEndpoint, ratelimit.KeyGlobal,
		ratelimit.KeyUserEndpoint, ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyEndpoint), ratelimit.KeyAttr("tenant"),
	} {
		rules = append(rules, ratelimit.Rule{Name: string(key), Endpoint: "/*", Key: key, Algorithm: ratelimit.AlgorithmSlidingWindowLog,
			Rate: ratelimit.Rate{Requests: 1000 + i, Per: time.Hour}})
	}
	rules = append(rules,
		ratelimit.Rule{Name: "shadow", Endpoint: "/*", Mode: ratelimit.ModeShadow, Rate: rate},
		ratelimit.Rule{Name: "tight", Endpoint: "/*", Rate: ratelimit.PerHour(20)})
	c := traffic.Config{Shape: traffic.Attack, Requests: 60, Per: time.Hour, Burst: 1, Clients: 3,
		Endpoints: []string{"/a", "/b", "other"}, Cost: 1, Duration: time.Hour, Retry: traffic.None, Seed: 5}
	target := ruled(rules...)
	want := make(map[string]map[string][]traffic.Request)
	names := map[string]func(traffic.Request) string{
		"user": func(r traffic.Request) string { return r.Client }, "ip": func(r traffic.Request) string { return r.IP },
		"endpoint": func(r traffic.Request) string { return r.Endpoint }, "global": func(traffic.Request) string { return "" },
		"user_endpoint": func(r traffic.Request) string { return r.Client + " " + r.Endpoint },
		"endpoint+ip":   func(r traffic.Request) string { return r.IP + " " + r.Endpoint },
		"attr:tenant":   func(traffic.Request) string { return "" },
	}
	asked := 0
	target.See = func(r traffic.Request, res ratelimit.Result, all []ratelimit.Result) {
		if r.Endpoint == "other" {
			require.True(t, res.Allowed && len(all) == 0)
			return
		}
		asked++
		for name, key := range names {
			if want[name] == nil {
				want[name] = make(map[string][]traffic.Request)
			}
			if res.Allowed {
				want[name][key(r)] = append(want[name][key(r)], r)
			}
		}
	}
	out := run(t, target, traffic.New(c), sim.Options{Start: sim.AlignedStart(0), Duration: c.Duration})
	require.Len(t, out.Rules, 9)
	for _, rule := range out.Rules {
		require.Equal(t, asked, rule.Asked, rule.Name)
		if _, named := names[rule.Name]; !named {
			continue
		}
		require.Contains(t, want, rule.Name)
		require.Len(t, want[rule.Name], rule.Keys, rule.Name)
		require.Equal(t, maxUnits(want[rule.Name], time.Hour), rule.MaxGranted, rule.Name)
		require.Zero(t, rule.Denied, rule.Name)
	}
	shadow, tight := out.Rules[7], out.Rules[8]
	require.Equal(t, out.Denied, tight.Denied)
	require.Positive(t, tight.Denied)
	require.Greater(t, shadow.Denied, tight.Denied)
	require.Zero(t, shadow.MaxGranted)
	require.Positive(t, out.AttackOffered)
	require.Equal(t, out.AttackOffered, out.AttackAdmitted, "new keys are full")
	require.Equal(t, maxUnits(want["user"], time.Hour), tight.MaxGranted)
	require.Equal(t, 20+20-1, tight.Bound)
}

func TestEnds(t *testing.T) {
	c := traffic.Config{Shape: traffic.Steady, Requests: 1, Per: time.Second, Burst: 1, Clients: 1, Endpoints: []string{"/"}, Cost: 1,
		Duration: time.Minute, Retry: traffic.None}
	o := sim.Options{Start: sim.AlignedStart(0), Duration: c.Duration, MaxRequests: 59}
	_, err := sim.Run(t.Context(), of("", ratelimit.PerMinute(1)), traffic.New(c), o)
	require.ErrorIs(t, err, sim.ErrTooMany)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = sim.Run(ctx, of("", ratelimit.PerMinute(1)), traffic.New(c), o)
	require.ErrorIs(t, err, context.Canceled)
	_, err = sim.Run(t.Context(), of("x", ratelimit.PerMinute(1)), traffic.New(c), o)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	o.MaxRequests = 60
	out := run(t, of("", ratelimit.PerMinute(1)), traffic.New(c), o)
	text, err := json.Marshal(out)
	require.NoError(t, err)
	require.Contains(t, string(text), `"rate":"1/m"`)
	require.Contains(t, string(text), `"windowNs":60000000000`)
}

func TestAlignedStart(t *testing.T) {
	for _, per := range []time.Duration{1, 7919, time.Second, 90 * time.Second, 7 * time.Minute, 7 * 24 * time.Hour} {
		start := sim.AlignedStart(per)
		require.Zero(t, start.UnixNano()%int64(per), per)
		require.Equal(t, 2026, start.Year(), per)
	}
	require.Equal(t, sim.AlignedStart(0), sim.AlignedStart(traffic.MaxDuration+1))

	rules := []ratelimit.Rule{{Rate: ratelimit.Rate{Requests: 1, Per: 31 * 24 * time.Hour, Window: "first"}}}
	require.Equal(t, sim.AlignedStart(time.Minute), sim.StartOf(rules, time.Minute))
	rules = append(rules, ratelimit.Rule{Rate: ratelimit.Rate{Requests: 1, Window: ratelimit.Monthly(15, "Europe/Berlin")}})
	require.Equal(t, time.Date(2025, 12, 14, 23, 0, 0, 0, time.UTC), sim.StartOf(rules, time.Minute))
}
