package main

import (
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

// fromFirst draws a fixed window whose windows begin with the first use. It gets the same requests as the other algorithms.
func fromFirst() (*chart.Figure, error) {
	p, err := runRate(ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: limit, Per: per, Window: "first"})
	if err != nil {
		return nil, err
	}
	return p.figure("Windows from the first use", used("granted in the window that the first request began")(p)), nil
}

// The picture of a calendar shows three months of 2026 in Berlin, which have 31, 28 and 31 days. In the last of them,
// clocks are set forward.
const (
	monthly = "10/month Europe/Berlin"
	days    = 90
	every   = 2 * 24 * time.Hour // the time between two requests
)

// A monthPlay has the answers to the requests of the picture of a calendar.
type monthPlay struct {
	granted, denied, used []chart.Point // X is days since the year began; in used, Y is how many were granted in the month so far
}

// runMonths sends a request every two days, at noon in winter, to a limiter that grants 10 in each month.
func runMonths() (p monthPlay, err error) {
	rate, err := ratelimit.ParseRate(monthly)
	if err != nil {
		return p, err
	}
	start := time.Date(2025, 12, 31, 23, 0, 0, 0, time.UTC) // midnight in Berlin
	clock := ratelimit.NewFakeClock(start)
	l, err := ratelimit.NewFixedWindow(rate, ratelimit.WithClock(clock))
	if err != nil {
		return p, err
	}
	for at := time.Duration(0); at <= days*24*time.Hour; at += time.Hour {
		clock.Set(start.Add(at))
		x := at.Hours() / 24
		p.used = append(p.used, chart.Point{X: x, Y: float64(limit - l.Peek("").Remaining)})
		if at%every != 12*time.Hour {
			continue
		}
		if l.Allow("").Allowed {
			p.granted = append(p.granted, chart.Point{X: x})
		} else {
			p.denied = append(p.denied, chart.Point{X: x})
		}
		p.used = append(p.used, chart.Point{X: x, Y: float64(limit - l.Peek("").Remaining)})
	}
	return p, nil
}

// calendar draws a fixed window whose windows are the months of a calendar.
func calendar() (*chart.Figure, error) {
	p, err := runMonths()
	if err != nil {
		return nil, err
	}
	f := newFigure("one", "A calendar: "+monthly)
	f.X = chart.Axis{Label: "days since the begin of 2026 in Berlin; February begins on day 31, March on day 59", Max: days}
	f.Desc = fmt.Sprintf("A client sends a request every two days. The limit is 10 in each month. %d requests are granted and %d denied: "+
		"the client has 10 again when a month begins, after 31, 59 and 90 days.", len(p.granted), len(p.denied))
	f.Panels = []chart.Panel{{Y: chart.Axis{Label: "granted in this month", Max: limit}, Series: []chart.Series{
		{Name: "granted in this month", Kind: chart.Area, Look: chart.Green, Points: p.used},
		{Name: "granted", Kind: chart.Lane, Look: chart.Blue, Points: p.granted},
		{Name: "denied", Kind: chart.Lane, Look: chart.Orange, Points: p.denied},
	}}}
	return f, nil
}
