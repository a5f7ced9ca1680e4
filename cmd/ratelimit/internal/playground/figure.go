package playground

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
)

// The constant parts is the number of equal spans of time into which the pictures divide the traffic: ten for each
// window. The pictures show how many requests come in each of these spans.
const parts = 10 * windows

// figures returns a picture for each of the runs. All pictures have the same axes.
func (s *Settings) figures(runs []*run) (figures []*chart.Figure) {
	sent, granted := 0, 0
	for _, r := range runs {
		granted = max(granted, r.out.Rules[0].Bound)
		for _, b := range r.bins() {
			sent = max(sent, b.Offered)
		}
	}
	for i, r := range runs {
		rule := r.out.Rules[0]
		f := &chart.Figure{
			ID: fmt.Sprintf("picture-%d", i+1), Title: fmt.Sprintf("%s %s", r.algorithm, r.rate), Width: s.Width, Inline: true,
			Desc: fmt.Sprintf("Of %d requests, %d were granted and %d denied. At most %d were granted in any %s; the bound is %d.",
				r.out.Offered, r.out.Admitted, r.out.Denied, rule.MaxGranted, s.period().one, rule.Bound),
			X: chart.Axis{Max: s.duration().Seconds(), Seconds: true},
		}
		f.Panels = []chart.Panel{
			{
				Y: chart.Axis{Label: "requests in each " + chart.Duration(s.duration()/parts), Max: float64(sent)},
				Series: []chart.Series{
					s.steps(r, "sent", chart.Area, chart.Grey, func(b sim.Bin) int { return b.Offered }),
					s.steps(r, "granted", chart.Steps, chart.Blue, func(b sim.Bin) int { return b.Admitted }),
				},
			},
			{
				Y: chart.Axis{Label: "granted in the last " + chart.Duration(s.per()), Max: float64(granted)},
				Series: []chart.Series{
					level("worst case", chart.Orange, rule.Bound),
					level("limit", chart.Ink, s.Requests),
					{Name: "granted in it", Kind: chart.Steps, Look: chart.Green, Points: s.inWindow(r.granted)},
				},
			},
		}
		figures = append(figures, f)
	}
	return figures
}

func level(name string, look chart.Look, y int) chart.Series {
	return chart.Series{Name: name, Kind: chart.Level, Look: look, Points: []chart.Point{{Y: float64(y)}}}
}

// bins returns the counts of requests in each of the equal spans of time into which the traffic is divided.
func (r *run) bins() (bins [parts]sim.Bin) {
	for i, b := range r.out.Bins {
		part := &bins[i*parts/sim.Bins]
		part.Offered += b.Offered
		part.Admitted += b.Admitted
	}
	return bins
}

// steps returns a series with one point for each element of r.bins(). The height of a point is the number that the
// function count returns for the element.
func (s *Settings) steps(r *run, name string, kind chart.Kind, look chart.Look, count func(sim.Bin) int) chart.Series {
	series := chart.Series{Name: name, Kind: kind, Look: look}
	for i, b := range r.bins() {
		series.Points = append(series.Points, chart.Point{X: float64(i) * s.duration().Seconds() / parts, Y: float64(count(b))})
	}
	last := series.Points[parts-1]
	series.Points = append(series.Points, chart.Point{X: s.duration().Seconds(), Y: last.Y})
	return series
}

// inWindow returns, for each instant, how many requests were granted in the window that ends at this instant.
func (s *Settings) inWindow(granted []time.Duration) (points []chart.Point) {
	type change struct {
		at time.Duration
		by int
	}
	changes := make([]change, 0, 2*len(granted))
	for _, at := range granted {
		changes = append(changes, change{at, 1}, change{at + s.per(), -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	points = append(points, chart.Point{})
	n := 0
	for i, c := range changes {
		if c.at >= s.duration() {
			break
		}
		n += c.by
		if i+1 == len(changes) || changes[i+1].at > c.at { // draws one point for all changes at the same instant
			points = append(points, chart.Point{X: c.at.Seconds(), Y: float64(n)})
		}
	}
	return append(points, chart.Point{X: s.duration().Seconds(), Y: float64(n)})
}
