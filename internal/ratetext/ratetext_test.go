package ratetext_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// TestParse has texts of each form. The tests of package ratelimit have further texts.
func TestParse(t *testing.T) {
	for text, want := range map[string]ratetext.Rate{
		"100/m":                            {Requests: 100, Per: time.Minute},
		"10 per 2 minutes":                 {Requests: 10, Per: 2 * time.Minute},
		"5/1h30m burst 7":                  {Requests: 5, Per: 90 * time.Minute, Burst: 7},
		" unlimited\n":                     ratetext.Unlimited,
		strconv.Itoa(math.MaxInt) + "/1ns": {Requests: math.MaxInt, Per: 1},
		"1/106751d23h47m16.854775807s":     {Requests: 1, Per: math.MaxInt64},
		"1/ 9223372036.854775807 s":        {Requests: 1, Per: math.MaxInt64},
		"2147483647/s burst 2147483647 ":   {Requests: math.MaxInt32, Per: time.Second, Burst: math.MaxInt32},
	} {
		got, err := ratetext.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

// TestMisspelt has texts that give a burst in another form. The error shows the right form.
func TestMisspelt(t *testing.T) {
	const form = `must be written "100/m burst 20"`
	for _, tt := range []struct{ text, want, why string }{
		{"100/m burst=20", form, "an equals sign"},
		{"100/m, burst: 20", form, "a comma and a colon"},
		{"100/m (burst 20)", form, "parentheses"},
		{"100/M BURST 20", form, "upper case"},
		{"100/mburst20", form, "no spaces"},
		{"100/m burst", "its time must have a number before each unit", "no burst after the word"},
		{"100/m burst 0", "its burst must be a whole number from 1 to " + strconv.Itoa(math.MaxInt), "a burst of nothing"},
		{"often burst=20", ratetext.Form, "no rate before the word"},
		{"100/m " + strings.Repeat(" ", 86) + "burst=20", form, "the longest text that is compared"},
		{"100/m " + strings.Repeat(" ", 87) + "burst=20", "its time must have a number before each unit", "a longer one"},
	} {
		_, err := ratetext.Parse(tt.text)
		assert.EqualError(t, err, tt.want, tt.why)
	}
}

// TestString proves that Parse reads what String writes.
func TestString(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	units := []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}
	for range 5000 {
		r := ratetext.Rate{Requests: 1 + random.IntN(1<<random.IntN(strconv.IntSize-4))}
		r.Per = units[random.IntN(len(units))] * time.Duration(1+random.IntN(1000))
		if random.IntN(2) == 0 {
			r.Burst = 1 + random.IntN(1000)
		}
		got, err := ratetext.Parse(r.String())
		require.NoError(t, err, "%+v", r)
		require.Equal(t, r, got)
	}
	assert.Equal(t, "unlimited", ratetext.Unlimited.String())
	assert.Equal(t, "1/90s burst 2", ratetext.Rate{Requests: 1, Per: 90 * time.Second, Burst: 2}.String())
}
