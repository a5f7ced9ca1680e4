package verify

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// An arbiter decides by two rules, and its history is recorded. One rule has a key for each
// client, the other one key for all.
type arbiter interface {
	Allow(clientID, endpoint string) ratelimit.Result
	Check(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error)
	Peek(ctx context.Context, req ratelimit.Request) (ratelimit.Result, error)
}

const (
	pairClients = 4  // number of goroutines
	pairSteps   = 30 // asks of each goroutine
	pairUsers   = 2  // keys of the first rule; the second has one
)

// The names of the two rules, in their order.
const (
	ownRule = "own"
	allRule = "all"
)

// A pairState is the state of the three keys.
type pairState struct {
	own [pairUsers]seqState
	all seqState
}

// on moves the clock of all keys.
func (s *pairState) on(by int64) {
	for i := range s.own {
		s.own[i].now += by
	}
	s.all.now += by
}

// pairOf is the sequential specification of a decision by two rules.
func pairOf(own, all seqStep) func(s pairState, req request) (pairState, ratelimit.Result) {
	return func(s pairState, req request) (pairState, ratelimit.Result) {
		n := int64(req.n)
		own1, a := own(s.own[req.key], n)
		all1, b := all(s.all, n)
		passes := a.Allowed && b.Allowed
		if !passes {
			a, b = uncharged(own, s.own[req.key], a), uncharged(all, s.all, b)
		} else {
			s.own[req.key], s.all = own1, all1
		}
		return s, both(a, b, passes)
	}
}

// uncharged returns res as it would be if the units that it grants were not taken.
func uncharged(step seqStep, s seqState, res ratelimit.Result) ratelimit.Result {
	if res.Allowed {
		_, res = step(s, 0)
	}
	return res
}

// both returns the answer of a decision from those of the two rules.
func both(own, all ratelimit.Result, passes bool) ratelimit.Result {
	own.Rule, all.Rule = ownRule, allRule
	res := own
	if passes && all.Remaining < own.Remaining || !passes && all.RetryAfter > own.RetryAfter {
		res = all
	}
	res.Allowed = passes
	res.Remaining = min(own.Remaining, all.Remaining)
	res.Delay = max(own.Delay, all.Delay)
	if !passes {
		res.Delay = 0
	}
	return res
}

// decidePair makes one request, by Allow or by Check.
func decidePair(l arbiter, req request, byAllow bool) (res ratelimit.Result) {
	r := ratelimit.Request{Client: strconv.Itoa(req.key), Endpoint: "/e", Cost: req.n}
	switch {
	case req.n == 0:
		res, _ = l.Peek(context.Background(), r)
	case req.n == 1 && byAllow:
		res = l.Allow(r.Client, r.Endpoint)
	default:
		res, _ = l.Check(context.Background(), r)
	}
	return res
}

// pairHistory makes random requests of l from several goroutines. One of them mostly
// advances the clock.
func pairHistory(l arbiter, clock *hostileClock, seed uint64) (ops []porcupine.Operation) {
	var stamp atomic.Int64
	var done sync.WaitGroup
	recorded := make([][]porcupine.Operation, pairClients)
	ready := make(chan struct{})
	for client := range pairClients {
		done.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			<-ready
			for range pairSteps {
				req := request{key: random.IntN(pairUsers), n: []int{0, 1, 1, 1, 2}[random.IntN(5)]}
				if client == 0 && random.IntN(5) > 0 {
					req = request{advance: 1 + random.Int64N(5)}
				}
				byAllow := random.IntN(3) > 0
				op := porcupine.Operation{ClientId: client, Input: req, Call: stamp.Add(1)}
				if req.advance > 0 {
					clock.Now() // lets other goroutines run
					clock.now.Add(req.advance)
				} else {
					op.Output = decidePair(l, req, byAllow)
				}
				op.Return = stamp.Add(1)
				recorded[client] = append(recorded[client], op)
			}
		})
	}
	close(ready)
	done.Wait()
	for _, some := range recorded {
		ops = append(ops, some...)
	}
	return ops
}

// examinePairs checks histories of the arbiters that start makes. Each history is checked
// as a whole, because the answer for one key depends on the other.
func examinePairs(own, all algorithm, histories int, start func(clock *hostileClock) arbiter) (v verdict) {
	step := pairOf(seqSteps[own.name], seqSteps[all.name])
	model := porcupine.Model{
		Init: func() any { return pairState{} },
		Step: func(state, input, output any) (bool, any) {
			s, req := state.(pairState), input.(request)
			if req.advance > 0 {
				s.on(req.advance)
				return true, s
			}
			next, want := step(s, req)
			return output.(ratelimit.Result) == want, next
		},
	}
	for i := range histories {
		clock := new(hostileClock)
		ops := pairHistory(start(clock), clock, uint64(i))
		begun := time.Now()
		result := porcupine.CheckOperationsTimeout(model, ops, checkTimeout)
		v.slowest = max(v.slowest, time.Since(begun))
		v.histories++
		v.operations += len(ops)
		switch result {
		case porcupine.Illegal:
			v.illegal++
		case porcupine.Unknown:
			v.unknown++
		}
	}
	return v
}

// startPair returns a RateLimiter of two rules. A rule that is added later is also locked
// later: if swapped is true, the rules are locked in the opposite order of the list.
func startPair(t *testing.T, own, all algorithm, clock ratelimit.Clock, swapped bool) *ratelimit.RateLimiter {
	rules := []ratelimit.Rule{
		{Name: ownRule, Endpoint: "/e", Algorithm: ratelimit.Algorithm(own.name), Rate: seqRateOf(own)},
		{Name: allRule, Endpoint: "/e", Algorithm: ratelimit.Algorithm(all.name), Rate: seqRateOf(all), Key: ratelimit.KeyGlobal},
	}
	first := rules
	if swapped {
		first = rules[1:]
	}
	l, err := ratelimit.New(first, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	require.NoError(t, l.Replace(rules, nil))
	return l
}

// TestLinearizableRules requires that concurrent decisions by two rules have answers, in
// every field, that are possible for the same decisions one after the other.
func TestLinearizableRules(t *testing.T) {
	histories := 200
	if testing.Short() {
		histories /= 4
	}
	for i, own := range algorithms {
		all := algorithms[(i+2)%len(algorithms)]
		t.Run(own.name+" and "+all.name, func(t *testing.T) {
			swapped := false
			v := examinePairs(own, all, histories, func(clock *hostileClock) arbiter {
				swapped = !swapped
				return startPair(t, own, all, clock, swapped)
			})
			t.Logf("%s and %s: %d histories, %d operations, illegal %d, unknown %d, slowest check %v",
				own.name, all.name, v.histories, v.operations, v.illegal, v.unknown, v.slowest)
			require.Zero(t, v.illegal)
			require.Zero(t, v.unknown)
			require.Equal(t, histories*pairClients*pairSteps, v.operations)
		})
	}
}
