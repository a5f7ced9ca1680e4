package traffic_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// config returns 60 requests a minute for two minutes, by one client.
func config(shape traffic.Shape) traffic.Config {
	return traffic.Config{
		Shape: shape, Requests: 60, Per: time.Minute, Burst: 10, Clients: 1, Endpoints: []string{"/"}, Cost: 1,
		Duration: 2 * time.Minute, Retry: traffic.None, RetryEvery: time.Second, Seed: 1,
	}
}

// all returns the requests of c, each answered by answer.
func all(c traffic.Config, answer func(traffic.Request) (bool, time.Duration)) (requests []traffic.Request) {
	s := traffic.New(c)
	for r, ok := s.Next(); ok; r, ok = s.Next() {
		requests = append(requests, r)
		s.Answer(answer(r))
	}
	return requests
}

func granted(traffic.Request) (bool, time.Duration) { return true, 0 }

// instants returns when the requests are sent.
func instants(requests []traffic.Request) (at []time.Duration) {
	for _, r := range requests {
		at = append(at, r.At)
	}
	return at
}

// since returns the first requests of one client with this shape.
func begin(shape traffic.Shape, n int) []time.Duration {
	return instants(all(config(shape), granted))[:n]
}

func TestShapes(t *testing.T) {
	const s = time.Second
	require.Equal(t, []time.Duration{0, s, 2 * s, 3 * s}, begin(traffic.Steady, 4))
	require.Equal(t, append(slices.Repeat([]time.Duration{0}, 10), slices.Repeat([]time.Duration{10 * s}, 10)...), begin(traffic.Bursts, 20))
	require.Equal(t, []time.Duration{0, s / 2, s, 3 * s / 2}, begin(traffic.OnOff, 4))
	require.Equal(t, []time.Duration{12*s - s/2, 24 * s, 24*s + s/2}, begin(traffic.OnOff, 26)[23:], "12 s on, 12 s off")
	ramp := begin(traffic.Ramp, 119)
	require.Equal(t, time.Minute, ramp[29], "after half the time, a quarter has been sent")
	require.Equal(t, append(slices.Repeat([]time.Duration{time.Minute - 1}, 10), slices.Repeat([]time.Duration{time.Minute}, 10)...),
		begin(traffic.Edge, 20))
	c := config(traffic.Steady)
	c.Requests, c.Per = 3, time.Second
	require.Equal(t, []time.Duration{0, 333333333, 666666666, s}, instants(all(c, granted))[:4], "no drift")
}

// TestRates requires that each shape sends on average what it was told to.
func TestRates(t *testing.T) {
	for _, shape := range traffic.Shapes() {
		c := config(shape)
		c.Duration, c.Clients, c.Seed = 20*time.Minute, 7, 3
		requests := all(c, granted)
		if shape == traffic.Edge { // 19 edges and the instant before the end
			require.Len(t, requests, 7*(19*20+10))
			continue
		}
		attack := len(slices.DeleteFunc(slices.Clone(requests), func(r traffic.Request) bool { return !r.Attack }))
		require.Equal(t, shape == traffic.Attack, attack > 0)
		// A Poisson count is within five times its deviation of its mean, and this is one of a seed.
		within := func(want float64, got int) {
			require.Less(t, math.Abs(float64(got)-want), 5*math.Sqrt(want), "%s: %d of %v", shape, got, want)
		}
		within(7*1200, len(requests)-attack)
		within(c.Expected(), len(requests))
	}
}

// TestStreams requires of random traffic what every stream promises.
func TestStreams(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	for range 200 {
		c := traffic.Config{
			Shape: traffic.Shapes()[r.IntN(7)], Requests: pick(1, 2, 7, 100), Per: []time.Duration{1, 100, 7919, time.Second, time.Hour}[r.IntN(5)],
			Burst: pick(1, 2, 30), Clients: pick(1, 2, 9), Endpoints: []string{"/a", "/b"}[:pick(1, 2)], Cost: pick(1, 3),
			Retry: traffic.Retries()[r.IntN(4)], RetryEvery: 50 * time.Millisecond, Seed: r.Uint64(),
		}
		c.Duration = time.Duration(r.Int64N(int64(3*c.Per))) + 1
		require.NoError(t, c.Validate())
		answer := func(r traffic.Request) (bool, time.Duration) { return r.Try > 2, c.Duration/5 + 1 }
		requests := all(c, answer)
		require.Equal(t, requests, all(c, answer), "the same again")
		require.True(t, slices.IsSortedFunc(requests, func(a, b traffic.Request) int { return cmp.Compare(a.At, b.At) }))
		addresses := make(map[string]string)
		for _, r := range requests {
			if r.At < 0 || r.At >= c.Duration || r.First > r.At || (r.Try == 0) != (r.First == r.At) ||
				!slices.Contains(c.Endpoints, r.Endpoint) || r.Cost != c.Cost {
				require.Fail(t, "no such request", "%+v", r)
			}
			other, known := addresses[r.Client]
			if r.Attack && (known || r.IP != "203.0.113.7") || known && other != r.IP {
				require.Fail(t, "no such client", "%+v", r)
			}
			addresses[r.Client] = r.IP
		}
	}
}

