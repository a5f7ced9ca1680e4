package verify

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A hostileClock stands still unless it is advanced. Between reading the time and returning
// it, it lets other goroutines run. A limiter that reads the clock at a wrong place then
// decides wrongly.
type hostileClock struct{ now atomic.Int64 }

func (c *hostileClock) Now() time.Time {
	now := c.now.Load()
	for range rand.IntN(16) {
		runtime.Gosched()
	}
	return time.Unix(0, now)
}

// An asker is a limiter whose history is recorded.
type asker interface {
	Take(ctx context.Context, key string, n int) (ratelimit.Result, error)
}

// A request is one operation of a history: an ask for n units of a key, or an advance of
// the clock, which affects all keys.
type request struct {
	key     int
	n       int
	advance int64
}

const (
	historyClients = 4
	historySteps   = 40
	checkTimeout   = 5 * time.Second
)

// history makes random requests of l from several goroutines. It returns the answer to
// each, with the times of its call and its return on one common counter.
func history(l asker, clock *hostileClock, seed uint64) []porcupine.Operation {
	var stamp atomic.Int64
	var done sync.WaitGroup
	recorded := make([][]porcupine.Operation, historyClients)
	ready := make(chan struct{})
	for client := range historyClients {
		done.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			keys := 2 + int(seed%2)
			<-ready
			for range historySteps {
				req := request{key: random.IntN(keys), n: random.IntN(3)}
				if random.IntN(4) == 0 {
					req = request{advance: 1 + random.Int64N(20)}
				}
				op := porcupine.Operation{ClientId: client, Input: req, Call: stamp.Add(1)}
				if req.advance > 0 {
					clock.now.Add(req.advance)
				} else {
					op.Output, _ = l.Take(context.Background(), strconv.Itoa(req.key), req.n)
				}
				op.Return = stamp.Add(1)
				recorded[client] = append(recorded[client], op)
			}
		})
	}
	close(ready)
	done.Wait()
	var all []porcupine.Operation
	for _, ops := range recorded {
		all = append(all, ops...)
	}
	return all
}

// sequential is the model of one key. step changes its state, and every whole Result must
// be that of step.
func sequential(step seqStep) porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return seqState{} },
		Step: func(state, input, output any) (bool, any) {
			s, req := state.(seqState), input.(request)
			if req.advance > 0 {
				s.now += req.advance
				return true, s
			}
			next, want := step(s, int64(req.n))
			return output.(ratelimit.Result) == want, next
		},
	}
}

// byKey returns the requests for each key, with all advances of the clock. If the whole
// history is linearizable, so is each of these.
func byKey(all []porcupine.Operation) [][]porcupine.Operation {
	var parts [3][]porcupine.Operation
	for _, op := range all {
		req := op.Input.(request)
		for key := range parts {
			if req.advance > 0 || req.key == key {
				parts[key] = append(parts[key], op)
			}
		}
	}
	return parts[:]
}

// A verdict counts what the checker has found.
type verdict struct {
	histories, operations, illegal, unknown int
	slowest                                 time.Duration
}

// examine checks histories of the askers that start makes.
func examine(a algorithm, histories int, start func(clock *hostileClock) asker) (v verdict) {
	for i := range histories {
		clock := new(hostileClock)
		all := history(start(clock), clock, uint64(i))
		begun := time.Now()
		result := porcupine.CheckOperationsTimeout(sequential(seqSteps[a.name]), all, checkTimeout)
		v.slowest = max(v.slowest, time.Since(begun))
		v.histories++
		v.operations += len(all)
		switch result {
		case porcupine.Illegal:
			v.illegal++
		case porcupine.Unknown:
			v.unknown++
		}
	}
	return v
}

// TestLinearizable requires that the answers to concurrent requests are possible for the
// same requests one after the other, each decided at a time that the clock showed between
// its call and its return.
func TestLinearizable(t *testing.T) {
	const histories = 200
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			n := histories
			if testing.Short() {
				n /= 4
			}
			v := examine(a, n, func(clock *hostileClock) asker {
				return a.start(t, seqRateOf(a), ratelimit.WithClock(clock))
			})
			t.Logf("%s: %d histories, %d operations, illegal %d, unknown %d, slowest check %v",
				a.name, v.histories, v.operations, v.illegal, v.unknown, v.slowest)
			require.Zero(t, v.illegal)
			require.Zero(t, v.unknown)
			require.Equal(t, n*historyClients*historySteps, v.operations)
		})
	}
}
