package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/bench"
)

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		value, bound float64
		want, why    string
	}{
		{1.14, 1.15, meets, "below the bound"},
		{1.15, 1.15, meets, "at the bound"},
		{1.1500001, 1.15, misses, "above the bound"},
		{0, 0, meets, "nothing allowed and nothing found"},
		{1, 0, misses, "nothing allowed and something found"},
		{math.NaN(), 1, misses, "not measured"},
		{math.Inf(1), 1, misses, "without end"},
	} {
		assert.Equal(t, tt.want, verdictOn(tt.value, tt.bound), tt.why)
	}
}

func TestRowIsJudgedOnlyOnRequest(t *testing.T) {
	l := line{work: "work", target: "≤ 1 × it", bound: 1}
	bad := reading{value: 2, measured: "2 ns", ratio: "2.00"}
	assert.Equal(t, row{"work", "≤ 1 × it", "2 ns", "2.00", misses, false}, newRow(l, bad, true))
	assert.Equal(t, row{"work", "≤ 1 × it", "2 ns", "2.00", notJudged, false}, newRow(l, bad, false))
	assert.False(t, allKept([]row{{verdict: meets}, newRow(l, bad, true)}))
	assert.True(t, allKept([]row{{verdict: meets}, newRow(l, bad, false)}))
}

func TestMedian(t *testing.T) {
	xs := []float64{9, 1, 5}
	assert.Equal(t, 5.0, median(xs))
	assert.Equal(t, []float64{9, 1, 5}, xs, "the samples stay in the order of the rounds")
	assert.Equal(t, 3.0, median([]float64{1, 5}))
	assert.True(t, math.IsNaN(median(nil)))
}

// A machine that becomes twice as slow half way through changes no ratio.
func TestRatiosAreTakenWithinRounds(t *testing.T) {
	w := bench.Workload{Keys: 1}
	mine, floor := cell{"tokenbucket", w}, cell{"floor", w}
	l := newLab(quick, io.Discard)
	l.samples[mine] = []float64{11, 11, 22, 22, 22}
	l.samples[floor] = []float64{10, 10, 20, 20, 20}
	assert.Equal(t, 1.1, l.ratio(mine, floor))

	got, err := overFloor("work", "tokenbucket", w, 1.15).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{1.1, "22.0 ns; floor 20.0 ns", "1.10"}, got)
}

func TestPeersAreComparedByTheFastest(t *testing.T) {
	w := bench.Workload{Keys: 1, Outcome: bench.Allowed}
	l := newLab(quick, io.Discard)
	for _, s := range bench.Specs() {
		l.samples[cell{s.Name, w}] = []float64{300}
	}
	l.samples[cell{"tokenbucket", w}] = []float64{50}
	l.samples[cell{"throttled", w}] = []float64{100}
	l.samples[cell{"uber", w}] = []float64{1} // no peer: it has no keys
	l.samples[cell{"floor", w}] = []float64{1}

	got, err := overPeers("work", w, 0.85).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{0.5, "50.0 ns; throttled 100 ns", "0.50"}, got)
}

func TestGrowthComparesFactors(t *testing.T) {
	small := bench.Workload{Keys: 10, Outcome: bench.Allowed}
	large := bench.Workload{Keys: 1000, Outcome: bench.Allowed}
	l := newLab(quick, io.Discard)
	l.samples[cell{"tokenbucket", small}] = []float64{50}
	l.samples[cell{"tokenbucket", large}] = []float64{200}
	l.samples[cell{"map", small}] = []float64{20}
	l.samples[cell{"map", large}] = []float64{160}

	got, err := growth("work", 10, 1000).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{0.5, "50.0 ns → 200 ns; map 20.0 ns → 160 ns", "×4.0; map ×8.0"}, got)
}

func TestBeyond(t *testing.T) {
	const ms = time.Millisecond
	assert.Equal(t, reading{value: float64(ms), measured: "3 ms; empty loop 2 ms; 5 passes"}, beyond(3*ms, 2*ms, 5))
	assert.Zero(t, beyond(ms, 2*ms, 5).value, "never less than the empty loop")
}

func TestSlowestOf(t *testing.T) {
	for _, tt := range []struct {
		passes [][]time.Duration
		want   time.Duration
		why    string
	}{
		{[][]time.Duration{{1, 9, 1, 1}}, 9, "one pass hides nothing"},
		{[][]time.Duration{{1, 9, 1, 1}, {1, 9, 1, 1}}, 9, "a moment of the work comes in every pass"},
		{[][]time.Duration{{1, 9, 1, 1}, {1, 1, 9, 1}}, 9, "also if it comes a little earlier or later"},
		{[][]time.Duration{{9, 1, 1, 1}, {1, 1, 1, 9}}, 1, "a moment of the machine comes anywhere"},
		{[][]time.Duration{{1, 9, 1, 1}, {1, 1, 1, 1}}, 1, "or not at all"},
	} {
		var passes []pass
		for _, p := range tt.passes {
			passes = append(passes, pass{slowest: p})
		}
		assert.Equal(t, tt.want, slowestOf(passes), tt.why)
	}
}

