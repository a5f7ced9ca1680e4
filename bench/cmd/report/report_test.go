package main

import (
	"bytes"
	"errors"
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
	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

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

	got, err := overFloor("work", "tokenbucket", w).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{22, "22.0 ns", "11.0 ns", ratio{1.1, "1.10 × floor (20.0 ns)"}, ratio{}}, got)
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
	l.samples[cell{"floor", w}] = []float64{40}

	got, err := bucketLine("work", w).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{
		50, "50.0 ns", "50.0 ns", ratio{1.25, "1.25 × floor (40.0 ns)"}, ratio{0.5, "0.50 × throttled (100 ns)"},
	}, got)
	assert.Contains(t, bucketLine("work", w).cells, cell{"uber", w}, "it is timed all the same")
}

func TestMiddlewareIsComparedWithTheBareHandler(t *testing.T) {
	l := newLab(quick, io.Discard)
	for _, s := range bench.Specs() {
		l.samples[cell{s.Name, one}] = []float64{800}
	}
	l.samples[cell{"httplimit", one}] = []float64{600}
	l.samples[cell{"http-bare", one}] = []float64{10}

	got, err := middleware("work", "httplimit", "http-bare", bench.PeerHTTP).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{
		600, "600 ns", "600 ns", ratio{590, "590 ns more than bare"}, ratio{0.75, "0.75 × http-httprate (800 ns)"},
	}, got)
	got, err = extra("work", "httplimit", "http-bare").read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{value: 590, measured: "590 ns more than 10.0 ns"}, got)
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
	assert.Equal(t, reading{
		value:    4,
		measured: "×4.0 (50.0 ns → 200 ns); a bare map ×8.0 (20.0 ns → 160 ns)",
		base:     ratio{value: 0.5},
	}, got)
}

func TestBeyond(t *testing.T) {
	const ms = time.Millisecond
	assert.Equal(t, reading{
		value:    float64(ms),
		measured: "1 ms beyond an empty loop; 3 ms with, 2 ms without; 5 passes",
	}, beyond(3*ms, 2*ms, 5))
	assert.Zero(t, beyond(ms, 2*ms, 5).value, "never less than the empty loop")
}

func TestSlowestOf(t *testing.T) {
	for _, tt := range []struct {
		passes [][]time.Duration
		want   time.Duration
		why    string
	}{
		{[][]time.Duration{{1, 9, 1, 1}}, 9, "one pass hides nothing"},
		{[][]time.Duration{{1, 9, 1, 1}, {1, 9, 1, 1}}, 9, "a pause of the work comes in every pass"},
		{[][]time.Duration{{1, 9, 1, 1}, {1, 1, 9, 1}}, 9, "even if it comes a little earlier or later"},
		{[][]time.Duration{{9, 1, 1, 1}, {1, 1, 1, 9}}, 1, "a pause of the machine comes anywhere"},
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

// A pass calls for every key once, whatever the pieces.
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

// A family of lines is found by a word, in any case, and no two lines have the same name.
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
		"windows": 11, "mixed": 2, "tiers": 2, "shadow": 2, "observer": 2, "long keys": 1,
		"slidingwindowcounter": 6, "redis": 14, "postgres": 12, "bytes|collection|allocations": 9, "httplimit": 7, "can be canceled": 3,
	} {
		assert.Equal(t, want, count(word), word)
	}
	seen := make(map[string]bool)
	for _, l := range table {
		assert.False(t, seen[l.work], l.work)
		assert.NotEmpty(t, l.group, l.work)
		seen[l.work] = true
	}
}

// The share is shown if it is neither none nor all.
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
	assert.NoError(t, l.checkShares(c.work, []bench.Spec{spec}), "a quick report does not check it")
}

