// Package chart draws figures as SVG without external style sheets, scripts or fonts, and as text for a
// terminal. The same data always give the same bytes.
package chart

import (
	"errors"
	"fmt"
	"math"
)

// A Figure has panels, one above the other, with the same horizontal axis.
type Figure struct {
	ID     string  // prefix of the ids in the SVG; two figures on one page of HTML need different prefixes
	Title  string  // name of the picture
	Desc   string  // what the picture shows, in words, for screen readers
	Width  int     // width in pixels; 0 means 380
	X      Axis    // horizontal axis of all panels
	Panels []Panel // panels from top to bottom
	Inline bool    // whether to leave the style sheet out of the SVG; the HTML page must then contain the result of Style
}

// A Panel is one plot with its texts.
type Panel struct {
	Title  string   // text above the plot; may be empty
	Height int      // height of the plot in pixels; 0 means 90
	Y      Axis     // vertical axis
	Series []Series // data, drawn in this order
}

// An Axis describes the numbers along one side of a plot.
type Axis struct {
	Label    string  // what the numbers on the axis are; may be empty
	Min, Max float64 // smallest and largest number on the axis; if they are equal, the axis goes from 0 to the largest value of the data
	Seconds  bool    // whether the numbers are seconds, which are written as times, such as 1m30s
}

// A Series has data, and says how to draw them.
type Series struct {
	Name   string  // name in the legend, or to the left of the markers for the kind Lane
	Kind   Kind    // how the points are drawn, such as Line or Dots
	Look   Look    // colour, dash and marker
	Points []Point // data, with rising X
}

// A Point is one value.
type Point struct {
	X, Y float64 // position on the axes of the panel
}

// A Kind says how the points of a Series are drawn.
type Kind int

// The kinds of a Series: ways to draw its points.
const (
	Line  Kind = iota // a straight line from each point to the next
	Steps             // a horizontal line at the Y of each point, from its X to the X of the next point
	Area              // like Steps, with the area below the lines filled
	Dots              // a marker at each point
	Lane              // a marker for each point in a row below the plot; Y is ignored
	Level             // a horizontal line across the whole plot, at the Y of the first point
)

// A Look is a colour, a way to dash lines, and a shape of markers. Two Looks differ in all three, so readers who see
// no colours can tell the Looks apart.
type Look int

// The looks, each named after its colour.
const (
	Ink Look = iota
	Grey
	Blue
	Orange
	Green
	looks
)

// check returns everything that is wrong with the figure f as one joined error, or nil.
func (f *Figure) check() error {
	var errs []error
	if f.ID == "" || f.Title == "" || f.Desc == "" {
		errs = append(errs, errors.New("a figure needs an ID, a title and a description"))
	}
	if len(f.Panels) == 0 {
		errs = append(errs, errors.New("a figure needs a panel"))
	}
	for i, p := range f.Panels {
		for _, s := range p.Series {
			if s.Look < 0 || s.Look >= looks {
				errs = append(errs, fmt.Errorf("panel %d, series %q: there is no look %d", i, s.Name, s.Look))
			}
			for _, at := range s.Points {
				if sum := at.X + at.Y; math.IsNaN(sum) || math.IsInf(sum, 0) {
					errs = append(errs, fmt.Errorf("panel %d, series %q: %v is no point", i, s.Name, at))
					break
				}
			}
		}
	}
	return errors.Join(errs...)
}

// xRange returns the smallest and the largest number on the horizontal axis.
func (f *Figure) xRange() (lowest, highest float64) {
	if f.X.Min != f.X.Max {
		return f.X.Min, f.X.Max
	}
	for _, p := range f.Panels {
		for _, s := range p.Series {
			for _, at := range s.Points {
				if s.Kind != Level {
					highest = max(highest, at.X)
				}
			}
		}
	}
	return 0, positiveOrOne(highest)
}

// yRange returns the smallest and the largest number on the vertical axis.
func (p *Panel) yRange() (lowest, highest float64) {
	if p.Y.Min != p.Y.Max {
		return p.Y.Min, p.Y.Max
	}
	for _, s := range p.Series {
		for _, at := range s.Points {
			if s.Kind != Lane {
				highest = max(highest, at.Y)
			}
		}
	}
	return 0, positiveOrOne(highest)
}

func positiveOrOne(v float64) float64 {
	if v <= 0 {
		return 1
	}
	return v
}
