package chart

import (
	"encoding/xml"
	"math"
	"strconv"
	"strings"
)

// advances are the widths of the characters from 32 to 126 in thousandths of the font's size, in
// DejaVu Sans. That is one of the widest fonts that a browser takes for "sans-serif".
var advances = [...]int{
	318, 401, 460, 838, 637, 951, 780, 275, 391, 391, 500, 838, 318, 361, 318, 337,
	637, 637, 637, 637, 637, 637, 637, 637, 637, 637, 337, 337, 838, 838, 838, 531,
	1000, 685, 687, 699, 771, 632, 576, 775, 752, 295, 295, 656, 558, 863, 749, 788,
	604, 788, 695, 635, 611, 732, 685, 989, 686, 611, 686, 391, 337, 391, 838, 500,
	500, 613, 635, 550, 635, 616, 353, 635, 634, 278, 278, 580, 278, 975, 634, 612,
	635, 635, 412, 521, 393, 634, 592, 818, 592, 592, 525, 637, 337, 637, 838,
}

// bolder is how much wider a character is in bold, in hundredths.
const bolder = 127

// TextWidth returns the room in pixels that text takes at most in a font of this size.
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

// wrap breaks text into lines that are at most room wide. A word that is wider is broken.
func wrap(text string, size int, bold bool, room float64) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		joined := strings.TrimPrefix(line+" "+word, " ")
		if TextWidth(joined, size, bold) <= room {
			line = joined
			continue
		}
		if line != "" {
			lines = append(lines, line)
		}
		line = ""
		for _, r := range word {
			if line != "" && TextWidth(line+string(r), size, bold) > room {
				lines, line = append(lines, line), ""
			}
			line += string(r)
		}
	}
	return append(lines, line)
}

// escaped returns text as it is written in XML.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder has no errors
	return b.String()
}

// px returns a coordinate with at most one digit after the point.
func px(v float64) string {
	return strconv.FormatFloat(math.Round(float64(v*10))/10, 'f', -1, 64)
}
