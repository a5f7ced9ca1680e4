package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

// The limit of all pictures, and how long they are.
const (
	limit  = 10
	per    = 10 * time.Second
	length = 40 * time.Second
)

// requests returns when the client sends: a burst before the edge of a window and one behind it, then
// twice as much as the limit for 10 s, then a burst.
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

// A play is what an algorithm did with the requests.
type play struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	granted   []time.Duration
	denied    []time.Duration
	leave     []time.Duration // when the granted ones are let through, if each is held for its Delay
	left      []chart.Point   // how many units Peek said were left
	debt      []chart.Point   // the units that the ResetAfter of a bucket stands for
}

// run sends the requests to an algorithm.
func run(a ratelimit.Algorithm) (*play, error) {
	rate := ratelimit.Rate{Requests: limit, Per: per}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // a window begins here
	clock := ratelimit.NewFakeClock(start)
	l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: a, Rate: rate}, ratelimit.WithClock(clock))
	if err != nil {
		return nil, err
	}
	p := &play{algorithm: a, rate: rate}
	look := func(at time.Duration) error {
		clock.Set(start.Add(at))
		res, err := l.Peek(nil, ratelimit.Request{}) //nolint:staticcheck // Peek allows it
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

// inWindow returns how many of the granted requests are at most Per old, at each instant. One that is
// exactly Per old has left.
func (p *play) inWindow() (points []chart.Point, most int) {
	type change struct {
		at time.Duration
		by int
	}
	changes := []change{{0, 0}, {length, 0}}
	for _, at := range p.granted {
		changes = append(changes, change{at, 1}, change{at + per, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { // those that leave go first
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	n := 0
	for _, c := range changes {
		if c.at > length {
			break
		}
		n += c.by
		most = max(most, n)
		points = append(points, chart.Point{X: c.at.Seconds(), Y: float64(n)})
	}
	return points, most
}

// bound returns the most units in any window whose begin counts and whose end does not.
func (p *play) bound() int { return p.algorithm.MaxIn(p.rate, per-1) }

func instants(at []time.Duration) (points []chart.Point) {
	for _, a := range at {
		if a <= length {
			points = append(points, chart.Point{X: a.Seconds()})
		}
	}
	return points
}
