package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/bench"
)

var update = flag.Bool("update", false, "write testdata/report.md")

// TestReportIsRendered renders rows of every shape and compares the report with testdata/report.md.
func TestReportIsRendered(t *testing.T) {
	at := func(group, headline, work string, r reading) row {
		return row{line: line{work: work, group: group, headline: headline}, reading: r}
	}
	rows := []row{
		at("One limiter", "One limiter decides", "TokenBucket.Allow, one key, serial", reading{
			50, "50.0 ns", "49.0 ns", ratio{1.25, "1.25 × floor (40.0 ns)"}, ratio{0.5, "0.50 × throttled (100 ns)"},
		}),
		at("One limiter", "", "SlidingWindowLog.Allow, one key, serial", reading{
			90, "90.0 ns; 5 % allowed", "80.0 ns", ratio{2.25, "2.25 × floor (40.0 ns)"}, ratio{},
		}),
		at("Memory", "Memory of a key", "Bytes per key, all in", reading{value: 64.4, measured: "64.4; xtime 226"}),
		at("Redis", "", "Redis: TokenBucket.Take, one hot key, 64 callers", reading{measured: "not measured: no redis-server"}),
		at("PostgreSQL", "", "PostgreSQL: TokenBucket.Take, one hot key, 64 callers", reading{measured: "not measured: no PostgreSQL"}),
	}
	rows[3].missing, rows[4].missing = true, true
	all := bench.Workload{Keys: 1, Outcome: bench.Allowed, Parallel: true}
	l := newLab(quick, io.Discard)
	l.order = []cell{{"floor", one}, {"tokenbucket", one}, {"tokenbucket", all}}
	l.samples[l.order[0]] = []float64{48}
	l.samples[l.order[1]] = []float64{50}
	l.samples[l.order[2]] = []float64{123.4}

	var out bytes.Buffer
	writeOpening(&out, rows, 15)
	writePromises(&out, check(rows, false))
	writeMeasurements(&out, rows)
	writeSamples(&out, l)
	writeRedis(&out, &l.redis)
	writeRedis(&out, &sampled(bench.RedisWork{Keys: 1, Callers: 64}).redis)
	writePostgres(&out, &sampledInPostgres(bench.PostgresWork{Keys: 1, Callers: 21, Processes: 3}).postgres)
	got := regexp.MustCompile(` v\d+\.\d+\.\d+`).ReplaceAllString(out.String(), " v1.0.0") // of the peers
	golden := filepath.Join("testdata", "report.md")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

// The opening has ten rows, in the order of the report.
func TestOpening(t *testing.T) {
	for _, s := range []sizes{full, quick} {
		titles := 0
		for _, l := range lines(s) {
			if l.headline != "" {
				titles++
			}
		}
		assert.Equal(t, 10, titles)
	}
}

func TestHeaderSaysWhereAndHow(t *testing.T) {
	var out bytes.Buffer
	writeHeader(&out, []string{"-lines", "hot", "-lines=it's|hot"}, time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	assert.Contains(t, out.String(), " · 2026-01-02 · `go run ./bench/cmd/report -lines hot '-lines=it'\\''s|hot'`")
	assert.Contains(t, out.String(), " cores, ")
	assert.Contains(t, out.String(), " · go")
}