func TestSeeds(t *testing.T) {
	a, b := config(traffic.Poisson), config(traffic.Poisson)
	b.Seed = 2
	require.NotEqual(t, all(a, granted), all(b, granted))
}

func TestRetries(t *testing.T) {
	const told = 40 * time.Second
	denied := func(r traffic.Request) (bool, time.Duration) { return r.At >= 30*time.Second, told }
	sent := func(c traffic.Config, client string) (at []time.Duration) {
		for _, r := range all(c, denied) {
			if r.Client == client {
				at = append(at, r.At)
				require.Equal(t, time.Duration(r.Try)*map[bool]time.Duration{true: told,
					false: 15 * time.Second}[c.Retry == traffic.Obey || client == "client-1" && c.Retry == traffic.Mixed], r.At-r.First)
			}
		}
		return at
	}
	c := config(traffic.Steady)
	c.Requests, c.Duration, c.RetryEvery = 1, time.Minute, 15*time.Second
	require.Equal(t, []time.Duration{0}, sent(c, "client-1"), "it gives up")
	c.Retry = traffic.Obey
	require.Equal(t, []time.Duration{0, told}, sent(c, "client-1"))
	c.Retry = traffic.Ignore
	require.Equal(t, []time.Duration{0, 15 * time.Second, 30 * time.Second}, sent(c, "client-1"))
	c.Retry, c.Clients, c.Requests, c.Duration = traffic.Mixed, 2, 4, 2*time.Minute
	require.Greater(t, len(sent(c, "client-1")), 8, "eight are new, and those of the first half minute come again")
	require.Greater(t, len(sent(c, "client-2")), 8)
	c.Requests, c.Duration = 1, time.Minute

	never := func(traffic.Request) (bool, time.Duration) { return false, -1 }
	c.Retry, c.Clients = traffic.Obey, 1
	require.Len(t, all(c, never), 1, "who is told never does not come again")
	c.Shape, c.Retry = traffic.Attack, traffic.Ignore
	for _, r := range all(c, never) {
		require.False(t, r.Attack && r.Try > 0, "the attacker does not repeat itself")
	}
}

func TestValidate(t *testing.T) {
	good := config(traffic.Steady)
	require.NoError(t, good.Validate())
	bad := traffic.Config{Shape: "x", Clients: traffic.MaxClients + 1, Duration: traffic.MaxDuration + 1, Retry: "y"}
	require.EqualError(t, bad.Validate(), `Shape is x: must be one of Shapes
Requests is 0: must be at least 1
Per is 0s: must be longer than zero
Burst is 0: must be at least 1
Clients is 100001: must be from 1 to 100000
Endpoints is []: must be at least one
Cost is 0: must be at least 1
Duration is 8784h0m0.000000001s: must be from 1ns to 8784h0m0s
Retry is y: must be one of Retries
RetryEvery is 0s: must be longer than zero`)
}

// TestExtremes requires that the largest numbers make no instant before the beginning.
func TestExtremes(t *testing.T) {
	for _, shape := range traffic.Shapes() {
		c := config(shape)
		c.Per, c.Requests, c.Duration, c.Burst, c.Clients = math.MaxInt64, math.MaxInt, 10, math.MaxInt, 3
		for _, r := range first(c, 1000) {
			require.Less(t, uint64(r.At), uint64(10), shape)
		}
		c.Requests, c.Duration = 1, traffic.MaxDuration
		for _, r := range first(c, 1000) {
			require.Less(t, uint64(r.At), uint64(c.Duration), shape)
		}
	}
}

// first returns the first n requests of c.
func first(c traffic.Config, n int) (requests []traffic.Request) {
	s := traffic.New(c)
	for range n {
		if r, ok := s.Next(); ok {
			requests = append(requests, r)
		}
	}
	return requests
}

// TestOrder requires that of the requests at one instant, the one that was planned first is sent first.
func TestOrder(t *testing.T) {
	c := config(traffic.Edge)
	c.Clients, c.Burst, c.Retry, c.RetryEvery = 2, 1, traffic.Ignore, 1
	var sent []string
	for _, r := range all(c, func(r traffic.Request) (bool, time.Duration) { return r.Try > 0, 0 })[:6] {
		sent = append(sent, r.Client+" "+(r.At-time.Minute).String()+" "+string(rune('0'+r.Try)))
	}
	require.Equal(t, []string{"client-1 -1ns 0", "client-2 -1ns 0", "client-1 0s 0", "client-1 0s 1", "client-2 0s 0", "client-2 0s 1"}, sent)
}
