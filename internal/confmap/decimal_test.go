package confmap

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// decimal returns the number that s is.
func decimal(t testing.TB, s string) Decimal {
	t.Helper()
	x, ok := parseDecimal(s)
	require.True(t, ok, s)
	return x
}

func TestNumberOf(t *testing.T) {
	type named uint8
	for _, tt := range []struct {
		v    any
		want Decimal
		why  string
	}{
		{0, Decimal{}, "zero"},
		{100, Decimal{digits: "1", exp: 2}, "zeros at the end are in the exponent"},
		{-25, Decimal{neg: true, digits: "25"}, "below zero"},
		{int64(math.MinInt64), Decimal{neg: true, digits: "9223372036854775808"}, "the least int64"},
		{uint64(math.MaxUint64), Decimal{digits: "18446744073709551615"}, "the largest uint64"},
		{named(7), Decimal{digits: "7"}, "of a named type"},
		{0.1, Decimal{digits: "1", exp: -1}, "a tenth, and not the float nearest to it"},
		{1e300, Decimal{digits: "1", exp: 300}, "a large float"},
		{math.Copysign(0, -1), Decimal{neg: true}, "zero below zero"},
		{float32(0.1), Decimal{digits: "1", exp: -1, single: true}, "a float32"},
		{float32(16777216), Decimal{digits: "16777216", single: true}, "the shortest decimal of a float32"},
		{json.Number("5"), Decimal{digits: "5"}, "a json.Number"},
		{json.Number("0.00120"), Decimal{digits: "12", exp: -4}, "with decimals"},
		{json.Number("-1.5E+3"), Decimal{neg: true, digits: "15", exp: 2}, "with an exponent"},
		{json.Number("007"), Decimal{digits: "7"}, "with zeros in front"},
		{json.Number("0e5"), Decimal{}, "zero has no exponent"},
		{json.Number("1e-99999999999999999999"), Decimal{digits: "1", exp: -maxExp}, "the least exponent"},
		{json.Number("1e99999999999999999999"), Decimal{digits: "1", exp: maxExp}, "the largest exponent"},
	} {
		x, ok := NumberOf(tt.v)
		require.True(t, ok, tt.why)
		require.Equal(t, tt.want, x, tt.why)
	}
}

func TestNumberOfRefuses(t *testing.T) {
	for _, tt := range []struct {
		v   any
		why string
	}{
		{math.NaN(), "not a number"},
		{math.Inf(1), "no end"},
		{float32(math.Inf(-1)), "no beginning"},
		{time.Second, "it has a unit"},
		{uintptr(1), "an address"},
		{complex(1, 0), "a complex number"},
		{"5", "a string"},
		{true, "a truth"},
		{nil, "nothing"},
		{json.Number(""), "empty"},
		{json.Number("-"), "only a sign"},
		{json.Number("+5"), "a sign that JSON does not have"},
		{json.Number("--5"), "two signs"},
		{json.Number("."), "only a point"},
		{json.Number("5."), "no decimals"},
		{json.Number(".5"), "nothing before the point"},
		{json.Number("1.2.3"), "two points"},
		{json.Number("1e"), "no exponent"},
		{json.Number("e5"), "only an exponent"},
		{json.Number("1e+-5"), "an exponent with two signs"},
		{json.Number("1e5.0"), "an exponent with decimals"},
		{json.Number("1e5e5"), "two exponents"},
		{json.Number("0x10"), "not decimal"},
		{json.Number("1_000"), "with a separator"},
		{json.Number(" 5"), "with a space"},
		{json.Number("٥"), "a digit that is not ASCII"},
	} {
		_, ok := NumberOf(tt.v)
		require.False(t, ok, tt.why)
	}
}

func TestDecimalString(t *testing.T) {
	seven := strings.Repeat("7", 50)
	for _, tt := range []struct {
		s, want string
		why     string
	}{
		{"0", "0", "zero"},
		{"-0", "-0", "zero below zero"},
		{"-100", "-100", "below zero"},
		{"1e20", "100000000000000000000", "as long as a whole number is written out"},
		{"1e21", "1e21", "longer"},
		{"12.50", "12.5", "with decimals"},
		{"0.00001", "0.00001", "as small as a number is written out"},
		{"0.000001", "0.000001", "four zeros more than that"},
		{"0.0000001", "1e-7", "smaller"},
		{"0.00000012", "1.2e-7", "smaller, of two digits"},
		{seven[:40] + ".5", seven[:1] + "." + seven[:39] + "...e39", "of 41 digits"},
		{seven[:39] + ".5", seven[:39] + ".5", "of 40 digits"},
		{"0." + seven, "7." + seven[:39] + "...e-1", "many decimals"},
		{seven, "7." + seven[:39] + "...e49", "many digits"},
		{"1e50000000", "1e50000000", "a large exponent"},
		{"1e50000001", "a number with a huge exponent", "a larger one"},
		{"-1e-50000001", "a number with a huge exponent", "a smaller one"},
	} {
		require.Equal(t, tt.want, decimal(t, tt.s).String(), tt.why)
	}
	require.Equal(t, "0", Decimal{}.String())
}

