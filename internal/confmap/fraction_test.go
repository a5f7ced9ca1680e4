package confmap

import (
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundedFraction(t *testing.T) {
	for _, tt := range []struct {
		v    any
		want string // empty if it is taken as it is written
		why  string
	}{
		{1, "", "whole"},
		{0.333, "", "three decimals are what somebody wrote"},
		{0.333333333, "", "so are nine"},
		{0.3333333333, "1/3", "ten are a third"},
		{0.6666666667, "2/3", "rounded up"},
		{0.6666666666, "2/3", "cut off"},
		{0.6666666665, "", "neither"},
		{1.0 / 3, "1/3", "a float"},
		{100.0 / 3, "100/3", "above one"},
		{1.0 / 3600, "1/3600", "zeros after the point do not count as decimals"},
		{1.0 / 999_983, "1/999983", "a large denominator, of which a float says enough"},
		{123457.0 / 1_000_003, "", "a denominator beyond a million"},
		{0.1230000001, "123/1000", "the largest denominator for ten decimals"},
		{1234567.333333, "", "many digits, but few decimals"},
		{0.0010040161, "", "1/996 has eight decimals that say something"},
		{0.001004016064, "1/996", "and here ten"},
		{0.00099601593625, "", "1/1004 to twelve decimals: a denominator beyond a thousand"},
		{0.0009765625, "", "1/1024 exactly, and its denominator is beyond a thousand"},
		{0.00390625, "", "1/256 exactly"},
		{0.0000152587890625, "", "1/65536 exactly, which is no rounding"},
		{12345.0 / 32768, "", "fifteen decimals, exactly, with a denominator below a million"},
		{0.12345678901234567, "", "no fraction that one would know"},
		{float32(1) / 3, "1/3", "a float32"},
		{float32(0.333333), "", "six decimals in a float32"},
		{float32(1) / 99, "1/99", "the largest denominator in a float32"},
		{float32(3) / 103, "", "a larger one"},
		{float32(20) / 3, "20/3", "the last digit of a float32 is not that of the fraction"},
	} {
		x, ok := NumberOf(tt.v)
		require.True(t, ok, tt.why)
		requireFraction(t, tt.want, x, tt.why)
	}
	for _, tt := range []struct {
		s, want string
		why     string
	}{
		{"0." + strings.Repeat("3", 1000), "1/3", "a thousand decimals"},
		{"0." + strings.Repeat("6", 999) + "7", "2/3", "rounded up in the last"},
		{"0.1" + strings.Repeat("0", 100) + "1", "1/10", "nearly a tenth"},
		{"0." + strings.Repeat("12345678901234567891", 3), "", "many decimals of no fraction"},
	} {
		requireFraction(t, tt.want, decimal(t, tt.s), tt.why)
	}
}

func requireFraction(t *testing.T, want string, x Decimal, why string) {
	t.Helper()
	got := x.RoundedFraction()
	if want == "" {
		require.Nil(t, got, why)
		return
	}
	require.NotNil(t, got, why)
	require.Equal(t, want, got.RatString(), why)
}

// TestRoundedFractionsAreFound rounds fractions to as many decimals as are needed to find them.
func TestRoundedFractionsAreFound(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	for range 5000 {
		p, q := 1+random.Int64N(1000), 1+random.Int64N(1000)
		fraction := big.NewRat(p, q)
		for _, s := range []string{
			strconv.FormatFloat(float64(p)/float64(q), 'e', -1, 64),
			fraction.FloatString(12 + random.IntN(60)),
		} {
			x := decimal(t, s)
			if x.Rat().Cmp(fraction) == 0 {
				require.Nil(t, x.RoundedFraction(), "%s is %v exactly", s, fraction)
				continue
			}
			if x.Places() < 10 {
				continue // its last decimals are 0
			}
			requireFraction(t, fraction.RatString(), x, s)
		}
	}
}

// TestNearestFraction checks each fraction that is found. If none is found, it tries all fractions.
func TestNearestFraction(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		x := big.NewRat(1+random.Int64N(1_000_000), 1_000_000)
		slack := big.NewRat(1, 1+random.Int64N(3000))
		near := nearestFraction(x, slack, big.NewInt(50))
		if near == nil {
			// A fraction p/q that is less than 1/(2q²) from x is a convergent of x,
			// so there is none within slack.
			for q := int64(1); q <= 50; q++ {
				half := big.NewRat(1, 2*q*q)
				if half.Cmp(slack) <= 0 {
					continue
				}
				p := new(big.Int).Quo(new(big.Int).Mul(x.Num(), big.NewInt(q)), x.Denom()).Int64()
				for _, p := range []int64{p, p + 1} {
					off := new(big.Rat).Sub(x, big.NewRat(p, q))
					require.True(t, p == 0 || off.Abs(off).Cmp(slack) > 0, "%v is within %v of %d/%d", x, slack, p, q)
				}
			}
			continue
		}
		require.Positive(t, near.Sign())
		require.LessOrEqual(t, near.Denom().Int64(), int64(50))
		off := new(big.Rat).Sub(x, near)
		require.LessOrEqual(t, off.Abs(off).Cmp(slack), 0, "%v is within %v of %v", near, slack, x)
	}
}
