// Package charttest checks that the texts of a picture are inside the picture and do not overlap.
package charttest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
)

// A Box is the area of one text in a picture.
type Box struct {
	Text                     string  // the text
	Left, Right, Top, Bottom float64 // edges in pixels
}

// Texts returns the boxes of all texts in the picture svg, and the size of the picture in pixels.
func Texts(svg []byte) (boxes []Box, width, height float64, err error) {
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	var at map[string]string // attributes of the text element that is being read; nil if no text element is being read
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return boxes, width, height, nil
		}
		if err != nil {
			return nil, 0, 0, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			attrs := make(map[string]string)
			for _, a := range token.Attr {
				attrs[a.Name.Local] = a.Value
			}
			switch token.Name.Local {
			case "svg":
				width, height = number(attrs["width"]), number(attrs["height"])
			case "text":
				at = attrs
			}
		case xml.CharData:
			if at != nil {
				boxes = append(boxes, box(at, string(token)))
			}
		case xml.EndElement:
			at = nil
		}
	}
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func box(at map[string]string, text string) Box {
	size := map[string]int{"": 12, "p": 13, "h": 15}[at["class"]]
	room := chart.TextWidth(text, size, at["class"] != "")
	left, y := number(at["x"]), number(at["y"])
	switch at["text-anchor"] {
	case "middle":
		left -= room / 2
	case "end":
		left -= room
	}
	return Box{text, left, left + room, y - 0.8*float64(size), y + 0.2*float64(size)}
}

// Problems returns one line for each text that is not completely inside the picture svg, and one line for each pair
// of texts that overlap.
func Problems(svg []byte) (found []string) {
	boxes, width, height, err := Texts(svg)
	if err != nil {
		return []string{err.Error()}
	}
	for i, a := range boxes {
		if a.Left < 0 || a.Right > width || a.Top < 0 || a.Bottom > height {
			found = append(found, fmt.Sprintf("%+v is cut", a))
		}
		for _, b := range boxes[:i] {
			if a.Left < b.Right && b.Left < a.Right && a.Top < b.Bottom && b.Top < a.Bottom {
				found = append(found, fmt.Sprintf("%+v overlaps %+v", a, b))
			}
		}
	}
	return found
}

// TextOnPhone returns how large the smallest text of a picture is on a phone, in pixels. The page is 390 pixels wide, with a margin
// of 16 pixels on each side, so a picture that is wider than 358 pixels is scaled down. TextOnPhone returns 0 if svg is not a
// picture of package chart.
func TextOnPhone(svg []byte) float64 {
	width := regexp.MustCompile(`^<svg [^>]*? width="([0-9.]+)"`).FindSubmatch(svg)
	size := regexp.MustCompile(`\.rl text\{font:([0-9.]+)px`).FindSubmatch([]byte(chart.Style()))
	if width == nil || size == nil {
		return 0
	}
	w, _ := strconv.ParseFloat(string(width[1]), 64)
	px, _ := strconv.ParseFloat(string(size[1]), 64)
	return px * min(1, (390-2*16)/w)
}
