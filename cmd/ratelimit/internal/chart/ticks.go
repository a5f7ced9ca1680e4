package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// A tick is a number that is written on an axis.
type tick struct {
	at   float64
	text string
}

// maxTicks is the largest number of ticks of an axis.
const maxTicks = 12

// ticks returns the ticks between the numbers lowest and highest. It tries larger and larger distances between ticks, and
// passes the ticks of each distance to the given function. When this function returns true, the result is these ticks. If
// the function never returns true, the result is the ticks with the largest distance.
func (a Axis) ticks(lowest, highest float64, fits func([]tick) bool) []tick {
	var found []tick
	for step := range a.steps(highest - lowest) {
		found = found[:0]
		for k := math.Ceil(lowest / step); float64(k*step) <= highest+float64(step*1e-9); k++ {
			at := float64(k * step)
			found = append(found, tick{at, a.text(at, step)})
		}
		if len(found) > 0 && fits(found) {
			return found
		}
	}
	return found
}

// steps yields distances between ticks that are easy to read, such as 1, 2 and 5, in rising order. The parameter span is the
// length of the axis. No distance is below span/maxTicks. After the first distance that is longer than span, there are no more.
func (a Axis) steps(span float64) func(yield func(float64) bool) {
	return func(yield func(float64) bool) {
		minStep := span / maxTicks
		give := func(step float64) bool { return step < minStep || yield(step) && step <= span }
		if a.Seconds && span > 2 {
			for _, s := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200} {
				if !give(s) {
					return
				}
			}
			for days := 1.0; give(days * 86400); days *= 2 {
			}
			return
		}
		for e := int(math.Floor(math.Log10(minStep))); ; e++ {
			for _, m := range []string{"1", "2", "5"} {
				// Parsing a decimal text gives the exact step. Multiplying by powers of ten could round.
				step, err := strconv.ParseFloat(m+"e"+strconv.Itoa(e), 64)
				if err != nil || !give(step) {
					return
				}
			}
		}
	}
}

// text returns the text of the tick for the given number. The parameter step is the distance between two neighbouring
// ticks.
func (a Axis) text(number, step float64) string {
	if a.Seconds {
		return Duration(time.Duration(math.Round(number * 1e9)))
	}
	if number == 0 {
		return "0"
	}
	digits := 0
	for s := step; digits < 9 && math.Abs(s-math.Round(s)) > s*1e-9; digits++ {
		s = float64(s * 10)
	}
	return Number(number, digits)
}

// Number returns n as text, with the given number of digits after the point, and with commas between thousands.
func Number(n float64, digits int) string {
	text := strconv.FormatFloat(math.Abs(n), 'f', digits, 64)
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		whole += "." + rest
	}
	if n < 0 && strings.ContainsAny(whole, "123456789") {
		whole = "-" + whole
	}
	return whole
}

// Duration returns d as a short and exact text, such as 1m30s, 2h, 3d or 250ms.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	if d == 0 {
		return "0s"
	}
	if d < time.Minute {
		return d.String()
	}
	text := ""
	if days := d / day; days > 0 {
		text, d = strconv.Itoa(int(days))+"d", d%day
	}
	if d > 0 {
		rest := d.String()
		if d >= time.Minute {
			if d%time.Minute == 0 {
				rest = strings.TrimSuffix(rest, "0s")
			}
			if d%time.Hour == 0 {
				rest = strings.TrimSuffix(rest, "0m")
			}
		}
		text += rest
	}
	return text
}