func TestPassKeepsTheSlowestTurnOfEachPiece(t *testing.T) {
	p := pass{slowest: []time.Duration{0}}
	p.turn(3)
	p.turn(5)
	p.slowest = append(p.slowest, 0)
	p.turn(12)
	p.turn(13)
	assert.Equal(t, pass{slowest: []time.Duration{3, 7}, took: 13}, p)

	q := pass{slowest: []time.Duration{8}, took: 10}
	assert.Equal(t, pass{slowest: []time.Duration{3, 7, 8}, took: 23}, p.and(q))
}

// A pass asks for every key once, whatever the pieces.
func TestWatchAsksForEveryKey(t *testing.T) {
	seen := make(counter)
	p := watch(seen, 5, 1005)
	assert.Len(t, p.slowest, windows)
	assert.Len(t, seen, 1000)
	for i := 5; i < 1005; i++ {
		assert.Equal(t, 1, seen[bench.Varied.Key(i)])
	}
}

type counter map[string]int

func (c counter) Allow(key string) bool {
	c[strings.Clone(key)]++
	return true
}

func TestTables(t *testing.T) {
	var out bytes.Buffer
	writeRows(&out, []row{
		{"Allow", "≤ 1.15 × floor", "50.0 ns; floor 48.0 ns", "1.04", meets, true},
		{"Memory", "≤ 72", "80.0", "", misses, false},
	})
	assert.Equal(t, strings.Join([]string{
		"| work | to reach | measured median | ratio | verdict |",
		"|---|---|---|---|---|",
		"| Allow | ≤ 1.15 × floor | 50.0 ns; floor 48.0 ns | 1.04 | meets |",
		"| Memory | ≤ 72 | 80.0 |  | MISSES |",
		"",
	}, "\n"), out.String())

	one := bench.Workload{Keys: 1, Outcome: bench.Allowed}
	all := bench.Workload{Keys: 1, Outcome: bench.Allowed, Parallel: true}
	l := newLab(quick, io.Discard)
	l.order = []cell{{"floor", one}, {"tokenbucket", one}, {"tokenbucket", all}}
	l.samples[l.order[0]] = []float64{48}
	l.samples[l.order[1]] = []float64{50}
	l.samples[l.order[2]] = []float64{123.4}
	out.Reset()
	writeSamples(&out, l)
	assert.Equal(t, strings.Join([]string{
		"",
		"| workload | nanoseconds per ask, median |",
		"|---|---|",
		"| keys=1 outcome=allowed cpus=1 | floor 48.0, tokenbucket 50.0 |",
		"| keys=1 outcome=allowed cpus=all | tokenbucket 123 |",
		"",
	}, "\n"), out.String())
}

func TestMissesAreListed(t *testing.T) {
	written := func(rows ...row) string {
		var out bytes.Buffer
		writeMisses(&out, rows)
		return out.String()
	}
	kept := row{work: "Allow", target: "≤ 1.15 × floor", ratio: "1.04", verdict: meets}
	missed := row{work: "Take", target: "≤ 1.15 × floor", measured: "60 ns; floor 48 ns", ratio: "1.25", verdict: misses}
	plain := row{work: "Memory", target: "≤ 72", measured: "80.0", verdict: misses}
	assert.Equal(t, "\nNo line misses.\n", written(kept))
	assert.Equal(t, "\nNothing was judged.\n", written(row{verdict: notJudged}, row{verdict: notMeasured}))
	assert.Equal(t, strings.Join([]string{
		"",
		"The lines that miss:",
		"",
		"- Take: 1.25, to reach ≤ 1.15 × floor",
		"- Memory: 80.0, to reach ≤ 72",
		"",
	}, "\n"), written(kept, missed, plain))
}

func TestSummary(t *testing.T) {
	var out bytes.Buffer
	writeSummary(&out, []row{
		{"Allow", "≤ 1.15 × floor", "50.0 ns; floor 48.0 ns", "1.04", meets, true},
		{"Memory", "≤ 72", "80.0", "", misses, false},
	})
	assert.Equal(t, strings.Join([]string{
		"| work | measured median | ratio | to reach |",
		"|---|---|---|---|",
		"| Allow | 50.0 ns; floor 48.0 ns | 1.04 | ≤ 1.15 × floor |",
		"",
	}, "\n"), out.String())

	chosen := 0
	for _, l := range lines(full) {
		if l.chosen {
			chosen++
		}
	}
	assert.Equal(t, 9, chosen)
}