// Every line of the table finds its figure, on a scale that takes no time.
func TestEveryLineIsTaken(t *testing.T) {
	tiny := sizes{
		few: 10, many: 100, most: 200, rounds: 2, batch: 100 * time.Microsecond, runs: 1,
		serverKeys: 20, redisTurn: 100 * time.Microsecond, postgresTurn: 100 * time.Microsecond,
	}
	table := lines(tiny)
	l := newLab(tiny, io.Discard)
	defer l.servers.close()
	rows, err := take(l, table)
	require.NoError(t, err)
	require.Len(t, rows, len(table))
	_, noRedis := exec.LookPath("redis-server")
	_, noPostgres := pgserver.Find("postgres")
	for i, r := range rows {
		assert.Equal(t, table[i].work, r.work)
		assert.NotEmpty(t, r.measured, r.work)
		assert.NotContains(t, r.measured+r.best+r.base.text+r.peer.text, "NaN", r.work)
		missing := noRedis != nil && r.group == "Redis" || noPostgres != nil && r.group == "PostgreSQL"
		assert.Equal(t, missing, r.missing, r.work)
	}
	for _, p := range promises() {
		for _, r := range rows {
			if !r.missing && p.lines.MatchString(r.work) {
				assert.NotContains(t, p.of.written(r.reading), "NaN", p.says)
				if p.of != ofValue {
					assert.NotZero(t, p.of.in(r.reading), "%s: %s has no such ratio", p.says, r.work)
				}
			}
		}
	}
}

func TestReportSelectsLines(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page")
	measurements := filepath.Join(t.TempDir(), "measurements")
	require.NoError(t, os.WriteFile(page, []byte("before\n<!-- report -->\nold\n<!-- end of report -->\nafter\n"), 0o644))
	require.NoError(t, os.WriteFile(measurements, []byte("<!-- measurements -->\n<!-- end of measurements -->\n"), 0o644))
	var out bytes.Buffer
	kept, err := report(&out, io.Discard, options{quick: true, pattern: "^extra time|^bytes", page: page, measurements: measurements})
	require.NoError(t, err)
	assert.True(t, kept)
	text := out.String()
	assert.Equal(t, 1, strings.Count(text, "| holds |"), "bytes are checked")
	assert.Equal(t, 2, strings.Count(text, "| not checked |"), "times are not, nor bytes of few keys among many rules")

	written, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, _ := strings.Cut(text, "\n## Measurements")
	assert.Equal(t, "before\n<!-- report -->\n\n"+strings.TrimSpace(head)+"\n\n<!-- end of report -->\nafter\n", string(written))
	written, err = os.ReadFile(measurements)
	require.NoError(t, err)
	rest = "## Measurements" + rest
	assert.Equal(t, "<!-- measurements -->\n\n"+strings.TrimSpace(rest)+"\n\n<!-- end of measurements -->\n", string(written))

	_, err = report(&out, io.Discard, options{pattern: "no such line"})
	assert.ErrorContains(t, err, `"no such line"`)
	_, err = report(&out, io.Discard, options{pattern: "("})
	assert.Error(t, err)
}

func TestExitCode(t *testing.T) {
	assert.Equal(t, 0, exitCode(true, nil))
	assert.Equal(t, 1, exitCode(allHold(check(rowsOf(2, 30, 5, 0), false)), nil), "a promise is broken")
	assert.Equal(t, 2, exitCode(true, errors.New("no figure")))
	assert.Equal(t, 2, exitCode(false, errors.New("no figure")))
}

// A file without markers is reported before anything is measured, and stays as it is.
func TestReportNeedsMarkers(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page")
	require.NoError(t, os.WriteFile(page, []byte("no markers"), 0o644))
	var out, progress bytes.Buffer
	_, err := report(&out, &progress, options{page: page})
	assert.EqualError(t, err, page+`: has no lines "<!-- report -->" and "<!-- end of report -->"`)
	_, err = report(&out, &progress, options{measurements: page})
	assert.EqualError(t, err, page+`: has no lines "<!-- measurements -->" and "<!-- end of measurements -->"`)
	_, err = report(&out, &progress, options{page: page + "s"})
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Empty(t, out.String()+progress.String())
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "no markers", string(text))
}

// The published pages have the markers between which the command writes.
func TestFiguresPageHasMarkers(t *testing.T) {
	assert.NoError(t, hasMarkers("../../../docs/figures.md", "report"))
	assert.NoError(t, hasMarkers("../../MEASUREMENTS.md", "measurements"))
}
