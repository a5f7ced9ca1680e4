package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const olderReport = "CPU, 2 cores, at once 1.99 × as fast as one · go1.26.8\n" + `
| work | to reach | measured median | ratio | verdict |
|---|---|---|---|---|
| Allow, serial | ≤ 1.15 × floor | 54.3 ns; floor 47.0 ns | 1.16 | MISSES |
| Allow, serial | ≤ 0.85 × fastest peer | 54.3 ns; sethvargo 85.6 ns | 0.63 | meets |
| Allocations | 0 | 0 |  | meets |
| Bytes per key | ≤ 72 | 64.5; xtime 226 |  | not judged |
| Growth | factor ≤ a bare map's | 69.8 ns → 346 ns | ×5.0; map ×19.5 | meets |
| Redis: Take | ≥ 4 × redis_rate | no redis-server on this machine |  | not measured |

The lines that miss:

- Allow, serial: 1.16, to reach ≤ 1.15 × floor

| workload | nanoseconds per ask, median |
|---|---|
| keys=1 | floor 47.0, tokenbucket 54.3 |
`

const benchmark = `goos: linux
BenchmarkAllow/algo=floor/cpus=1-2         	25263157	        47.25 ns/op	       0 B/op	       0 allocs/op
BenchmarkRedis/callers=64                  	     100	      1000 decisions/s	   61234 ns/op
BenchmarkAllow/algo=log
BenchmarkEmpty 0 ns/op
PASS
`

const newReport = `CPU, 2 cores, at once 1.99 × as fast as one · go1.26.8

| what | median | ratio | to the fastest peer |
|---|---|---|---|
| One limiter decides | 54.3 ns | 1.16 × floor (47.0 ns) | 0.63 × sethvargo (85.6 ns) |

| promise | bound | worst figure |  |
|---|---|---|---|
| Allocations | 0 | 0: Allow | holds |

| work | median | best | ratio | to the fastest peer |
|---|---|---|---|---|
| Allow, serial | 54.3 ns | 50.1 ns | 1.16 × floor (47.0 ns) | 0.63 × sethvargo (85.6 ns) |
| Allocations | 0 |  |  |  |
| httplimit | 796 ns | 700 ns | 781 ns more than bare | 1.11 × http-throttled (704 ns) |
| httplimit, over the bare one | 781 ns more than 14.6 ns |  |  |  |
| Growth | ×5.0 (69.8 ns → 346 ns); a bare map ×19.5 (22.3 ns → 435 ns) |  |  |  |
| Redis: Take | 264k/s | 270k/s | 4.84 × redis_rate (51.9k/s) | 3.72 × ulule (70.9k/s) |
| Redis: bytes | not measured: no redis-server |  |  |  |

| workload | nanoseconds per call, median |
|---|---|
| keys=1 | floor 47.0, tokenbucket 54.3 |
`

func TestParse(t *testing.T) {
	assert.Equal(t, []line{
		{"Allow, serial: floor", 1.16},
		{"Allow, serial: fastest peer", 0.63},
		{"Allocations", 0},
		{"Bytes per key", 64.5},
		{"Growth", 5},
	}, parse(olderReport), "of the older layout")
	assert.Equal(t, []line{
		{"Allow, serial: floor", 1.16},
		{"Allow, serial: fastest peer", 0.63},
		{"Allocations", 0},
		{"httplimit: fastest peer", 1.11},
		{"httplimit, over the bare one", 781},
		{"Growth", 5},
		{"Redis: Take: redis_rate", 4.84},
		{"Redis: Take: fastest peer", 3.72},
	}, parse(newReport))
	assert.Equal(t, []line{
		{"BenchmarkAllow/algo=floor/cpus=1-2", 47.25},
		{"BenchmarkRedis/callers=64", 61234},
	}, parse(benchmark))
	assert.Empty(t, parse("no figures\n| a | b | c | d | e |\n"))
}

func TestMedian(t *testing.T) {
	xs := []float64{9, 1, 5}
	assert.Equal(t, 5.0, median(xs))
	assert.Equal(t, []float64{9, 1, 5}, xs, "the figures stay in the order of the rounds")
	assert.Equal(t, 3.0, median([]float64{1, 5}))
}

// A machine that becomes twice as slow half way through does not change the ratio,
// and the programs take turns at being first.
func TestAlternate(t *testing.T) {
	var ran []string
	play := func(name string, figures ...float64) program {
		return func() ([]byte, error) {
			ran = append(ran, name)
			next := figures[0]
			figures = figures[1:]
			return fmt.Appendf(nil, "BenchmarkA 1 %v ns/op\n", next), nil
		}
	}
	var out bytes.Buffer
	old, changed := play("old", 10, 12, 24), play("new", 5, 6, 12)
	require.NoError(t, alternate(&out, io.Discard, [2]program{old, changed}, 3))
	assert.Equal(t, []string{"old", "new", "new", "old", "old", "new"}, ran)
	assert.Equal(t, strings.Join([]string{
		"| line | old: median (least to most) | new | new / old |",
		"|---|---|---|---|",
		"| BenchmarkA | 12 (10 to 24) | 6 (5 to 12) | 0.500 |",
		"",
	}, "\n"), out.String())
}

// A line that only one of the programs has is shown, and so is one that was zero.
func TestLinesWithoutAPartner(t *testing.T) {
	prints := func(text string) program { return func() ([]byte, error) { return []byte(text), nil } }
	var out bytes.Buffer
	require.NoError(t, alternate(&out, io.Discard, [2]program{
		prints("BenchmarkA 1 0 ns/op\nBenchmarkGone 1 2 ns/op\n"), prints("BenchmarkA 1 1 ns/op\nBenchmarkAdded 1 3 ns/op\n"),
	}, 1))
	assert.Contains(t, out.String(), "| BenchmarkA | 0 (0 to 0) | 1 (1 to 1) |  |\n")
	assert.Contains(t, out.String(), "| BenchmarkGone | 2 (2 to 2) | none |  |\n")
	assert.Contains(t, out.String(), "| BenchmarkAdded | none | 3 (3 to 3) |  |\n")
}

func TestAlternateFails(t *testing.T) {
	silent := func() ([]byte, error) { return []byte("no figures\n"), nil }
	broken := func() ([]byte, error) { return nil, errors.New("broken") }
	prints := func() ([]byte, error) { return []byte(benchmark), nil }
	assert.EqualError(t, alternate(io.Discard, io.Discard, [2]program{prints, silent}, 1), "the new program printed no figures")
	assert.EqualError(t, alternate(io.Discard, io.Discard, [2]program{broken, prints}, 1), "broken")
}

// A report that breaks a promise exits with 1 and has printed its figures all the same.
func TestRun(t *testing.T) {
	out, err := run(t.Context(), "/bin/sh", []string{"-c", "echo figures; exit 1"})
	require.NoError(t, err)
	assert.Equal(t, "figures\n", string(out))
	_, err = run(t.Context(), "/bin/sh", []string{"-c", "exit 2"})
	assert.EqualError(t, err, "/bin/sh: exit status 2")
	_, err = run(t.Context(), "/no/such/program", nil)
	assert.ErrorContains(t, err, "/no/such/program")
}
