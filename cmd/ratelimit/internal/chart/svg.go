package chart

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// The default sizes of the parts of a figure, and the distances between its parts, in pixels.
const (
	defaultWidth  = 380 // on a screen 390 pixels wide, the texts are at least 11 pixels high
	defaultHeight = 90
	margin        = 14
	lineHeight    = 17
	laneHeight    = 14
	gap           = 6 // distance between an axis and its texts
)

// WriteSVG writes f as one SVG element. It returns an error if f is not valid or if w fails.
func (f *Figure) WriteSVG(w io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	c := canvas{figure: f, width: float64(f.Width), y: margin}
	if f.Width == 0 {
		c.width = defaultWidth
	}
	c.measure()
	c.lines(f.Title, "h", titleSize, true, margin)
	for i := range f.Panels {
		c.panel(&f.Panels[i], i == len(f.Panels)-1)
	}
	c.legend()
	c.y += margin - gap

	var head strings.Builder
	fmt.Fprintf(&head, `<svg xmlns="http://www.w3.org/2000/svg" class="rl" width="%s" height="%s" viewBox="0 0 %[1]s %[2]s"`+
		` role="img" aria-labelledby="%[3]s-title %[3]s-desc">`+"\n", px(c.width), px(c.y), escaped(f.ID))
	fmt.Fprintf(&head, "<title id=\"%s-title\">%s</title>\n<desc id=\"%[1]s-desc\">%[3]s</desc>\n",
		escaped(f.ID), escaped(f.Title), escaped(f.Desc))
	if !f.Inline {
		fmt.Fprintf(&head, "<style>\n%s</style>\n", Style())
	}
	fmt.Fprintf(&head, `<rect class="b" width="%s" height="%s" rx="6"/>`+"\n", px(c.width), px(c.y))
	_, err := io.WriteString(w, head.String()+c.b.String()+"</svg>\n")
	return err
}

// A canvas draws a figure from top to bottom.
type canvas struct {
	figure *Figure
	b      strings.Builder
	width  float64
	y      float64 // y coordinate of the bottom of everything drawn so far
	panels int     // number of panels drawn so far

	left, right     float64 // horizontal edges of all plots
	lowest, highest float64 // smallest and largest number on the horizontal axis
	ticks           []tick  // ticks of the horizontal axis
}

// A plot is the area of a panel in which the data are drawn.
type plot struct {
	*canvas
	top, bottom     float64
	lowest, highest float64 // smallest and largest number on the vertical axis
}

// measure computes the left and right edges of the plots, which depend on the widest text beside the plots. It also
// computes the ticks of the horizontal axis.
func (c *canvas) measure() {
	f := c.figure
	widest := 0.0
	for i := range f.Panels {
		p := &f.Panels[i]
		for _, t := range p.ticks() {
			widest = max(widest, TextWidth(t.text, textSize, false))
		}
		for _, s := range p.Series {
			if s.Kind == Lane {
				widest = max(widest, TextWidth(s.Name, textSize, false))
			}
		}
	}
	c.left, c.right = margin+widest+gap, c.width-margin
	c.lowest, c.highest = f.xRange()
	c.ticks = f.X.ticks(c.lowest, c.highest, func(ticks []tick) bool {
		end := math.Inf(-1)
		for _, t := range ticks {
			half := TextWidth(t.text, textSize, false) / 2
			if c.middle(t)-half < end+gap {
				return false
			}
			end = c.middle(t) + half
		}
		return true
	})
}

// ticks returns the ticks of the panel's vertical axis.
func (p *Panel) ticks() []tick {
	lowest, highest := p.yRange()
	return p.Y.ticks(lowest, highest, func(ticks []tick) bool {
		return len(ticks) < 2 || (ticks[1].at-ticks[0].at)/(highest-lowest)*p.height() >= 1.8*textSize
	})
}

func (p *Panel) height() float64 {
	if p.Height == 0 {
		return defaultHeight
	}
	return float64(p.Height)
}

// The method x returns the x coordinate of the number v on the horizontal axis.
func (c *canvas) x(v float64) float64 {
	part := (min(max(v, c.lowest), c.highest) - c.lowest) / (c.highest - c.lowest)
	return c.left + float64(part*(c.right-c.left))
}

// middle returns the x coordinate for the middle of the text of the tick t. The text is centred on the tick. If a
// part of the text would then be outside the picture, the text is moved inside.
func (c *canvas) middle(t tick) float64 {
	half := TextWidth(t.text, textSize, false) / 2
	return min(max(c.x(t.at), margin/2+half), c.width-margin/2-half)
}

// The method named "at" returns the y coordinate of the number v on the vertical axis.
func (p *plot) at(v float64) float64 {
	part := (min(max(v, p.lowest), p.highest) - p.lowest) / (p.highest - p.lowest)
	return p.bottom - float64(part*(p.bottom-p.top))
}

// lines breaks text into lines that fit into the width. It writes them below everything that was drawn so far.
func (c *canvas) lines(text, class string, size int, bold bool, x float64) {
	for _, line := range wrap(text, size, bold, c.width-margin-x) {
		c.y += float64(size)
		c.text(x, c.y-2, "start", class, line)
		c.y += float64(lineHeight - textSize)
	}
}

// The method text writes a text, with its baseline at the y coordinate y.
func (c *canvas) text(x, y float64, anchor, class, text string) {
	extra := ""
	if class != "" {
		extra = fmt.Sprintf(` class="%s"`, class)
	}
	if anchor != "start" {
		extra += fmt.Sprintf(` text-anchor="%s"`, anchor)
	}
	fmt.Fprintf(&c.b, "<text%s x=\"%s\" y=\"%s\">%s</text>\n", extra, px(x), px(y), escaped(text))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&c.b, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, px(x1), px(y1), px(x2), px(y2))
}

