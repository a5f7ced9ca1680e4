package confmap

import (
	"cmp"
	"encoding/json"
	"math/big"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Decimal is a finite number exactly as it was written in a config: ±digits · 10^exp. The zero
// Decimal is 0.
//
// Invariant: digits begins and ends with a digit other than 0. For the number 0, digits is empty.
type Decimal struct {
	neg    bool
	digits string
	exp    int
	single bool // whether the number was a float32, which has fewer correct digits than a float64
}

// maxExp is the largest absolute value of an exponent. A larger exponent is replaced by maxExp: numbers
// with such exponents are all too large, or all too small, for any use.
const maxExp = 100_000_000

// NumberOf returns v as a Decimal, and reports whether v is a finite number of one of Go's types, or a
// json.Number. A float becomes the shortest decimal that is read as the same float: 0.1, not
// 0.1000000000000000055. A time.Duration is not accepted: it counts nanoseconds, and the field of the config
// may count another unit.
func NumberOf(v any) (Decimal, bool) {
	switch v := v.(type) {
	case json.Number:
		return parseDecimal(string(v))
	case time.Duration:
		return Decimal{}, false
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
	return Decimal{}, false
}

// parseDecimal reads a number in the syntax of JSON. Unlike JSON, it allows leading zeros.
func parseDecimal(s string) (x Decimal, ok bool) {
	s, x.neg = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if x.exp, ok = parseExponent(s[i+1:]); !ok {
			return Decimal{}, false
		}
		s = s[:i]
	}
	whole, decimals, point := strings.Cut(s, ".")
	if whole == "" || point && decimals == "" || !onlyDigits(whole) || !onlyDigits(decimals) {
		return Decimal{}, false
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

// parseExponent reads the exponent of a number, without the "e".
func parseExponent(s string) (exp int, ok bool) {
	digits := strings.TrimPrefix(s, "+")
	digits, neg := strings.CutPrefix(digits, "-")
	if digits == "" || len(s)-len(digits) > 1 || !onlyDigits(digits) {
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

func onlyDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// maxShown is the largest number of digits that String writes.
const maxShown = 40

// String returns x as a text for an error. It cuts off the end of a long number.
func (x Decimal) String() string {
	sign := ""
	if x.neg {
		sign = "-"
	}
	switch point := x.Point(); {
	case x.digits == "":
		return sign + "0"
	case max(x.exp, -x.exp) > maxExp/2:
		return "a number with a huge exponent"
	case x.exp >= 0 && point <= 21:
		return sign + x.digits + strings.Repeat("0", x.exp)
	case point > 0 && point < len(x.digits) && len(x.digits) <= maxShown:
		return sign + x.digits[:point] + "." + x.digits[point:]
	case point <= 0 && point > -6 && len(x.digits) <= maxShown:
		return sign + "0." + strings.Repeat("0", -point) + x.digits
	default:
		s := sign + x.digits[:1]
		if len(x.digits) > maxShown {
			s += "." + x.digits[1:maxShown] + "..."
		} else if len(x.digits) > 1 {
			s += "." + x.digits[1:]
		}
		return s + "e" + strconv.Itoa(point-1)
	}
}

// Positive reports whether x is above 0.
func (x Decimal) Positive() bool { return !x.neg && x.digits != "" }

// Point returns the number of digits that x has before the decimal point. For a number such as 0.001,
// it returns minus the number of zeros right after the point, here -2. The absolute value of x is less
// than 10^Point.
func (x Decimal) Point() int { return len(x.digits) + x.exp }

// Places returns the number of digits that x has after the decimal point. For a whole number that ends
// with zeros, such as 1200, it returns minus the number of these zeros, here -2.
func (x Decimal) Places() int { return -x.exp }

// Scaled returns the absolute value of x · 10^shift. The second result reports whether this value is a
// whole number, and the third whether it is at most limit. If one of them is false, the first result is 0.
func (x Decimal) Scaled(shift int, limit int64) (n int64, whole, fits bool) {
	exp := x.exp + shift
	switch {
	case len(x.digits)+exp > 19: // the number is at least 10^19, too large for an int64
		return 0, exp >= 0, false
	case exp < 0:
		return 0, false, true
	}
	u, err := strconv.ParseUint(x.digits+strings.Repeat("0", exp), 10, 63)
	if err != nil || u > uint64(limit) {
		return 0, true, false
	}
	return int64(u), true, true
}

// Float returns the float64 that is nearest to x, or an error if x is too large for a float64.
func (x Decimal) Float() (float64, error) {
	s := cmp.Or(x.digits, "0") + "e" + strconv.Itoa(x.exp)
	if x.neg {
		s = "-" + s
	}
	return strconv.ParseFloat(s, 64)
}

// Rat returns x as a fraction, exactly. The time and memory that it takes grow with x.Point() and
// x.Places(), so the caller must check first that these two are small.
func (x Decimal) Rat() *big.Rat { return x.leading(len(x.digits)) }

// leading returns x with only its first digits, and 0 in place of the others. The parameter first is
// the number of digits to keep.
func (x Decimal) leading(first int) *big.Rat {
	n, ok := new(big.Int).SetString(x.digits[:first], 10)
	if !ok {
		return new(big.Rat) // a Decimal without digits is 0
	}
	if x.neg {
		n.Neg(n)
	}
	exp := x.exp + len(x.digits) - first
	if exp >= 0 {
		return new(big.Rat).SetInt(n.Mul(n, tenTo(exp)))
	}
	return new(big.Rat).SetFrac(n, tenTo(-exp))
}

// tenTo returns 10^n.
func tenTo(n int) *big.Int {
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}
