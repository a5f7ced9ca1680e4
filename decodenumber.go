package ratelimit

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A decimal is a number of a config, as it is written: ±digits · 10^exp.
//
// Invariant: digits begins and ends with another digit than 0; of zero it is
// empty.
type decimal struct {
	neg    bool
	digits string
	exp    int
	single bool // it was a float32, whose digits say less
}

// maxExp bounds exponents; a number beyond it is as good as any other that is too
// large or too small.
const maxExp = 100_000_000

// numberOf returns v if it is a finite number.
func numberOf(v any) (decimal, bool) {
	switch v := v.(type) {
	case json.Number:
		return parseDecimal(string(v))
	case time.Duration:
		return decimal{}, false // it has a unit, and the field another
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return parseDecimal(strconv.FormatInt(r.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return parseDecimal(strconv.FormatUint(r.Uint(), 10))
	case reflect.Float32:
		x, ok := parseDecimal(strconv.FormatFloat(r.Float(), 'e', -1, 32))
		x.single = true
		return x, ok
	case reflect.Float64:
		return parseDecimal(strconv.FormatFloat(r.Float(), 'e', -1, 64))
	}
	return decimal{}, false
}

// parseDecimal reads a number as JSON has it.
func parseDecimal(s string) (x decimal, ok bool) {
	s, x.neg = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if x.exp, ok = parseExponent(s[i+1:]); !ok {
			return decimal{}, false
		}
		s = s[:i]
	}
	whole, decimals, point := strings.Cut(s, ".")
	if whole == "" || point && decimals == "" || strings.Trim(whole, "0123456789") != "" || strings.Trim(decimals, "0123456789") != "" {
		return decimal{}, false
	}
	x.exp -= len(decimals)
	x.digits = strings.TrimLeft(whole+decimals, "0")
	written := len(x.digits)
	x.digits = strings.TrimRight(x.digits, "0")
	x.exp += written - len(x.digits)
	if x.digits == "" {
		x.exp = 0
	}
	return x, true
}

// parseExponent reads what follows the e of a number.
func parseExponent(s string) (exp int, ok bool) {
	digits := strings.TrimPrefix(s, "+")
	digits, neg := strings.CutPrefix(digits, "-")
	if digits == "" || len(s)-len(digits) > 1 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	for _, c := range digits {
		exp = min(exp*10+int(c-'0'), maxExp)
	}
	if neg {
		return -exp, true
	}
	return exp, true
}

// text returns x as it is shown.
func (x decimal) text() string {
	sign := ""
	if x.neg {
		sign = "-"
	}
	switch point := len(x.digits) + x.exp; {
	case x.digits == "":
		return sign + "0"
	case max(x.exp, -x.exp) > maxExp/2:
		return "a number with a huge exponent"
	case x.exp >= 0 && point <= 21:
		return sign + x.digits + strings.Repeat("0", x.exp)
	case point > 0 && point < len(x.digits) && len(x.digits) <= 40:
		return sign + x.digits[:point] + "." + x.digits[point:]
	case point <= 0 && point > -6 && len(x.digits) <= 40:
		return sign + "0." + strings.Repeat("0", -point) + x.digits
	default:
		s := sign + x.digits[:1]
		if len(x.digits) > 40 {
			s += "." + x.digits[1:40] + "..."
		} else if len(x.digits) > 1 {
			s += "." + x.digits[1:]
		}
		return s + "e" + strconv.Itoa(point-1)
	}
}

// positive reports whether x is above 0.
func (x decimal) positive() bool { return !x.neg && x.digits != "" }

// scaled returns x · 10^shift, which is positive, whether it is whole, and whether
// it is at most most.
func (x decimal) scaled(shift int, most int64) (n int64, whole, fits bool) {
	exp := x.exp + shift
	switch {
	case len(x.digits)+exp > 19:
		return 0, exp >= 0, false
	case exp < 0:
		return 0, false, true
	}
	u, err := strconv.ParseUint(x.digits+strings.Repeat("0", exp), 10, 63)
	if err != nil || u > uint64(most) {
		return 0, true, false
	}
	return int64(u), true, true
}

// number reads the number in a field, and reports whether it is above 0. want says
// what it must be, and least what is too small.
func (d *decoder) number(n *node, name, want, least string) (x decimal, ok bool) {
	v, _ := n.get(name)
	x, ok = numberOf(v)
	switch text, isText := textOf(v); {
	case ok && x.positive():
		return x, true
	case ok:
		want = least
	case isText:
		if _, ok := parseDecimal(strings.TrimSpace(text)); ok {
			want = "must be a number, not a string: drop the quotes"
		}
	}
	d.bad(n.field(name), shown(v), want)
	return decimal{}, false
}

// count reads how many units a field grants, and returns 0 if it is wrong.
func (d *decoder) count(n *node, name string) int {
	const want = "must be a whole number, at least 1"
	x, ok := d.number(n, name, want, "must be at least 1")
	if !ok {
		return 0
	}
	count, whole, fits := x.scaled(0, math.MaxInt)
	switch {
	case !fits:
		d.bad(n.field(name), x.text(), "must be at most "+strconv.Itoa(math.MaxInt))
	case !whole:
		d.bad(n.field(name), x.text(), want)
	}
	return int(count)
}

// window reads a length of time in a unit of 10^shift ns, and returns 0 if it is
// wrong.
func (d *decoder) window(n *node, name, unit string, shift int) time.Duration {
	want := "must be a number of " + unit + ", above 0"
	x, ok := d.number(n, name, want, "must be above 0")
	if !ok {
		return 0
	}
	per, whole, fits := x.scaled(shift, math.MaxInt64)
	switch {
	case !fits:
		d.bad(n.field(name), x.text(), errTooLong.Error())
	case !whole:
		d.bad(n.field(name), x.text(), "must be whole nanoseconds")
	}
	return time.Duration(per)
}

// perSecond reads how many units a field grants a second, and returns the zero Rate
// if it is wrong.
func (d *decoder) perSecond(n *node, name string) Rate {
	x, ok := d.number(n, name, "must be a number of units a second, above 0", "must be above 0")
	if !ok {
		return Rate{}
	}
	r, reason := x.perSecond()
	if reason != "" {
		d.bad(n.field(name), x.text(), strings.ReplaceAll(reason, "%", name))
	}
	return r
}
