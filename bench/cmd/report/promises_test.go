package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each promise covers the lines that it means, in a full report and in a quick one.
func TestPromisesCoverLines(t *testing.T) {
	want := []int{1, 1, 1, 23, 4, 5, 6, 14, 7, 2, 1, 1, 2, 3, 1, 1, 2, 1}
	for _, s := range []sizes{full, quick} {
		table := lines(s)
		require.Len(t, promises(), len(want))
		for i, p := range promises() {
			covered := 0
			for _, l := range table {
				if p.lines.MatchString(l.work) {
					covered++
				}
			}
			assert.Equal(t, want[i], covered, "%s %s", p.says, p.bound)
		}
	}
}

func TestPromiseKeeps(t *testing.T) {
	most, least := promise{limit: 1.5}, promise{limit: 3, least: true}
	for _, tt := range []struct {
		p    promise
		x    float64
		want bool
		why  string
	}{
		{most, 1.4, true, "below a maximum"},
		{most, 1.5, true, "at a maximum"},
		{most, 1.5000001, false, "above a maximum"},
		{most, math.Inf(1), false, "infinite"},
		{most, math.NaN(), false, "not measured"},
		{promise{}, 0, true, "nothing allowed and nothing found"},
		{promise{}, 1, false, "nothing allowed and something found"},
		{least, 3.1, true, "above a minimum"},
		{least, 3, true, "at a minimum"},
		{least, 2.9, false, "below a minimum"},
		{least, math.NaN(), false, "not measured"},
	} {
		assert.Equal(t, tt.want, tt.p.keeps(tt.x), tt.why)
	}
}

// rowsOf returns rows that a few promises cover.
func rowsOf(floor, observer, redis, allocs float64) []row {
	at := func(work string, r reading) row { return row{line: line{work: work, group: "Some"}, reading: r} }
	return []row{
		at("RateLimiter.Allow, two rules in one decision", reading{base: ratio{value: floor}}),
		at("RateLimiter.Check, 100 rules by user, an observer", reading{base: ratio{value: observer}}),
		at("Redis: TokenBucket.Take, one hot key, 64 callers", reading{base: ratio{value: redis}}),
		at("Allocations for a known key, every algorithm", reading{value: allocs, measured: "some"}),
	}
}

func TestCheck(t *testing.T) {
	statuses := func(rows []row, isQuick bool) (got []string) {
		for _, v := range check(rows, isQuick) {
			got = append(got, v.status)
		}
		return got
	}
	assert.Equal(t, []string{kept, kept, kept}, statuses(rowsOf(2, 3, 5, 0), false))
	assert.Equal(t, []string{broken, broken, broken}, statuses(rowsOf(2, 30, 1, 1), false))
	assert.Equal(t, []string{kept, broken, kept}, statuses(rowsOf(math.NaN(), 3, 5, 0), false), "not a number")
	assert.Equal(t, []string{broken, notChecked, notChecked}, statuses(rowsOf(2, 30, 1, 1), true), "a quick report checks no times")

	verdicts := check(rowsOf(2, 3, 5, 0), false)
	assert.True(t, allHold(verdicts))
	assert.Equal(t, "some: Allocations for a known key, every algorithm", verdicts[0].figure())
	assert.Equal(t, "3.00: RateLimiter.Check, 100 rules by user, an observer", verdicts[1].figure(), "the worst line")
	assert.False(t, allHold(check(rowsOf(30, 3, 5, 0), false)))
	assert.True(t, allHold(check(rowsOf(30, 3, 5, 0), true)))

	missing := rowsOf(2, 3, 5, 0)
	missing[2].missing = true
	assert.Len(t, check(missing, false), 2, "what was not measured is not checked")
	assert.Empty(t, check(nil, false))
}
