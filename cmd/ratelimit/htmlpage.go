package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

//go:embed page.html
var pageText string

var reportPage = template.Must(template.New("page").Parse(pageText))

// An htmlPage collects lines of text, tables and pictures for a page of HTML. The page needs no other file.
type htmlPage struct {
	title    string
	blocks   []block
	pictures []*chart.Figure
}

// A block is a line of text or, if Text is empty, a table whose first row is the header.
type block struct {
	Text  string
	Table [][]string
}

func (h *htmlPage) line(format string, args ...any) {
	if text := strings.TrimSpace(fmt.Sprintf(format, args...)); text != "" {
		h.blocks = append(h.blocks, block{Text: text})
	}
}

func (h *htmlPage) table(rows [][]string, _ ...int) { h.blocks = append(h.blocks, block{Table: rows}) }

// write writes the page: the lines and tables in their order, and then the pictures.
func (h *htmlPage) write(w io.Writer) error {
	var pictures []template.HTML
	for _, f := range h.pictures {
		var b strings.Builder
		if err := f.WriteSVG(&b); err != nil {
			return err
		}
		pictures = append(pictures, template.HTML(b.String())) //nolint:gosec // the texts in the SVG are escaped
	}
	return reportPage.Execute(w, map[string]any{
		"Title": h.title, "Blocks": h.blocks, "Pictures": pictures,
		"Style": template.CSS(chart.Style()), //nolint:gosec // the style sheet is a constant
	})
}
