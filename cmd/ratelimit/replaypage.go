package main

import (
	"io"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// maxDrawnSpans is the largest number of spans of time in a picture.
const maxDrawnSpans = 240

// writeReplayPage writes the report of replay as a page of HTML.
func writeReplayPage(w io.Writer, r *replayJSON) error {
	h := &htmlPage{title: "What is denied: " + plain(r.Config)}
	if r.Report.Against != nil {
		h.title += " and " + plain(r.Against)
	}
	for _, text := range r.Warnings {
		h.line("Warning: %s", plain(text))
	}
	writeReport(h, r, func() {})
	if len(r.Spans) > 0 {
		h.pictures = append(h.pictures, spansFigure(&r.Report))
	}
	return h.write(w)
}

// spansFigure returns a picture of when requests came, and when they were denied. In a span of time without requests, the
// curves are at 0.
func spansFigure(r *replay.Report) *chart.Figure {
	start := r.Spans[0].Start
	var sent, denied []chart.Point
	add := func(x float64, requests, denials uint64) {
		sent = append(sent, chart.Point{X: x, Y: float64(requests)})
		denied = append(denied, chart.Point{X: x, Y: float64(denials)})
	}
	end := 0.0
	for _, s := range r.Spans {
		x := s.Start.Sub(start).Seconds()
		if x > end {
			add(end, 0, 0)
		}
		add(x, s.Requests, s.Denied)
		end = x + r.Width.Seconds()
	}
	last := &r.Spans[len(r.Spans)-1]
	add(end, last.Requests, last.Denied)
	return &chart.Figure{
		ID: "spans", Title: "Requests in each " + chart.Duration(r.Width), Width: 360, Inline: true,
		Desc: number(r.Denied) + " of " + number(r.Requests) + " requests are denied.",
		X:    chart.Axis{Max: end, Seconds: true, Label: "since " + stamp(&start) + " UTC"},
		Panels: []chart.Panel{{Height: 120, Series: []chart.Series{
			{Name: "requests", Kind: chart.Area, Look: chart.Grey, Points: sent},
			{Name: "denied", Kind: chart.Steps, Look: chart.Orange, Points: denied},
		}}},
	}
}
