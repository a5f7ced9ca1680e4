package main

import (
	"fmt"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

// The variable pictures maps the name of each file to the function that draws the picture in this file.
var pictures = map[string]func() (*chart.Figure, error){
	"algorithms.svg": algorithms,
	"tokenbucket.svg": one(ratelimit.AlgorithmTokenBucket, "A token bucket: tokens, and what is granted", func(p *play) chart.Panel {
		tokens := make([]chart.Point, 0, len(p.debt))
		for _, at := range p.debt {
			tokens = append(tokens, chart.Point{X: at.X, Y: limit - at.Y})
		}
		return chart.Panel{Y: chart.Axis{Label: "tokens in the bucket", Max: limit}, Series: []chart.Series{
			{Name: "tokens", Kind: chart.Line, Look: chart.Blue, Points: tokens},
		}}
	}),
	"leakybucket.svg": one(ratelimit.AlgorithmLeakyBucket, "A leaky bucket: what waits in it, and when it leaves", func(p *play) chart.Panel {
		return chart.Panel{Y: chart.Axis{Label: "requests in the bucket", Max: limit}, Series: []chart.Series{
			{Name: "in the bucket", Kind: chart.Line, Look: chart.Blue, Points: p.debt},
		}}
	}),
	"fixedwindow.svg": one(ratelimit.AlgorithmFixedWindow, "A fixed window: twice its limit around an edge",
		used("granted in this window, which begins at 0s, 10s, 20s …")),
	"windowfromfirst.svg": fromFirst,
	"windowofmonths.svg":  calendar,
	"slidingwindowcounter.svg": one(ratelimit.AlgorithmSlidingWindowCounter, "A sliding window counter: an estimate of the last 10s",
		used("the estimate")),
	"slidingwindowlog.svg": one(ratelimit.AlgorithmSlidingWindowLog, "A sliding window log: every instant is kept",
		used("instants in the log")),
}

// used returns a function that draws a panel. The panel shows how many units of the limit are in use: all units,
// minus the units that are left according to RateLimiter.Peek.
func used(label string) func(p *play) chart.Panel {
	return func(p *play) chart.Panel {
		points := make([]chart.Point, 0, len(p.left))
		for _, at := range p.left {
			points = append(points, chart.Point{X: at.X, Y: limit - at.Y})
		}
		return chart.Panel{Y: chart.Axis{Label: label, Max: limit}, Series: []chart.Series{
			{Name: "counted against the limit", Kind: chart.Area, Look: chart.Green, Points: points},
		}}
	}
}

// algorithms draws how each of the five algorithms answers the same requests.
func algorithms() (*chart.Figure, error) {
	f := newFigure("algorithms", "The same requests, five algorithms, 10 every 10s")
	f.Desc = fmt.Sprintf("A client sends %d requests to each algorithm, with a limit of 10 every 10 seconds: "+
		"14 just before an edge of the windows, 14 behind it, 2 a second for 10 seconds, and 14 at once.", len(requests()))
	for _, a := range ratelimit.Algorithms() {
		p, err := run(a)
		if err != nil {
			return nil, err
		}
		panel := p.panel()
		panel.Title = fmt.Sprintf("%s: at most %d in any 10s", a, p.bound())
		f.Desc += " " + p.describe()
		f.Panels = append(f.Panels, panel)
	}
	f.Panels[0].Y.Label = "granted in the last 10s"
	return f, nil
}

// The function named "one" returns a function that draws one algorithm. The picture has a panel with the state of the
// algorithm and, below it, a panel with the requests that the algorithm grants.
func one(a ratelimit.Algorithm, title string, state func(*play) chart.Panel) func() (*chart.Figure, error) {
	return func() (*chart.Figure, error) {
		p, err := run(a)
		if err != nil {
			return nil, err
		}
		return p.figure(title, state(p)), nil
	}
}

// figure returns a picture with two panels: the given panel and, below it, a panel with the requests that were granted.
func (p *play) figure(title string, state chart.Panel) *chart.Figure {
	f := newFigure("one", title)
	f.Desc = "The limit is 10 every 10 seconds. " + p.describe()
	panel := p.panel()
	panel.Y.Label = "granted in the last 10s"
	f.Panels = []chart.Panel{state, panel}
	return f
}

func newFigure(id, title string) *chart.Figure {
	return &chart.Figure{ID: id, Title: title, X: chart.Axis{Max: length.Seconds(), Seconds: true}}
}

// panel returns a panel that shows each request, and how many units the limiter granted in the last
// 10 s.
func (p *play) panel() chart.Panel {
	points, _ := p.inWindow()
	panel := chart.Panel{Height: 76, Y: chart.Axis{Max: 2 * limit}, Series: []chart.Series{
		{Name: "granted in the last 10s", Kind: chart.Area, Look: chart.Blue, Points: points},
		{Name: "limit", Kind: chart.Level, Look: chart.Ink, Points: []chart.Point{{Y: limit}}},
		{Name: "granted", Kind: chart.Lane, Look: chart.Blue, Points: instants(p.granted)},
		{Name: "denied", Kind: chart.Lane, Look: chart.Orange, Points: instants(p.denied)},
	}}
	if p.algorithm == ratelimit.AlgorithmLeakyBucket {
		panel.Series = append(panel.Series, chart.Series{Name: "leaves", Kind: chart.Lane, Look: chart.Grey, Points: instants(p.leave)})
	}
	return panel
}

// describe says in words how many units the limiter granted.
func (p *play) describe() string {
	_, maxGranted := p.inWindow()
	return fmt.Sprintf("%s grants %d and denies %d. In any 10 seconds it grants at most %d here, and never more than %d.",
		p.algorithm, len(p.granted), len(p.denied), maxGranted, p.bound())
}
