package chart

import (
	"encoding/xml"
	"math"
	"strconv"
	"strings"
)

// The variable advances has the widths of the characters from 32 to 126 in the font DejaVu Sans, in thousandths of
// the font size. This font is one of the widest that browsers use for "sans-serif".
var advances = [...]int{
	318, 401, 460, 838, 637, 951, 780, 275, 391, 391, 500, 838, 318, 361, 318, 337,
	637, 637, 637, 637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 531,
	1000, 685, 687, 699, 771, 632, 576, 775, 752, 295, 295, 656, 558, 863, 749, 788,
	604, 788, 695, 635, 611, 732, 685, 989, 686, 611, 686, 391, 337, 391, 838, 500,
	500, 613, 635, 550, 635, 616, 353, 635, 634, 278, 278, 580, 278, 975, 634, 612,
	635, 635, 412, 521, 393, 634, 592, 818, 592, 592, 525, 637, 337, 637, 838,
}

// The constant named "bolder" is the width of a bold character as a percentage of the width of the same character in regular
// type.
const bolder = 127

// TextWidth returns the width in pixels that a text has at most, in a font of the given size. The size is also in
// pixels.
func TextWidth(text string, size int, bold bool) float64 {
	sum := 0
	for _, r := range text {
		switch {
		case r >= ' ' && int(r-' ') < len(advances):
			sum += advances[r-' ']
		default:
			sum += 1000
		}
	}
	if bold {
		sum = sum * bolder / 100
	}
	return float64(sum*size) / 1000
}

// wrap breaks text into lines. Each line is at most as wide as the given number of pixels. wrap breaks a word only if
// the word alone is wider than a line.
func wrap(text string, size int, bold bool, width float64) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		joined := strings.TrimPrefix(line+" "+word, " ")
		if TextWidth(joined, size, bold) <= width {
			line = joined
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line = ""
		for _, r := range word {
			if line != "" && TextWidth(line+string(r), size, bold) > width {
				lines, line = append(lines, line), ""
			}
			line += string(r)
		}
	}
	return append(lines, line)
}

// escaped returns the given text with the characters escaped that have a meaning in XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // writing to a strings.Builder never fails
	return b.String()
}

// px returns a coordinate as text, rounded to tenths of a pixel.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(float64(v*10))/10, 'f', -1, 64)
}
