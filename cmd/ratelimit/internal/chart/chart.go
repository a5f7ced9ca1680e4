// Package chart draws figures as SVG that needs nothing beside it, and as text for a terminal. The
// same data give the same bytes.
package chart

import (
	"errors"
	"fmt"
	"math"
)

// A Figure is a column of panels above one another, which share their horizontal axis.
type Figure struct {
	ID     string  // begins the ids in the SVG, which must be unique in a page of HTML
	Title  string  // the name of the picture
	Desc   string  // what it shows, for those who do not see it
	Width  int     // in pixels; 0 means 520
	X      Axis    // of all panels
	Panels []Panel // from top to bottom
	Inline bool    // without the style sheet, for a page of HTML that has Style once
}

// A Panel is one plot.
type Panel struct {
	Title  string   // above the plot, if it is not empty
	Height int      // of the plot, in pixels; 0 means 90
	Y      Axis     // the vertical one
	Series []Series // drawn in this order
}

// An Axis says what its numbers are, and which are shown.
type Axis struct {
	Label    string  // what the numbers are, if it is not empty
	Min, Max float64 // if they are equal, the axis reaches from 0 to the largest value
	Seconds  bool    // whether the numbers are seconds, so that they are shown as times
}

// A Series is some data, and how they are drawn.
type Series struct {
	Name   string  // in the legend, or beside a lane
	Kind   Kind    // how it is drawn
	Look   Look    // its colour, dash and marker
	Points []Point // in the order of X
}

// A Point is one value.
type Point struct {
	X, Y float64 // on the axes of the panel
}

// A Kind is a way to draw data.
type Kind int

// The kinds.
const (
	Line  Kind = iota // straight lines from point to point
	Steps             // each value holds until the next point
	Area              // as Steps, and filled to the bottom
	Dots              // a marker at each point
	Lane              // a marker for each point, in a row below the plot; Y is not used
	Level             // a line across the plot, at the Y of the only point
)

// A Look is a colour, a way to dash lines, and the shape of a marker. No two have one of them in
// common, so that a look is told by each.
type Look int

// The looks.
const (
	Ink Look = iota
	Grey
	Blue
	Orange
	Green
	looks
)

// check returns what is wrong with f, joined, or nil.
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

// xRange returns the ends of the horizontal axis.
func (f *Figure) xRange() (least, most float64) {
	if f.X.Min != f.X.Max {
		return f.X.Min, f.X.Max
	}
	for _, p := range f.Panels {
		for _, s := range p.Series {
			for _, at := range s.Points {
				if s.Kind != Level {
					most = max(most, at.X)
				}
			}
		}
	}
	return 0, atLeastOne(most)
}

// yRange returns the ends of the vertical axis.
func (p *Panel) yRange() (least, most float64) {
	if p.Y.Min != p.Y.Max {
		return p.Y.Min, p.Y.Max
	}
	for _, s := range p.Series {
		for _, at := range s.Points {
			if s.Kind != Lane {
				most = max(most, at.Y)
			}
		}
	}
	return 0, atLeastOne(most)
}

func atLeastOne(most float64) float64 {
	if most <= 0 {
		return 1
	}
	return most
}
