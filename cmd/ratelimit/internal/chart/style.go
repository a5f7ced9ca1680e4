package chart

import (
	"fmt"
	"strings"
)

// A theme has the colours of a figure in dark mode or in light mode: the background (page), the lines of the grid
// (faint), the areas in the Look Grey (soft), and a colour for each Look.
type theme struct {
	page, faint, soft string
	looks             [looks]string
}

var (
	light = theme{"#ffffff", "#d8dee4", "#e1e5ea", [looks]string{"#1f2328", "#7d8590", "#0b3d91", "#c2410c", "#1b9e4b"}}
	dark  = theme{"#0d1117", "#30363d", "#2b323b", [looks]string{"#f0f6fc", "#8b949e", "#388bfd", "#ff7b31", "#7ee787"}}
)

// The variable dashes has the stroke-dasharray of each Look: the lengths of dashes and gaps in pixels.
var dashes = [looks]string{"2 3", "1 4", "", "6 3", "8 3 2 3"}

// The font sizes in pixels.
const (
	titleSize = 15
	panelSize = 13
	textSize  = 12
)

const font = `system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif`

// Style returns the style sheet of all figures. It has light colours and dark colours. The browser uses the light
// or the dark colours, as its user prefers.
func Style() string {
	var b strings.Builder
	fmt.Fprintf(&b, ".rl text{font:%dpx %s}.rl .h{font-size:%dpx;font-weight:600}.rl .p{font-size:%dpx;font-weight:600}\n",
		textSize, font, titleSize, panelSize)
	b.WriteString(".rl path,.rl line{fill:none;stroke-width:2;stroke-linejoin:round}.rl .g{stroke-width:1}.rl .m{stroke-width:1.5}\n")
	for look, dash := range dashes {
		if dash != "" {
			fmt.Fprintf(&b, ".rl .d%d{stroke-dasharray:%s}", look, dash)
		}
	}
	b.WriteString("\n")
	light.write(&b)
	b.WriteString("@media(prefers-color-scheme:dark){\n")
	dark.write(&b)
	b.WriteString("}\n")
	return b.String()
}

func (t *theme) write(b *strings.Builder) {
	fmt.Fprintf(b, ".rl .b{fill:%s}.rl .a{stroke:%s}.rl text{fill:%s}.rl .f1{fill:%s}", t.page, t.faint, t.looks[Ink], t.soft)
	for look, colour := range t.looks {
		fmt.Fprintf(b, ".rl .c%d{stroke:%s}.rl .k%d{fill:%s;stroke:%s}", look, colour, look, colour, colour)
		if Look(look) != Grey {
			fmt.Fprintf(b, ".rl .f%d{fill:%s;fill-opacity:.22}", look, colour)
		}
	}
	b.WriteString("\n")
}

// mark returns the marker of a look as SVG. The centre of the marker is at x, y.
func mark(look Look, x, y float64) string {
	at := func(dx, dy float64) string { return px(x+dx) + " " + px(y+dy) }
	path := func(d string) string {
		return fmt.Sprintf(`<path class="m c%d" d="%s"/>`, look, d)
	}
	switch look {
	case Blue:
		return fmt.Sprintf(`<circle class="k%d" cx="%s" cy="%s" r="2"/>`, look, px(x), px(y))
	case Orange: // the marker is a cross
		return path("M" + at(-2.5, -2.5) + "L" + at(2.5, 2.5) + "M" + at(-2.5, 2.5) + "L" + at(2.5, -2.5))
	case Green: // the marker is a triangle
		return path("M" + at(0, -3) + "L" + at(3, 2.5) + "H" + px(x-3) + "Z")
	case Grey: // the marker is a bar
		return path("M" + at(0, -4) + "V" + px(y+4))
	}
	return path("M" + at(-2.5, -2.5) + "H" + px(x+2.5) + "V" + px(y+2.5) + "H" + px(x-2.5) + "Z") // the marker is a square
}