// panel draws the panel p. If it is the last panel, it also writes the texts of the horizontal axis.
func (c *canvas) panel(p *Panel, last bool) {
	c.y += gap
	if c.panels++; c.panels > 1 {
		c.y += 2 * gap
	}
	if p.Title != "" {
		c.lines(p.Title, "p", panelSize, true, margin)
	}
	if p.Y.Label != "" {
		c.lines(p.Y.Label, "", textSize, false, margin)
	}
	c.y += gap
	lowest, highest := p.yRange()
	area := &plot{c, c.y, c.y + p.height(), lowest, highest}
	for _, t := range p.ticks() {
		y := area.at(t.at)
		c.line("g a", c.left, y, c.right, y)
		c.text(c.left-gap, y+4, "end", "", t.text)
	}
	lanes := 0
	for _, s := range p.Series {
		if s.Kind == Lane {
			lanes++
		}
	}
	c.y = area.bottom + float64(laneHeight*lanes)
	if lanes > 0 {
		c.y += gap
	}
	for _, t := range c.ticks {
		c.line("g a", c.x(t.at), area.top, c.x(t.at), c.y)
	}
	lane := area.bottom + gap + laneHeight/2
	for _, s := range p.Series {
		if s.Kind == Lane {
			c.text(c.left-gap, lane+4, "end", "", s.Name)
			c.marks(s, func(Point) float64 { return lane })
			lane += laneHeight
			continue
		}
		area.series(s)
	}
	if !last {
		return
	}
	c.y += textSize + gap
	for _, t := range c.ticks {
		c.text(c.middle(t), c.y-2, "middle", "", t.text)
	}
	if c.figure.X.Label != "" {
		c.y += 2
		c.lines(c.figure.X.Label, "", textSize, false, c.left)
	}
}

// series draws the series s. The kind of s must not be Lane.
func (p *plot) series(s Series) {
	if len(s.Points) == 0 {
		return
	}
	class := fmt.Sprintf("c%d d%[1]d", s.Look)
	switch s.Kind {
	case Level:
		y := p.at(s.Points[0].Y)
		p.line(class, p.left, y, p.right, y)
	case Dots:
		p.marks(s, func(at Point) float64 { return p.at(at.Y) })
	case Area:
		outline := p.outline(s)
		fmt.Fprintf(&p.b, `<path class="f%d" d="%sV%sH%sZ"/>`+"\n", s.Look, outline, px(p.bottom), px(p.x(s.Points[0].X)))
		fmt.Fprintf(&p.b, `<path class="g c%d" d="%s"/>`+"\n", s.Look, outline)
	default:
		fmt.Fprintf(&p.b, `<path class="%s" d="%s"/>`+"\n", class, p.outline(s))
	}
}

// outline returns the SVG path of a series of lines or steps. It leaves out points that do not change the path.
func (p *plot) outline(s Series) string {
	var b strings.Builder
	var x, y string
	for i, at := range s.Points {
		nextX, nextY := px(p.x(at.X)), px(p.at(at.Y))
		switch {
		case i == 0:
			b.WriteString("M" + nextX + " " + nextY)
		case s.Kind == Line && (nextX != x || nextY != y):
			b.WriteString("L" + nextX + " " + nextY)
		case s.Kind != Line && nextY != y:
			if nextX != x {
				b.WriteString("H" + nextX)
			}
			b.WriteString("V" + nextY)
		case s.Kind != Line:
			continue // skips the point, because it has the same height as the point before it
		}
		x, y = nextX, nextY
	}
	if end := px(p.x(s.Points[len(s.Points)-1].X)); s.Kind != Line && end != x {
		b.WriteString("H" + end)
	}
	return b.String()
}

// marks draws the markers of the series s. If several markers are in the same place, it draws one of them.
func (c *canvas) marks(s Series, y func(Point) float64) {
	seen := make(map[string]bool)
	for _, at := range s.Points {
		if m := mark(s.Look, c.x(at.X), y(at)); !seen[m] {
			seen[m] = true
			c.b.WriteString(m + "\n")
		}
	}
}

// legend draws the legend. Series with the same name, look and kind share one entry.
func (c *canvas) legend() {
	var entries []Series
	for _, p := range c.figure.Panels {
		for _, s := range p.Series {
			same := func(e Series) bool { return e.Name == s.Name && e.Look == s.Look && e.Kind == s.Kind }
			if s.Kind != Lane && s.Name != "" && !slices.ContainsFunc(entries, same) {
				entries = append(entries, s)
			}
		}
	}
	if len(entries) == 0 {
		return
	}
	const swatch = 24
	c.y += gap + lineHeight
	x := float64(margin)
	for _, s := range entries {
		lines := wrap(s.Name, textSize, false, c.width-2*margin-swatch-gap)
		room := swatch + gap + TextWidth(lines[0], textSize, false)
		if x > margin && x+room > c.width-margin {
			x, c.y = margin, c.y+lineHeight
		}
		y := c.y - 4
		switch s.Kind {
		case Dots:
			c.b.WriteString(mark(s.Look, x+swatch/2, y) + "\n")
		case Area:
			fmt.Fprintf(&c.b, `<rect class="f%d" x="%s" y="%s" width="%d" height="9"/>`+"\n", s.Look, px(x), px(y-4), swatch)
			c.line(fmt.Sprintf("g c%d", s.Look), x, y-4, x+swatch, y-4)
		default:
			c.line(fmt.Sprintf("c%d d%[1]d", s.Look), x, y, x+swatch, y)
		}
		for i, line := range lines {
			if i > 0 {
				c.y += lineHeight
			}
			c.text(x+swatch+gap, c.y, "start", "", line)
		}
		x += room + 3*gap
	}
	c.y += gap
}