func TestDecimalPlaces(t *testing.T) {
	for _, tt := range []struct {
		s             string
		point, places int
		why           string
	}{
		{"0", 0, 0, "zero"},
		{"7", 1, 0, "a digit"},
		{"123.45", 3, 2, "digits on both sides"},
		{"0.25", 0, 2, "decimals only"},
		{"0.0025", -2, 4, "two zeros after the point"},
		{"1200", 4, -2, "two zeros at the end"},
		{"1e-10", -9, 10, "a negative exponent"},
	} {
		x := decimal(t, tt.s)
		require.Equal(t, tt.point, x.Point(), tt.why)
		require.Equal(t, tt.places, x.Places(), tt.why)
	}
}

func TestDecimalPositive(t *testing.T) {
	for s, want := range map[string]bool{"1": true, "0.001": true, "0": false, "-0": false, "-1": false} {
		require.Equal(t, want, decimal(t, s).Positive(), s)
	}
	require.False(t, Decimal{}.Positive())
}

func TestDecimalScaled(t *testing.T) {
	for _, tt := range []struct {
		s           string
		shift       int
		limit       int64
		n           int64
		whole, fits bool
		why         string
	}{
		{"5", 0, 10, 5, true, true, "a whole number"},
		{"1.5", 3, 1500, 1500, true, true, "whole once it is scaled, and the most"},
		{"1.5", 3, 1499, 0, true, false, "one more than the most"},
		{"1.5", 0, 10, 0, false, true, "not whole"},
		{"0.0001", 3, 10, 0, false, true, "still not whole"},
		{"9223372036854775807", 0, math.MaxInt64, math.MaxInt64, true, true, "the largest int64"},
		{"9223372036854775808", 0, math.MaxInt64, 0, true, false, "one more"},
		{"9223372036854.775807", 6, math.MaxInt64, math.MaxInt64, true, true, "the longest time in milliseconds"},
		{"9999999999999999999", 0, math.MaxInt64, 0, true, false, "of 19 digits"},
		{"10000000000000000000", 0, math.MaxInt64, 0, true, false, "of 20 digits"},
		{"99999999999999999999.5", 0, math.MaxInt64, 0, false, false, "neither"},
		{"1e99999999", 0, math.MaxInt64, 0, true, false, "not worked out"},
		{"1e-99999999", 9, math.MaxInt64, 0, false, true, "not worked out either"},
	} {
		n, whole, fits := decimal(t, tt.s).Scaled(tt.shift, tt.limit)
		require.Equal(t, tt.n, n, tt.why)
		require.Equal(t, tt.whole, whole, tt.why)
		require.Equal(t, tt.fits, fits, tt.why)
	}
}

// TestDecimalIsExact compares decimals with math/big.
func TestDecimalIsExact(t *testing.T) {
	require.Zero(t, Decimal{}.Rat().Sign())
	random := rand.New(rand.NewPCG(7, 8))
	for range 20_000 {
		s := randomDecimal(random)
		x := decimal(t, s)
		want, ok := new(big.Rat).SetString(s)
		require.True(t, ok, s)
		require.Zero(t, want.Cmp(x.Rat()), s)
		require.Equal(t, want.Sign() > 0, x.Positive(), s)
		require.False(t, strings.HasPrefix(x.digits, "0") || strings.HasSuffix(x.digits, "0"), s)
		if text, ok := new(big.Rat).SetString(x.String()); ok {
			require.Zero(t, want.Cmp(text), "%s is shown in full", s)
		} else {
			require.Contains(t, x.String(), "...", s)
		}
		if !x.Positive() {
			continue
		}
		power := new(big.Rat).SetInt(tenTo(max(x.Point(), 0)))
		require.Negative(t, want.Cmp(power), "%s is less than 10^%d", s, x.Point())

		shift, limit := random.IntN(10), random.Int64()
		n, whole, fits := x.Scaled(shift, limit)
		scaled := new(big.Rat).Mul(want, new(big.Rat).SetInt(tenTo(shift)))
		require.Equal(t, scaled.IsInt(), whole, s)
		if whole {
			require.Equal(t, scaled.Cmp(new(big.Rat).SetInt64(limit)) <= 0, fits, s)
		}
		if whole && fits {
			require.Zero(t, scaled.Cmp(new(big.Rat).SetInt64(n)), s)
		} else {
			require.Zero(t, n, s)
		}
	}
}

// randomDecimal returns a number with up to 45 digits.
func randomDecimal(random *rand.Rand) string {
	digits := func(limit int) string {
		b := make([]byte, 1+random.IntN(limit))
		for i := range b {
			b[i] = "0123456789000"[random.IntN(13)]
		}
		return string(b)
	}
	s := []string{"", "-"}[random.IntN(2)] + digits(22)
	if random.IntN(2) == 0 {
		s += "." + digits(23)
	}
	if random.IntN(2) == 0 {
		s += "e" + strconv.Itoa(random.IntN(61)-30)
	}
	return s
}
