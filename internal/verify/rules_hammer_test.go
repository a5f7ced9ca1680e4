package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

const (
	hammerRules   = 16
	hammerCallers = 8
	hammerClients = 3
	hammerLimit   = 40_000
)

// A tally is what the callers of a hammer were granted.
type tally struct {
	units    [hammerRules]map[string]int // by rule and key
	requests [hammerRules]uint64
	allowed  int
	denied   int
}

func newTally() *tally {
	t := new(tally)
	for i := range t.units {
		t.units[i] = make(map[string]int)
	}
	return t
}

// add adds what another caller was granted.
func (t *tally) add(o *tally) {
	for i := range t.units {
		for key, n := range o.units[i] {
			t.units[i][key] += n
		}
		t.requests[i] += o.requests[i]
	}
	t.allowed, t.denied = t.allowed+o.allowed, t.denied+o.denied
}

// hammerSet returns many rules that earn nothing while a test runs. Every fourth rule is
// one that all clients share, with a limit that they reach.
func hammerSet() (rules []ratelimit.Rule) {
	for i := range hammerRules {
		r := ratelimit.Rule{
			Name: "h" + strconv.Itoa(i), Algorithm: algorithmNames[i%len(algorithmNames)],
			Rate: ratelimit.Rate{Requests: hammerLimit, Per: 20000 * day},
		}
		if i%4 == 0 {
			r.Key = ratelimit.KeyGlobal
			r.Rate.Requests = hammerLimit / 100
		}
		rules = append(rules, r)
	}
	return rules
}

// hammerKey returns the key of a client in a rule.
func hammerKey(r ratelimit.Rule, client string) string {
	if r.Key == ratelimit.KeyGlobal {
		return ""
	}
	return client
}

// strike makes random requests by random rules in a random order. One of the rules is named
// twice.
func strike(l *ratelimit.RateLimiter, rules []ratelimit.Rule, asks int, random *rand.Rand) *tally {
	mine := newTally()
	for range asks {
		order := random.Perm(len(rules))[:2+random.IntN(2)]
		req := ratelimit.Request{Client: strconv.Itoa(random.IntN(hammerClients)), Cost: 1 + random.IntN(2)}
		for _, i := range append(slices.Clone(order), order[0]) {
			req.Rules = append(req.Rules, rules[i].Name)
		}
		res, err := l.Check(context.Background(), req)
		switch {
		case err != nil:
			panic(err)
		case !res.Allowed:
			mine.denied++
			continue
		}
		mine.allowed++
		for _, i := range order {
			mine.units[i][hammerKey(rules[i], req.Client)] += req.Cost
			mine.requests[i]++
		}
	}
	return mine
}

// TestRulesHammer makes requests from many goroutines, by overlapping rules in random
// orders. It requires that all of them end, and that what each rule has left is exactly
// what was not granted.
func TestRulesHammer(t *testing.T) {
	asks := scaled(10_000)
	for _, c := range []struct {
		name string
		opts []ratelimit.Option
	}{
		{"a clock that stands still", []ratelimit.Option{ratelimit.WithClock(ratelimit.NewFakeClock(starts[0]))}},
		{"the machine's clock", nil},
		{"a clock that yields", []ratelimit.Option{ratelimit.WithClock(new(hostileClock))}},
	} {
		for _, procs := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s/procs=%d", c.name, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				rules := hammerSet()
				l, err := ratelimit.New(rules, nil, c.opts...)
				require.NoError(t, err)
				all := hammer(l, rules, asks)
				t.Logf("%d asks, %d granted, %d denied: totals agree", all.allowed+all.denied, all.allowed, all.denied)
				require.Equal(t, hammerCallers*asks, all.allowed+all.denied)
				require.Positive(t, all.allowed)
				accounts(t, l, rules, all)
			})
		}
	}
}

// hammer calls strike from all goroutines at once.
func hammer(l *ratelimit.RateLimiter, rules []ratelimit.Rule, asks int) *tally {
	var done sync.WaitGroup
	tallies := make([]*tally, hammerCallers)
	ready := make(chan struct{})
	for g := range hammerCallers {
		done.Go(func() {
			<-ready
			tallies[g] = strike(l, rules, asks, rand.New(rand.NewPCG(7, uint64(g))))
		})
	}
	close(ready)
	done.Wait()
	all := newTally()
	for _, some := range tallies {
		all.add(some)
	}
	return all
}

// accounts compares what the rules have left with what was granted.
func accounts(t *testing.T, l *ratelimit.RateLimiter, rules []ratelimit.Rule, all *tally) {
	stats := l.Stats()
	for i, r := range rules {
		require.Equal(t, all.requests[i], stats[i].Allowed, "requests charged to %s", r.Name)
		for client := range hammerClients {
			name := strconv.Itoa(client)
			res, err := l.Peek(context.Background(), ratelimit.Request{Client: name, Rules: []string{r.Name}})
			require.NoError(t, err)
			require.Equal(t, r.Rate.Requests-all.units[i][hammerKey(r, name)], res.Remaining, "%s of %s", r.Name, name)
		}
	}
}

// TestRulesHammerShortWay does the same through Allow. The rules share prefixes, and were
// made in different orders.
func TestRulesHammerShortWay(t *testing.T) {
	asks := scaled(10_000)
	rule := func(name, endpoint string, key ratelimit.KeyType) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: endpoint, Key: key, Rate: ratelimit.Rate{Requests: 8 * asks, Per: 20000 * day}}
	}
	a, b, c := rule("a", "/e", ratelimit.KeyGlobal), rule("b", "/e", ratelimit.KeyUser), rule("c", "/e", ratelimit.KeyEndpoint)
	a.Rate.Requests = 5 * asks
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithClock(new(hostileClock))}} {
		l, err := ratelimit.New([]ratelimit.Rule{c, a}, nil, opts...)
		require.NoError(t, err)
		require.NoError(t, l.Replace([]ratelimit.Rule{a, b, c}, nil))
		var done sync.WaitGroup
		allowed := make([][hammerClients]int, hammerCallers)
		for g := range hammerCallers {
			done.Go(func() {
				for i := range asks {
					client := (g + i) % hammerClients
					if l.Allow(strconv.Itoa(client), "/e").Allowed {
						allowed[g][client]++
					}
				}
			})
		}
		done.Wait()
		sum := 0
		for client := range hammerClients {
			mine := 0
			for g := range hammerCallers {
				mine += allowed[g][client]
			}
			sum += mine
			res, err := l.Peek(context.Background(), ratelimit.Request{Client: strconv.Itoa(client), Rules: []string{"b"}})
			require.NoError(t, err)
			require.Equal(t, 8*asks-mine, res.Remaining)
		}
		require.Equal(t, 5*asks, sum, "the rule that all clients share grants exactly its limit")
		require.EqualValues(t, 3*asks, l.Stats()[0].Denied)
	}
}

// TestRulesNamedOften requires that a rule is charged once, however often a request names
// it.
func TestRulesNamedOften(t *testing.T) {
	clock := &manualClock{starts[0]}
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Rate: ratelimit.PerHour(10)}, {Name: "s", Rate: ratelimit.PerHour(8)}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	res, err := l.Check(context.Background(), ratelimit.Request{Rules: []string{"r", "s", "r", "s", "s", "r"}, Cost: 3})
	require.NoError(t, err)
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 8, Remaining: 5, ResetAfter: 3 * time.Hour / 8, Rule: "s"}, res)
	res, err = l.Peek(context.Background(), ratelimit.Request{Rules: []string{"r"}})
	require.NoError(t, err)
	require.Equal(t, 7, res.Remaining)
}
