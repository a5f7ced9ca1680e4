package chart

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// A Text is a chart for a terminal: rows of columns above one another, at one scale.
type Text struct {
	Rows   []Row  // from top to bottom
	From   string // what the first column is
	To     string // what the last column is
	Height int    // of a row in lines; 0 means 1
	Width  int    // of all of it in columns; 0 means 80
}

// A Row is one row of columns.
type Row struct {
	Name   string    // to the left of it
	Values []float64 // none is below 0
}

// blocks are a column of 0 to 8 eighths of a line.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// Columns returns how many values a row has room for.
func (t *Text) Columns() int { return max(t.width()-t.gutter(), 1) }

func (t *Text) width() int {
	if t.Width == 0 {
		return 80
	}
	return t.Width
}

// gutter returns the room for the names and a space.
func (t *Text) gutter() int {
	widest := 0
	for _, r := range t.Rows {
		widest = max(widest, utf8.RuneCountInString(r.Name))
	}
	return min(widest, t.width()/2) + 1
}

// String returns the chart. A value above 0 has at least an eighth of a line, so that it is seen.
// Values beyond the width are left out.
func (t *Text) String() string {
	most := 0.0
	for _, r := range t.Rows {
		for _, v := range r.Values {
			most = max(most, v)
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
				if v > 0 && most > 0 {
					eighths = max(int(math.Round(v/most*float64(8*height))), 1)
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
