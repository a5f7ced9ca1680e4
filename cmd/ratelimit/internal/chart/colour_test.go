package chart

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// linear returns the red, green and blue light of a colour such as #0a5fb4, each from 0 to 1.
func linear(t *testing.T, colour string) (rgb [3]float64) {
	t.Helper()
	var v [3]int
	_, err := fmt.Sscanf(colour, "#%02x%02x%02x", &v[0], &v[1], &v[2])
	require.NoError(t, err)
	for i := range v {
		s := float64(v[i]) / 255
		if rgb[i] = s / 12.92; s > 0.04045 {
			rgb[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return rgb
}

func luminance(rgb [3]float64) float64 { return 0.2126*rgb[0] + 0.7152*rgb[1] + 0.0722*rgb[2] }

// seen are how light reaches those who lack one kind of cone (Viénot, Brettel and Mollon 1999 for the
// first two), as matrices on linear light.
var seen = map[string][3][3]float64{
	"all cones":    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.11238, 0.88762, 0}, {0.11238, 0.88762, 0}, {0.00401, -0.00401, 1}},
	"deuteranopia": {{0.29275, 0.70725, 0}, {0.29275, 0.70725, 0}, {-0.02234, 0.02234, 1}},
	"tritanopia":   {{1.01277, 0.13548, -0.14826}, {-0.01243, 0.86812, 0.14431}, {0.07589, 0.80500, 0.11911}},
}

// lab returns a colour in CIE Lab, in which distances are about as large as they seem.
func lab(rgb [3]float64) (l [3]float64) {
	f := func(v float64) float64 {
		if v > 216.0/24389 {
			return math.Cbrt(v)
		}
		return (v*24389/27 + 16) / 116
	}
	x := f((0.4124*rgb[0] + 0.3576*rgb[1] + 0.1805*rgb[2]) / 0.9505)
	y := f(luminance(rgb))
	z := f((0.0193*rgb[0] + 0.1192*rgb[1] + 0.9505*rgb[2]) / 1.089)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// TestColours requires that each look stands out from the page (a contrast of 3, which WCAG asks of
// graphics; 4.5 of text), and that each two are apart for every kind of colour vision.
func TestColours(t *testing.T) {
	for name, theme := range map[string]theme{"light": light, "dark": dark} {
		page := luminance(linear(t, theme.page))
		for look, colour := range theme.looks {
			l := luminance(linear(t, colour))
			contrast := (max(l, page) + 0.05) / (min(l, page) + 0.05)
			require.GreaterOrEqual(t, contrast, map[bool]float64{true: 4.5, false: 3}[Look(look) == Ink], "%s: look %d", name, look)
		}
		for kind, matrix := range seen {
			var as [looks][3]float64
			for look, colour := range theme.looks {
				rgb := linear(t, colour)
				var light [3]float64
				for i, row := range matrix {
					light[i] = min(max(row[0]*rgb[0]+row[1]*rgb[1]+row[2]*rgb[2], 0), 1)
				}
				as[look] = lab(light)
			}
			for a := range as {
				for b := range a {
					d := math.Hypot(math.Hypot(as[a][0]-as[b][0], as[a][1]-as[b][1]), as[a][2]-as[b][2])
					require.GreaterOrEqual(t, d, 20.0, "%s: looks %d and %d, %s", name, a, b, kind)
				}
			}
		}
	}
}

// TestLooksDiffer requires that two looks differ by more than their colours.
func TestLooksDiffer(t *testing.T) {
	drawn := make(map[string]bool)
	for look := range looks {
		drawn["dash "+dashes[look]] = true
		shape := mark(look, 10, 10)
		drawn["mark "+shape[len(shape)-24:]] = true
	}
	require.Len(t, drawn, 2*int(looks))
}
