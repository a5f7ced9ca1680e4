package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// A page collects lines of text for an output with a width in columns. No text is lost: a line that is too long continues
// on the next line.
type page struct {
	strings.Builder
	width int
}

// The method line adds text to the page. It has the same parameters as fmt.Sprintf. If the text is wider than the page, it
// continues on further lines, which begin two columns further to the right.
func (p *page) line(format string, args ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, args...), " ")
	indent := strings.Repeat(" ", len(text)-len(strings.TrimLeft(text, " "))+2)
	for utf8.RuneCountInString(text) > p.width {
		runes := []rune(text)
		at := p.width
		for at > len(indent) && runes[at] != ' ' {
			at--
		}
		if at <= len(indent) {
			break // a word that is wider than the page stays whole
		}
		p.WriteString(strings.TrimRight(string(runes[:at]), " ") + "\n")
		text = indent + strings.TrimLeft(string(runes[at:]), " ")
	}
	p.WriteString(text + "\n")
}

// The method table adds a table to the page. The first row is the header. The first column is aligned to the left, and so are
// the columns whose indexes are in the parameter left. All other columns are aligned to the right. If the table is wider than
// the page, the columns in left are made narrower, down to eight characters. If this is not enough, the first column is made
// narrower, too. This comes last, because a user may want to copy the texts of the first column. If the table is still too wide,
// each row is written as several lines.
func (p *page) table(rows [][]string, left ...int) {
	widths := make([]int, len(rows[0]))
	total := 2 * (len(widths) - 1)
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	for _, w := range widths {
		total += w
	}
	shrinkable := append([]int{0}, left...)
	for total > p.width {
		widest := 0
		if len(left) > 0 {
			widest = slices.MaxFunc(left, func(a, b int) int { return cmp.Compare(widths[a], widths[b]) })
		}
		if widths[widest] <= 8 {
			widest = 0
		}
		if widths[widest] <= 8 {
			p.cards(rows)
			return
		}
		widths[widest]--
		total--
	}
	for _, row := range rows {
		var b strings.Builder
		for i, text := range row {
			if i > 0 {
				b.WriteString("  ")
			}
			if slices.Contains(shrinkable, i) {
				fmt.Fprintf(&b, "%-*s", widths[i], fit(text, widths[i]))
			} else {
				fmt.Fprintf(&b, "%*s", widths[i], text)
			}
		}
		p.WriteString(strings.TrimRight(b.String(), " ") + "\n")
	}
}

// cards writes each row of a table as several lines. The first line is the text of the first column. Each other column has a
// further line with its header and its text, unless the text is empty or "-".
func (p *page) cards(rows [][]string) {
	header := rows[0]
	if text := header[0]; strings.Contains(" "+text, " by ") {
		p.line("%s", text)
	} else {
		p.line("by %s", text)
	}
	for _, row := range rows[1:] {
		p.line("%s", row[0])
		for i, text := range row[1:] {
			text = strings.TrimSpace(text)
			switch column := header[i+1]; {
			case text == "" || text == "-":
			case column == "":
				p.line("    %s", text)
			default:
				p.line("  %s %s", column, text)
			}
		}
	}
}
