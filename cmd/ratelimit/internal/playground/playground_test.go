package playground

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart/charttest"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// first are the settings that the page begins with.
var first = Settings{Requests: 20, Per: 60, Burst: 10, Shape: traffic.Edge, Load: 100, Retry: traffic.None, Seed: 1, Width: 320}

func view(t *testing.T, s Settings) *View {
	t.Helper()
	v, err := Run(s)
	require.NoError(t, err, "%+v", s)
	require.Len(t, v.Algorithms, 5)
	return v
}

// TestFirst has the numbers of the first view, which can be worked out by hand: 20 requests just before
// each minute but the first, 20 at it, and 20 just before the end.
func TestFirst(t *testing.T) {
	v := view(t, first)
	require.Equal(t, "One client sends 20 requests just before each end of a window, and as many right after it. It gives up a request that "+
		"is denied.", v.About)
	require.Equal(t, "Granted in 6m: TokenBucket 60 of 220, LeakyBucket 60 of 220, FixedWindow 120 of 220, SlidingWindowCounter 115 of 220, "+
		"SlidingWindowLog 120 of 220.", v.Summary)
	require.Equal(t, "minute", v.Window)
	for i, want := range []Answer{
		{Name: "TokenBucket", Short: "Token", Rate: "20/m burst 10", Sent: 220, Granted: 60, Denied: 160, Wait: "3s", MaxGranted: 10, Bound: 29,
			Worst: "Whatever is sent: at most 10 at once, 29 in any minute, 209 in any 10 minutes. A full bucket is granted at once, and each " +
				"further request has to be refilled first."},
		{Name: "LeakyBucket", Short: "Leaky", Rate: "20/m burst 10", Sent: 220, Granted: 60, Denied: 160, Wait: "3s", MaxGranted: 10, Bound: 29,
			Worst: "Whatever is sent: at most 10 at once, 29 in any minute, 209 in any 10 minutes. A full queue is granted at once, and each " +
				"further request has to drain first. Each is to be held until its turn: here for up to 27s."},
		{Name: "FixedWindow", Short: "Fixed", Rate: "20/m", Sent: 220, Granted: 120, Denied: 100, Wait: "1ns", MaxGranted: 40, Bound: 40,
			Worst: "Whatever is sent: at most 20 at once, 40 in any minute, 220 in any 10 minutes. A window can be spent just before its end, and " +
				"the next one right after it."},
		{Name: "SlidingWindowCounter", Short: "Counter", Rate: "20/m", Sent: 220, Granted: 115, Denied: 105, Wait: "3.16s", MaxGranted: 20,
			Bound: 39,
			Worst: "Whatever is sent: at most 20 at once, 39 in any minute, 210 in any 10 minutes. It takes what the last window granted as " +
				"spread evenly. If it came late, more gets through."},
		{Name: "SlidingWindowLog", Short: "Log", Rate: "20/m", Sent: 220, Granted: 120, Denied: 100, Wait: "1m", MaxGranted: 20, Bound: 20,
			Worst: "Whatever is sent: at most 20 at once, 20 in any minute, 200 in any 10 minutes. It remembers each grant for a minute, so no " +
				"window has more than the limit."},
	} {
		got := v.Algorithms[i]
		got.SVG, got.Config = "", ""
		require.Equal(t, want, got)
	}
	require.Equal(t, strings.TrimPrefix(`
{
  "rules": [
    {
      "endpoint": "/*",
      "key": "user",
      "algorithm": "TokenBucket",
      "rate": "20/m burst 10"
    }
  ]
}
`, "\n"), v.Algorithms[0].Config)
}

func TestAbout(t *testing.T) {
	for shape, want := range map[traffic.Shape]string{
		traffic.Steady:  "30 requests every 10s, at equal distances",
		traffic.Poisson: "30 requests every 10s on average, at random",
		traffic.Bursts:  "30 requests at once, every 10s",
		traffic.OnOff:   "60 requests every 10s for 6s, then none for as long",
		traffic.Ramp:    "more and more, from none to 60 requests every 10s",
		traffic.Edge:    "30 requests just before each end of a window, and as many right after it",
	} {
		for retry, then := range map[traffic.Retry]string{
			traffic.None:   "It gives up a request that is denied.",
			traffic.Ignore: "It sends a denied request again after 5s, until it is granted.",
		} {
			s := Settings{Requests: 20, Per: 10, Burst: 1, Shape: shape, Load: 150, Retry: retry, Width: 300}
			require.Equal(t, "One client sends "+want+". "+then, view(t, s).About)
		}
	}
	s := first
	s.Requests, s.Load, s.Shape = 3, 10, traffic.Bursts
	require.Contains(t, view(t, s).About, "sends 1 request at once, every 1m.", "a part of a request is a whole one")
}

