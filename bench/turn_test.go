package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// turning returns the workloads with windows that turn.
func turning() (ws []Workload) {
	for _, outcome := range []Outcome{Allowed, Denied} {
		for _, window := range []time.Duration{time.Millisecond, 10 * time.Millisecond, time.Second} {
			ws = append(ws, Workload{Keys: 1, Outcome: outcome, Window: window})
		}
	}
	return ws
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// onClock returns a subject of that name for w, and the clock that it goes by, which
// stands at the beginning of a window.
func onClock(t *testing.T, name string, w Workload) (Subject, *ratelimit.FakeClock) {
	t.Helper()
	s, err := Find(name)
	require.NoError(t, err)
	clock := ratelimit.NewFakeClock(epoch)
	l := s.Limit(w)
	l.Clock = clock
	subject, err := s.New(l)
	require.NoError(t, err)
	return subject, clock
}

// granted asks s n times, once every gap, and returns how many asks were allowed.
func granted(s Subject, clock *ratelimit.FakeClock, n int, gap time.Duration) (allowed int) {
	key := Varied.Key(0)
	for range n {
		if s.Allow(key) {
			allowed++
		}
		clock.Advance(gap)
	}
	return allowed
}

// With an ask every 50 ns, which is what a fast machine does, the share that is
// granted is what the comments at the limits say.
func TestSharesOfWindowsThatTurn(t *testing.T) {
	const gap = 50 * time.Nanosecond
	for _, tt := range []struct {
		name    string
		outcome Outcome
		window  time.Duration
		granted int // of each window from the second on, of 20 asks in a microsecond
		why     string
	}{
		{"fixedwindow", Denied, 10 * time.Millisecond, 10_000, "the limit: one of twenty"},
		{"slidingwindowcounter", Denied, 10 * time.Millisecond, 9999, "one in a microsecond, but for the first: one of twenty"},
		{"slidingwindowlog", Denied, 10 * time.Millisecond, 10_000, "those that leave the log: one of twenty"},
		{"fixedwindow", Allowed, 10 * time.Millisecond, 200_000, "all"},
		{"slidingwindowcounter", Allowed, 10 * time.Millisecond, 200_000, "all"},
		{"slidingwindowlog", Allowed, time.Millisecond, 20_000, "all"},
	} {
		w := Workload{Keys: 1, Outcome: tt.outcome, Window: tt.window}
		s, clock := onClock(t, tt.name, w)
		asks := int(tt.window / gap)
		granted(s, clock, asks, gap) // the window before
		assert.Equal(t, tt.granted, granted(s, clock, asks, gap), "%s/%v: %s", tt.name, w, tt.why)
		least, most := Spec{Kind: Ours}.Claims(w)
		share := float64(tt.granted) / float64(asks)
		assert.GreaterOrEqual(t, share, least, "%s/%v", tt.name, w)
		assert.LessOrEqual(t, share, most, "%s/%v", tt.name, w)
	}
}

// A second is a hundred windows of 10 ms, and its limit is a hundred times theirs, so
// the share is the same. A log may not hold so many.
func TestRatesDoNotDependOnTheWindow(t *testing.T) {
	for _, w := range turning() {
		l := windowLimit(w)
		perMs := l.Rate / int(l.Per/time.Millisecond)
		assert.Equal(t, map[Outcome]int{Denied: deniedPerMs, Allowed: allowedPerMs}[w.Outcome], perMs, w.String())
		assert.Equal(t, w.Window, l.Per)
	}
	l := logLimit(Workload{Keys: 1, Outcome: Denied, Window: time.Second})
	assert.Equal(t, Limit{Rate: logLimitDenied, Per: time.Second, MaxKeys: defaultRoom}, l)
}

// Buckets run dry and refill, over and over, and so do short windows: in 4 ms, one
// ask in thirteen is granted if there is one every 50 ns, and three of four if there is
// one every 500 ns.
func TestSharesOfMixedAsks(t *testing.T) {
	for _, tt := range []struct {
		name    string
		gap     time.Duration
		granted int
	}{
		{"tokenbucket", 50, 6_000}, {"tokenbucket", 500, 6_000},
		{"tokenbucket-take-5", 50, 6_000}, {"tokenbucket-take-5", 500, 6_000},
		{"leakybucket", 50, 6_000}, {"leakybucket", 500, 6_000},
		{"fixedwindow", 50, 6_000}, {"fixedwindow", 500, 6_000},
		{"slidingwindowcounter", 50, 5_996}, {"slidingwindowcounter", 500, 5_996},
		{"slidingwindowlog", 50, 6_000}, {"slidingwindowlog", 500, 6_000},
	} {
		s, clock := onClock(t, tt.name, Workload{Keys: 1, Outcome: Mixed})
		granted(s, clock, settle, tt.gap)
		asks := int(4 * time.Millisecond / tt.gap)
		assert.Equal(t, tt.granted, granted(s, clock, asks, tt.gap), "%s, every %v", tt.name, tt.gap)
	}
}

// The rates make a bucket divide: with Requests over Per in its lowest terms,
// Requests is not 1. It is 1 where the workload is even.
func TestRatesAreFractions(t *testing.T) {
	lowest := func(w Workload) int64 {
		l := bucketLimit(w)
		a, b := int64(l.Rate), int64(l.Per)
		for b != 0 {
			a, b = b, a%b
		}
		return int64(l.Rate) / a
	}
	for _, outcome := range []Outcome{Allowed, Denied, Mixed} {
		assert.Greater(t, lowest(Workload{Keys: 1, Outcome: outcome}), int64(1), string(outcome))
	}
	for _, outcome := range []Outcome{Allowed, Denied} {
		assert.EqualValues(t, 1, lowest(Workload{Keys: 1, Outcome: outcome, Even: true}), string(outcome))
	}
	assert.Equal(t, "keys=1/outcome=denied/cpus=1/rate=even", Workload{Keys: 1, Outcome: Denied, Even: true}.String())
}

// weighs tells a previous count from none, and from one of this window beside it.
func TestWeighs(t *testing.T) {
	w := Workload{Keys: 1, Outcome: Denied, Window: time.Second}
	subject, clock := onClock(t, "slidingwindowcounter", w)
	s, key := subject.(slidingWindowCounter), Varied.Key(0)
	assert.False(t, s.weighs(key), "never asked")
	assert.True(t, s.Allow(key))
	assert.False(t, s.weighs(key), "the count is this window's")
	clock.Advance(time.Second)
	assert.True(t, s.weighs(key), "the count is the window's before")
	assert.True(t, s.Allow(key))
	assert.False(t, s.weighs(key), "both have one")
	clock.Advance(2 * time.Second)
	assert.False(t, s.weighs(key), "neither has one")
}

// Turn leaves a count in the window before, or says that it could not. In a second all
// subjects turn together; a short window would be over before the last was asked, so
// there each turns by itself.
func TestTurn(t *testing.T) {
	for _, w := range turning() {
		var together [][]*Run
		for _, s := range Specs() {
			if !s.Can(w) {
				continue
			}
			r, err := NewRun(s, w)
			require.NoError(t, err)
			if w.Window < time.Second || len(together) == 0 {
				together = append(together, nil)
			}
			last := &together[len(together)-1]
			*last = append(*last, r)
		}
		require.NotEmpty(t, together, w.String())
		for _, runs := range together {
			require.NoError(t, Turn(runs...))
			for _, r := range runs {
				r.Spend()
				_, err := r.Time(1000)
				assert.NoError(t, err, "%s/%v", r.spec.Name, w)
			}
		}
	}
}

func TestTurnFailsWithoutACount(t *testing.T) {
	w := Workload{Keys: 1, Outcome: Allowed, Window: time.Microsecond}
	r := &Run{work: w, subject: forgetful{}, keys: []*Keys{w.keys(0)}}
	assert.EqualError(t, Turn(r), "bench: keys=1/outcome=allowed/cpus=1/window=1µs: no window had a count before it, 100 times")
}

// forgetful never has a count.
type forgetful struct{}

func (forgetful) Allow(string) bool  { return true }
func (forgetful) weighs(string) bool { return false }

// Spend takes all that is left where most asks are to be denied, and nothing
// elsewhere.
func TestSpend(t *testing.T) {
	for _, outcome := range []Outcome{Denied, Allowed} {
		w := Workload{Keys: 1, Outcome: outcome, Window: time.Second}
		s, _ := onClock(t, "fixedwindow", w)
		r := &Run{work: w, subject: s}
		assert.True(t, s.Allow(Varied.Key(0)))
		r.Spend()
		assert.Equal(t, outcome == Allowed, s.Allow(Varied.Key(0)))
	}
	floor, err := newFloor(Limit{})
	require.NoError(t, err)
	r := &Run{work: Workload{Keys: 1, Outcome: Denied, Window: time.Second}, subject: floor}
	assert.NotPanics(t, r.Spend, "the floor has nothing to spend")
}

func TestUntilTurn(t *testing.T) {
	w := Workload{Window: time.Hour}
	left := w.UntilTurn()
	assert.Positive(t, left)
	assert.LessOrEqual(t, left, time.Hour)
}
