package verify

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// TestProperties plays random schedules at small and everyday rates. Every whole answer
// must be that of the model, and the grants may break no constraint.
func TestProperties(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) { playAll(t, a, a.those(everydayRates)) })
}

// TestPropertiesOfExtremes does the same at the limits of what a Rate can express.
func TestPropertiesOfExtremes(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) { playAll(t, a, a.those(extremeRates)) })
}

// playAll plays random schedules of a. Each of them begins at one of rates, and may change
// to another.
func playAll(t *testing.T, a algorithm, rates []ratelimit.Rate) {
	schedules, calls, judged := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		made := rapid.SampledFrom(starts).Draw(t, "made")
		first := rapid.SampledFrom(rates).Draw(t, "rate")
		schedule := rapid.SliceOfN(callGen, stepsEach, stepsEach).Draw(t, "schedule")
		if rapid.Bool().Draw(t, "same rate throughout") {
			for i := range schedule {
				if schedule[i].Verb == setRate {
					schedule[i].Verb = take
				}
			}
		}
		p, err := newPlayer(a, made, first, rates)
		require.NoError(t, err)
		require.NoError(t, p.play(schedule))
		schedules, calls, judged = schedules+1, calls+p.calls, judged+p.judged
	})
	t.Logf("%s: %d schedules, %d calls, of which the oracle judged %d: 0 counterexamples", a.name, schedules, calls, judged)
	require.GreaterOrEqual(t, schedules, wantChecks())
	require.Equal(t, schedules*stepsEach, calls)
}

// TestPropertiesTokenAndLeakyBucketShare plays the same random schedules on both. As long
// as the rate does not change, their answers are the same, call by call, except for the
// Delay. A change of the rate counts what is queued in one of them, and what is owed in the
// other.
func TestPropertiesTokenAndLeakyBucketShare(t *testing.T) {
	t.Parallel()
	token, leaky := algorithms[0], algorithms[4]
	rates := token.those(allRates)
	schedules, calls := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		made := rapid.SampledFrom(starts).Draw(t, "made")
		first := rapid.SampledFrom(rates).Draw(t, "rate")
		schedule := rapid.SliceOfN(callGen, stepsEach, stepsEach).Draw(t, "schedule")
		p, err := newPlayer(token, made, first, rates)
		require.NoError(t, err)
		other := leaky.start(t, first, ratelimit.WithClock(p.clock))
		for i, c := range schedule {
			require.NoError(t, p.same(other, c), "call %d: %v", i, c)
			calls++
		}
		schedules++
	})
	t.Logf("%d schedules, %d calls: 0 disagreements", schedules, calls)
	require.GreaterOrEqual(t, schedules, wantChecks())
}

// same makes a call on the player's limiter and on other, and compares the answers.
func (p *player) same(other limiter, c call) error {
	p.clock.now = p.moved(c)
	key := p.key(c)
	switch c.Verb % verbs {
	case reset:
		return expect(other.Reset(key), p.limiter.Reset(key))
	case setRate:
		return expect(other.SetRate(p.rate), p.limiter.SetRate(p.rate))
	}
	n := p.counted(c)
	want, wantErr := p.limiter.Take(context.Background(), key, n)
	got, err := other.Take(context.Background(), key, n)
	p.seats[key].asked, p.seats[key].last = p.clock.now, got
	got.Delay = 0
	return expect(answer{got, err}, answer{want, wantErr})
}

// An answer is what Take has returned.
type answer struct {
	res ratelimit.Result
	err error
}
