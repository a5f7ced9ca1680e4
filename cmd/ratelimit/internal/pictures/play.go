package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

// The limit in all pictures is 10 requests every 10 s. Each picture shows 40 s.
const (
	limit  = 10
	per    = 10 * time.Second
	length = 40 * time.Second
)

// requests returns the times of the requests. There is a burst just before the end of a window, and another burst
// just after this end. Then requests come at twice the limit for 10 s. At the end there is a third burst.
func requests() (at []time.Duration) {
	send := func(from, step time.Duration, n int) {
		for i := range n {
			at = append(at, from+time.Duration(i)*step)
		}
	}
	send(8500*time.Millisecond, 100*time.Millisecond, 14)
	send(10100*time.Millisecond, 100*time.Millisecond, 14)
	send(16*time.Second, 500*time.Millisecond, 20)
	send(34*time.Second, 100*time.Millisecond, 14)
	return at
}

// A play has the answers that a limiter of one algorithm gave to the requests of the pictures.
type play struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	granted   []time.Duration
	denied    []time.Duration
	leave     []time.Duration // times at which granted requests may start, after each has waited for its Result.Delay
	left      []chart.Point   // for each time, how many units are left according to RateLimiter.Peek
	debt      []chart.Point   // for each time, how many units of a bucket are in use; computed from Result.ResetAfter
}

// run sends the requests of the pictures to a limiter of the given algorithm.
func run(a ratelimit.Algorithm) (*play, error) {
	return runRate(a, ratelimit.Rate{Requests: limit, Per: per})
}

// runRate sends the requests of the pictures to a limiter of the given algorithm and rate.
func runRate(a ratelimit.Algorithm, rate ratelimit.Rate) (*play, error) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // the start of a window
	clock := ratelimit.NewFakeClock(start)
	l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: a, Rate: rate}, ratelimit.WithClock(clock))
	if err != nil {
		return nil, err
	}
	p := &play{algorithm: a, rate: rate}
	look := func(at time.Duration) error {
		clock.Set(start.Add(at))
		res, err := l.Peek(nil, ratelimit.Request{}) //nolint:staticcheck // Peek accepts a nil context
		p.left = append(p.left, chart.Point{X: at.Seconds(), Y: float64(res.Remaining)})
		p.debt = append(p.debt, chart.Point{X: at.Seconds(), Y: res.ResetAfter.Seconds() * limit / per.Seconds()})
		return err
	}
	sent := requests()
	for at := time.Duration(0); at <= length; at += 50 * time.Millisecond {
		if err := look(at); err != nil {
			return nil, err
		}
		if !slices.Contains(sent, at) {
			continue
		}
		if res := l.Allow("", "/"); res.Allowed {
			p.granted = append(p.granted, at)
			p.leave = append(p.leave, at+res.Delay)
		} else {
			p.denied = append(p.denied, at)
		}
		if err := look(at); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// inWindow returns, for each instant, how many requests were granted in the window that ends at this instant. It also
// returns the largest of these numbers.
func (p *play) inWindow() (points []chart.Point, maxGranted int) {
	type change struct {
		at time.Duration
		by int
	}
	changes := []change{{0, 0}, {length, 0}}
	for _, at := range p.granted {
		changes = append(changes, change{at, 1}, change{at + per, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { // at each instant, first subtracts the requests that leave the window
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	n := 0
	for _, c := range changes {
		if c.at > length {
			break
		}
		n += c.by
		maxGranted = max(maxGranted, n)
		points = append(points, chart.Point{X: c.at.Seconds(), Y: float64(n)})
	}
	return points, maxGranted
}

// bound returns the most units that the algorithm can grant in any window. The window is 1 ns shorter than the
// constant per, because the instant at its end belongs to the next window.
func (p *play) bound() int { return p.algorithm.MaxIn(p.rate, per-1) }

func instants(at []time.Duration) (points []chart.Point) {
	for _, a := range at {
		if a <= length {
			points = append(points, chart.Point{X: a.Seconds()})
		}
	}
	return points
}
