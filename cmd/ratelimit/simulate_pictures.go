package main

//go:generate go run ./internal/pictures ../../docs/pictures

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// The method parts returns a number: the pictures divide the duration of the simulation into this many equal parts. It
// prefers a number for which the length of one part is a short text, such as 5s.
func (s *simulation) parts() int {
	best := 60
	for _, n := range []int{48, 40, 80, 30} {
		if len(chart.Duration(s.traffic.Duration/time.Duration(n))) < len(chart.Duration(s.traffic.Duration/time.Duration(best))) {
			best = n
		}
	}
	return best
}

// partText divides the duration of the simulation into n equal parts. It returns the length of one part as text.
func (s *simulation) partText(n int) string {
	part := s.traffic.Duration / time.Duration(n)
	if text := chart.Duration(part); len(text) <= 7 && s.traffic.Duration%time.Duration(n) == 0 {
		return text
	}
	return "about " + short(part)
}

// maxDrawn is the largest number of rules in a picture, which has one panel for each rule. If there are more rules,
// only the first rules have a panel.
const maxDrawn = 24

// The method figure returns one picture that shows all outcomes.
func (s *simulation) figure(outcomes []*sim.Outcome) *chart.Figure {
	f := s.newFigure("simulation", "What is granted: "+plain(s.limit))
	for _, out := range outcomes {
		f.Panels = append(f.Panels, s.panels(out)...)
	}
	f.Desc = describe(outcomes)
	return f
}

func (s *simulation) newFigure(id, title string) *chart.Figure {
	return &chart.Figure{ID: id, Title: title, X: chart.Axis{Max: s.traffic.Duration.Seconds(), Seconds: true}}
}

// describe says in words what a picture of these outcomes shows.
func describe(outcomes []*sim.Outcome) string {
	var b strings.Builder
	for _, out := range outcomes {
		fmt.Fprintf(&b, "%s: of %s requests, %s were granted and %s denied.",
			plain(out.Name), number(out.Offered), number(out.Admitted), number(out.Denied))
		for _, r := range out.Rules {
			switch {
			case !r.Mode.Denies():
			case r.Algorithm == ratelimit.AlgorithmInFlight:
				fmt.Fprintf(&b, " %s had at most %s units of a key running at once; the limit is %s.",
					plain(r.Name), number(r.MaxGranted), number(r.Bound))
			default:
				fmt.Fprintf(&b, " %s granted a key at most %s units in any %s; the bound is %s.",
					plain(r.Name), number(r.MaxGranted), chart.Duration(r.Window), number(r.Bound))
			}
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// panels returns the panels that show one outcome. There is one panel for its requests, and one for the grants of
// each rule.
func (s *simulation) panels(out *sim.Outcome) []chart.Panel {
	parts := s.parts()
	counts := chart.Panel{Title: plain(out.Name), Y: chart.Axis{Label: "requests in each " + s.partText(parts)}}
	add := func(name string, kind chart.Kind, look chart.Look, count func(sim.Bin) int) {
		counts.Series = append(counts.Series, chart.Series{Name: name, Kind: kind, Look: look, Points: s.steps(values(out, parts, count))})
	}
	add("sent", chart.Area, chart.Grey, offered)
	add("granted", chart.Steps, chart.Blue, granted)
	add("denied", chart.Steps, chart.Orange, denied) // this line is dashed, so a line "granted" below it shows in the gaps
	if r := s.limited; r.Per > 0 && out.Rules[0].Algorithm != ratelimit.AlgorithmInFlight && s.traffic.Shape != traffic.Attack {
		average := float64(r.Requests) * s.traffic.Duration.Seconds() / float64(parts) / r.Per.Seconds() * float64(s.traffic.Clients)
		counts.Series = append(counts.Series, level("limit on average", chart.Ink, average))
	}
	panels := []chart.Panel{counts}
	for i, r := range out.Rules {
		if !r.Mode.Denies() || i >= maxDrawn {
			continue
		}
		peaks := make([]float64, len(r.Peaks))
		for i, peak := range r.Peaks {
			peaks[i] = float64(peak)
		}
		p := chart.Panel{Y: chart.Axis{Label: "most units of one key in any " + chart.Duration(r.Window)}, Series: []chart.Series{
			{Name: "most in a window that ends here", Kind: chart.Area, Look: chart.Green, Points: s.steps(peaks)},
			level("limit", chart.Ink, float64(r.Rate.Requests)),
			level("bound", chart.Orange, float64(r.Bound)),
		}}
		if r.Algorithm == ratelimit.AlgorithmInFlight {
			p.Y.Label, p.Series[0].Name = "most units of one key at once", "most that ran at once"
			p.Series[0].Kind, p.Series[0].Points = chart.Dots, s.dots(r.Peaks[:]) // the number is known only when a request begins
			p.Series = p.Series[:2]                                               // removes the bound, which is the same as the limit
		}
		if s.limited.Per == 0 {
			p.Title = plain(r.Name) + ": " + string(r.Algorithm) + " " + r.Rate.String()
		}
		if s.window > 0 && len(p.Series) > 2 {
			p.Series = append(p.Series[:1], p.Series[2]) // removes the limit, because this limit is for windows of another length
		}
		panels = append(panels, p)
	}
	return panels
}

func level(name string, look chart.Look, y float64) chart.Series {
	return chart.Series{Name: name, Kind: chart.Level, Look: look, Points: []chart.Point{{Y: y}}}
}

// steps returns the points of a curve. The duration of the simulation is divided into equal parts, and each value
// is the height of the curve in one of these parts.
func (s *simulation) steps(values []float64) (points []chart.Point) {
	for i, v := range values {
		points = append(points, chart.Point{X: float64(i) * s.traffic.Duration.Seconds() / float64(len(values)), Y: v})
	}
	return append(points, chart.Point{X: s.traffic.Duration.Seconds(), Y: values[len(values)-1]})
}

// dots returns a point for each part of the duration in which there is a value.
func (s *simulation) dots(values []int) (points []chart.Point) {
	for i, v := range values {
		if v > 0 {
			points = append(points, chart.Point{X: (float64(i) + 0.5) * s.traffic.Duration.Seconds() / float64(len(values)), Y: float64(v)})
		}
	}
	return points
}

// writePage writes the tables and the pictures as a page of HTML. The page needs no other file.
func (s *simulation) writePage(w io.Writer, outcomes []*sim.Outcome) error {
	var pictures []*chart.Figure
	for i, out := range outcomes {
		panels := s.panels(out)
		each := len(panels) // number of panels in each picture: 1 if there is a file of rules, and otherwise all
		if s.limited.Per == 0 {
			each = 1
		}
		for j, p := range slices.Collect(slices.Chunk(panels, each)) {
			f := s.newFigure(fmt.Sprintf("p%d-%d", i, j), plain(out.Name))
			if p[0].Title != "" {
				f.Title, p[0].Title = p[0].Title, ""
			}
			for k := range p {
				p[k].Height = 120
			}
			f.Desc, f.Panels, f.Width, f.Inline = describe(outcomes[i:i+1]), p, 360, true
			pictures = append(pictures, f)
		}
	}
	h := &htmlPage{title: "What is granted: " + plain(s.limit), pictures: pictures}
	for _, line := range s.about() {
		h.line("%s", line)
	}
	for _, table := range s.summary(outcomes) {
		h.table(table)
	}
	for _, line := range s.remarks(outcomes) {
		h.line("%s", line)
	}
	return h.write(w)
}