// A family of lines is found by a word, in any case, and no two lines are the same.
func TestFamilies(t *testing.T) {
	table := lines(full)
	count := func(word string) (n int) {
		pattern := regexp.MustCompile("(?i)" + word)
		for _, l := range table {
			if pattern.MatchString(l.work) {
				n++
			}
		}
		return n
	}
	for word, want := range map[string]int{
		"windows": 11, "mixed": 3, "tiers": 2, "shadow": 2, "observer": 2, "long keys": 2,
		"slidingwindowcounter": 6, "redis": 8, "bytes|collection|allocations": 4 + 2,
	} {
		assert.Equal(t, want, count(word), word)
	}
	seen := make(map[string]bool)
	for _, l := range table {
		assert.False(t, seen[l.work+l.target], l.work)
		seen[l.work+l.target] = true
	}
}

// The share is shown where it is neither none nor all.
func TestShares(t *testing.T) {
	c := cell{"tokenbucket", bench.Workload{Keys: 1, Outcome: bench.Mixed}}
	l := newLab(full, io.Discard)
	assert.Empty(t, l.share(c))
	for share, want := range map[float64]string{0: "", 1: "", 0.05: "; 5 % allowed", 0.184: "; 18 % allowed"} {
		l.shares[c] = []float64{share}
		assert.Equal(t, want, l.share(c))
	}

	spec, err := bench.Find("tokenbucket")
	require.NoError(t, err)
	l.shares[c] = []float64{0.99, 0.99, 0.5}
	assert.EqualError(t, l.checkShares(c.work, []bench.Spec{spec}),
		"tokenbucket/keys=1/outcome=mixed/cpus=1: 99 % of the asks were allowed, not 2 % to 98 %")
	l.shares[c] = []float64{0.99, 0.5, 0.5}
	assert.NoError(t, l.checkShares(c.work, []bench.Spec{spec}), "in one round the machine stood still")
	l.strict = false
	l.shares[c] = []float64{1}
	assert.NoError(t, l.checkShares(c.work, []bench.Spec{spec}), "not judged")
}

func TestHeaderSaysWhereAndHow(t *testing.T) {
	var out bytes.Buffer
	writeHeader(&out, []string{"-lines", "hot", "-lines=it's|hot"}, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	assert.Contains(t, out.String(), " · 2026-01-02 · `go run ./bench/cmd/report -lines hot '-lines=it'\\''s|hot'`")
	assert.Contains(t, out.String(), " cores, ")
	assert.Contains(t, out.String(), " · go")
}

// Every line of the table finds its figure, on a scale that takes no time.
func TestEveryLineIsTaken(t *testing.T) {
	tiny := sizes{
		few: 10, many: 100, most: 200, rounds: 2, batch: 100 * time.Microsecond, runs: 1,
		redisKeys: 10, redisTurn: 100 * time.Microsecond,
	}
	table := lines(tiny)
	l := newLab(tiny, io.Discard)
	defer l.redis.close()
	rows, err := take(l, table, false)
	require.NoError(t, err)
	require.Len(t, rows, len(table))
	_, noRedis := exec.LookPath("redis-server")
	for i, r := range rows {
		assert.Equal(t, table[i].work, r.work)
		assert.NotEmpty(t, r.target, r.work)
		assert.NotEmpty(t, r.measured, r.work)
		assert.NotContains(t, r.measured, "NaN", r.work)
		if noRedis != nil && strings.HasPrefix(r.work, "Redis: ") {
			assert.Equal(t, notMeasured, r.verdict, r.work)
			continue
		}
		assert.Equal(t, notJudged, r.verdict, r.work)
	}
}

func TestReportSelectsLines(t *testing.T) {
	var out bytes.Buffer
	summary := filepath.Join(t.TempDir(), "summary")
	kept, err := report(&out, io.Discard, options{quick: true, pattern: "^extra time|^bytes", summary: summary})
	require.NoError(t, err)
	assert.True(t, kept)
	assert.Equal(t, 2, strings.Count(out.String(), notJudged))
	written, err := os.ReadFile(summary)
	require.NoError(t, err)
	assert.Equal(t, 3, strings.Count(string(written), "\n|"), "the head of a table and one line")
	header, _, _ := strings.Cut(out.String(), "\n")
	assert.True(t, strings.HasPrefix(string(written), header), "of the same run")

	_, err = report(&out, io.Discard, options{pattern: "no such line"})
	assert.ErrorContains(t, err, `"no such line"`)
	_, err = report(&out, io.Discard, options{pattern: "("})
	assert.Error(t, err)
}
