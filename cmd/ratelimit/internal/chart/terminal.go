package chart

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// A Text is a chart for a terminal. It has rows of bars, one above the other, with the same scale.
type Text struct {
	Rows   []Row  // rows from top to bottom
	From   string // text below the first bar
	To     string // text below the last bar
	Height int    // height of a row in lines; 0 means 1
	Width  int    // width of the chart in columns; 0 means 80
}

// A Row is one row of bars.
type Row struct {
	Name   string    // name to the left of the row
	Values []float64 // heights of the bars; must not be negative
}

// The variable blocks has the runes for bars with a height of 0 to 8 eighths of a line.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// Columns returns the largest number of values in a row that fit into the width of the chart.
func (t *Text) Columns() int { return max(t.width()-t.gutter(), 1) }

func (t *Text) width() int {
	if t.Width == 0 {
		return 80
	}
	return t.Width
}

// gutter returns the width in columns of the names of the rows, including the space after the names.
func (t *Text) gutter() int {
	widest := 0
	for _, r := range t.Rows {
		widest = max(widest, utf8.RuneCountInString(r.Name))
	}
	return min(widest, t.width()/2) + 1
}

// String returns the chart as text. A bar for a value above 0 is always visible: it has at least an eighth of a
// line. Values that do not fit into the width are left out.
func (t *Text) String() string {
	highest := 0.0
	for _, r := range t.Rows {
		for _, v := range r.Values {
			highest = max(highest, v)
		}
	}
	gutter, height := t.gutter(), max(t.Height, 1)
	var b strings.Builder
	drawn := 0
	for _, r := range t.Rows {
		values := r.Values[:min(len(r.Values), t.Columns())]
		drawn = max(drawn, len(values))
		for line := height - 1; line >= 0; line-- {
			name := ""
			if line == 0 {
				name = string([]rune(r.Name)[:min(utf8.RuneCountInString(r.Name), gutter-1)])
			}
			row := []rune(fmt.Sprintf("%-*s ", gutter-1, name))
			for _, v := range values {
				eighths := 0
				if v > 0 && highest > 0 {
					eighths = max(int(math.Round(v/highest*float64(8*height))), 1)
				}
				row = append(row, blocks[min(max(eighths-8*line, 0), 8)])
			}
			b.WriteString(strings.TrimRight(string(row), " ") + "\n")
		}
	}
	if t.From != "" || t.To != "" {
		between := max(drawn-utf8.RuneCountInString(t.From+t.To), 1)
		fmt.Fprintf(&b, "%*s%s%*s%s\n", gutter, "", t.From, between, "", t.To)
	}
	return b.String()
}