// TestRandom runs random settings: the parts add up, no picture has texts that overlap or are cut, and
// the config is one that configfile accepts, with the limit that was asked for.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	texts := regexp.MustCompile(`<desc[^>]*>([^<]*)`)
	atBound := 0
	for range 150 {
		s := Settings{
			Requests: 1 + r.IntN(MaxRequests), Per: Pers()[r.IntN(4)], Burst: 1 + r.IntN(MaxRequests), Shape: Shapes()[r.IntN(6)],
			Load: MinLoad + r.IntN(MaxLoad-MinLoad+1), Retry: Retries()[r.IntN(2)], Seed: r.Uint64(), Width: MinWidth + r.IntN(MaxWidth-MinWidth+1),
		}
		v := view(t, s)
		require.Equal(t, v, view(t, s), "the same again")
		for i, a := range v.Algorithms {
			require.Equal(t, string(algorithms[i]), a.Name)
			if a.Sent != a.Granted+a.Denied || a.MaxGranted > a.Bound || a.MaxGranted > a.Granted || a.Sent < 1 {
				require.Fail(t, "the parts do not add up", "%+v: %+v", s, a)
			}
			if a.MaxGranted == a.Bound {
				atBound++
			}
			require.Equal(t, algorithms[i].MaxIn(s.rate(algorithms[i]), s.per()-1), a.Bound)
			require.Empty(t, charttest.Problems([]byte(a.SVG)), "%+v", s)
			require.NotContains(t, a.SVG, "<style>")
			require.Contains(t, a.Worst, "in any "+v.Window+",")
			require.Len(t, texts.FindStringSubmatch(a.SVG), 2)

			f, err := configfile.Parse("shown", []byte(a.Config))
			require.NoError(t, err)
			l, err := f.New()
			require.NoError(t, err)
			rules, _ := l.Rules()
			require.Len(t, rules, 1)
			require.Equal(t, s.rate(algorithms[i]), rules[0].Rate)
			require.Equal(t, algorithms[i], rules[0].Algorithm)
		}
	}
	require.Greater(t, atBound, 100)
}

// TestInWindow requires that the largest value of the drawn line is the most in any window, as sim has
// counted it.
func TestInWindow(t *testing.T) {
	for _, shape := range Shapes() {
		s := Settings{Requests: 9, Per: 1, Burst: 4, Shape: shape, Load: 170, Retry: traffic.Ignore, Seed: 3, Width: 300}
		for _, a := range algorithms {
			r, err := s.run(a)
			require.NoError(t, err)
			require.Len(t, r.granted, r.out.Admitted)
			highest := 0.0
			points := s.inWindow(r.granted)
			for i, p := range points {
				highest = max(highest, p.Y)
				require.True(t, i == 0 || p.X >= points[i-1].X)
			}
			require.EqualValues(t, r.out.Rules[0].MaxGranted, highest, "%s %s", a, shape)
			require.Equal(t, s.duration().Seconds(), points[len(points)-1].X)
			bins, sent := r.bins(), 0
			for _, b := range bins {
				sent += b.Offered
			}
			require.Equal(t, r.out.Offered, sent)
		}
	}
	r, err := first.run(ratelimit.AlgorithmFixedWindow)
	require.NoError(t, err)
	bins := r.bins()
	require.Equal(t, [3]int{20, 20, 0}, [3]int{bins[9].Offered, bins[10].Offered, bins[11].Offered}, "just before the first minute, and at it")
	require.Equal(t, [3]int{0, 20, 20}, [3]int{bins[19].Admitted, bins[20].Admitted, bins[30].Admitted})
	s := Settings{Per: 1}
	points := s.inWindow([]time.Duration{time.Second, time.Second, 2 * time.Second, 5*time.Second + 1})
	var at []float64
	for _, p := range points {
		at = append(at, p.X, p.Y)
	}
	require.Equal(t, []float64{0, 0, 1, 2, 2, 1, 3, 0, 5.000000001, 1, 6, 1}, at, "one that comes as two leave: never three, never none")
}

// TestBounds requires that the settings with the most requests run, and that all pictures of one view
// have the same axes.
func TestBounds(t *testing.T) {
	ticks := regexp.MustCompile(`text-anchor="end"[^>]*>([^<]*)`)
	for _, shape := range Shapes() {
		for _, retry := range Retries() {
			s := Settings{Requests: MaxRequests, Per: 3600, Burst: MaxRequests, Shape: shape, Load: MaxLoad, Retry: retry, Seed: 1, Width: MaxWidth}
			v := view(t, s)
			want := ticks.FindAllString(v.Algorithms[0].SVG, -1)
			require.Greater(t, len(want), 6)
			for _, a := range v.Algorithms {
				require.Less(t, a.Sent, maxSent/2)
				require.Len(t, ticks.FindAllString(a.SVG, -1), len(want))
				for i, tick := range ticks.FindAllStringSubmatch(a.SVG, -1) {
					require.Contains(t, want[i], ">"+tick[1])
				}
			}
		}
	}
}

func TestValidate(t *testing.T) {
	_, err := Run(Settings{})
	require.EqualError(t, err, strings.TrimSpace(`
requests is 0: must be from 1 to 100
per is 0: must be one of 1, 10, 60, 3600
burst is 0: must be from 1 to 100
shape is "": must be one of steady, poisson, bursts, onoff, ramp, edge
load is 0: must be from 10 to 300
retry is "": must be one of none, ignore
width is 0: must be from 240 to 1000`))
	_, err = Run(Settings{Requests: 101, Per: 61, Burst: -1, Shape: traffic.Attack, Load: 301, Retry: traffic.Obey, Width: 1001})
	require.Len(t, strings.Split(err.Error(), "\n"), 7)
	s := first
	s.Seed = 1<<64 - 1
	view(t, s)
}

func TestRounded(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1ns": 1, "999ns": 999, "1µs": 1000, "1.01µs": 1001, "3.16s": 3157894737, "59.9s": 59850 * time.Millisecond,
		"1m":   59999 * time.Millisecond,
		"1m1s": time.Minute + 1, "1h": 3600*time.Second - 1, "1h0m1s": time.Hour + 1,
	} {
		require.Equal(t, want, rounded(d), d)
	}
}

// TestCustom requires that the limiter is made of the text of the config alone.
func TestCustom(t *testing.T) {
	_, err := limiter(`{"rules": [{"endpoint": "/*", "algorithm": "TokenBuket", "rate": "1/s"}]}`)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	l, err := limiter(`{"rules": [{"endpoint": "/*", "algorithm": "TokenBucket", "rate": "1/s"}]}`)
	require.NoError(t, err)
	require.True(t, l.Allow("a", "/").Allowed)
	require.False(t, l.Allow("a", "/x").Allowed)
}
