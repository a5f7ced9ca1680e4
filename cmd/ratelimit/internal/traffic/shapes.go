package traffic

import (
	"math"
	"math/bits"
	"time"
)

// The constant ended is an instant that is later than the end of any traffic.
const ended = time.Duration(math.MaxInt64)

// A pattern is a function that returns another function, for one client. Each call of the returned function returns the
// time of the client's next request.
type pattern func(c *Config, s *source) func() time.Duration

// The method pattern returns the pattern of the shape c.Shape, or nil if there is no such shape.
func (c *Config) pattern() pattern {
	return map[Shape]pattern{
		Steady: steady, Poisson: poisson, Bursts: bursts, OnOff: onOff, Ramp: ramp, Attack: poisson, Edge: edge,
	}[c.Shape]
}

// scaled returns the time in which a client sends n requests. The parameters requests and per are the rate of the client. For
// example, a client with the rate 100 per minute sends 50 requests in 30 s. The result is n·per/requests, rounded down. If it
// is too large for a time.Duration, scaled returns the constant ended.
func scaled(n uint64, per time.Duration, requests uint64) time.Duration {
	hi, lo := bits.Mul64(n, uint64(per))
	if hi >= requests {
		return ended
	}
	at, _ := bits.Div64(hi, lo, requests)
	return time.Duration(min(at, uint64(ended)))
}

// phase returns the time at which a client begins to send. If there is only one client, it begins at 0. If there are
// several clients, each begins at a random time below the given duration, so that they do not all send at the same
// instants.
func (c *Config) phase(s *source, between time.Duration) time.Duration {
	if c.Clients == 1 || between < 1 {
		return 0
	}
	return time.Duration(s.random.Uint64N(uint64(between)))
}

func plus(a, b time.Duration) time.Duration {
	if a > ended-b {
		return ended
	}
	return a + b
}

func steady(c *Config, s *source) func() time.Duration {
	from := c.phase(s, scaled(1, c.Per, uint64(c.Requests)))
	k := uint64(0)
	return func() time.Duration {
		k++
		return plus(from, scaled(k-1, c.Per, uint64(c.Requests)))
	}
}

func poisson(c *Config, s *source) func() time.Duration {
	mean := float64(c.Per) / float64(c.Requests)
	if s.Attack {
		mean /= attackFactor
	}
	at := time.Duration(0)
	return func() time.Duration {
		wait := math.Min(float64(mean*s.random.ExpFloat64()), float64(MaxDuration))
		at = plus(at, time.Duration(math.Ceil(wait)))
		return at
	}
}

func bursts(c *Config, s *source) func() time.Duration {
	from := c.phase(s, scaled(uint64(c.Burst), c.Per, uint64(c.Requests)))
	k := uint64(0)
	return func() time.Duration {
		at := plus(from, scaled(k/uint64(c.Burst)*uint64(c.Burst), c.Per, uint64(c.Requests)))
		k++
		return at
	}
}

func onOff(c *Config, s *source) func() time.Duration {
	on := max(c.Duration/10, 1)
	from := c.phase(s, on)
	k := uint64(0)
	return func() time.Duration {
		busy := scaled(k, c.Per, 2*uint64(c.Requests)) // how long the client has been sending, not counting its pauses
		k++
		return plus(from, plus(busy, busy-busy%on))
	}
}

// ramp sends the requests so that the rate grows linearly. Of n requests, it sends the k-th at the time
// duration·√(k/n).
func ramp(c *Config, s *source) func() time.Duration {
	all := float64(c.Duration) / float64(c.Per) * float64(c.Requests)
	from := c.phase(s, scaled(1, c.Per, uint64(c.Requests)))
	k := 0.0
	return func() time.Duration {
		k++
		return plus(from, time.Duration(math.Min(float64(c.Duration)*math.Sqrt(k/all), float64(MaxDuration))))
	}
}

func edge(c *Config, _ *source) func() time.Duration {
	k := uint64(0)
	return func() time.Duration {
		n := k / uint64(c.Burst)
		k++
		at := scaled(n/2+1, c.Per, 1)
		if n%2 == 0 && at != ended {
			at--
		}
		return at
	}
}
