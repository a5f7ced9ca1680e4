package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/bench"
	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

// sampledInPostgres returns a lab that has done w, in three rounds. The second was twice as slow, and the third four times.
func sampledInPostgres(w bench.PostgresWork) *lab {
	l := newLab(quick, io.Discard)
	samples := make(postgresSamples)
	for name, speed := range map[string]float64{"limiter": 4, "transaction": 1, "upsert": 2} {
		for _, slow := range []float64{1, 2, 4} {
			cost := time.Duration(slow / speed * 400e3)
			samples[name] = append(samples[name], postgresSample{
				bench.PostgresSample{PerSecond: 1000 * speed / slow, Latency: cost, P99: 2 * cost, Share: speed * slow / 4, Log: 100 * speed},
				bench.PostgresSizes{Key: 50 * speed, InPlace: speed / 4},
			})
		}
	}
	l.postgres.samples[w] = samples
	return l
}

func TestPostgresRatiosAreTakenWithinRounds(t *testing.T) {
	w := bench.PostgresWork{Keys: 1, Callers: 1, Processes: 1}
	l := sampledInPostgres(w)
	samples := l.postgres.samples[w]
	samples["transaction"][1].PerSecond /= 10 // a pause of the machine in one round changes no median of ratios

	for _, tt := range []struct {
		f    shown[postgresSample]
		want reading
	}{
		{postgresPerSecond, reading{2000, "2k/s", "4k/s", ratio{4, "4.00 × transaction (0.25k/s)"}, ratio{2, "2.00 × upsert (1k/s)"}}},
		{postgresLatency, reading{200e3, "200 µs", "100 µs", ratio{0.25, "0.25 × transaction (800 µs)"}, ratio{0.5, "0.50 × upsert (400 µs)"}}},
		{postgresP99, reading{400e3, "400 µs", "200 µs", ratio{0.25, "0.25 × transaction (1.6 ms)"}, ratio{0.5, "0.50 × upsert (800 µs)"}}},
		{postgresLog, reading{400, "400", "400", ratio{4, "4.00 × transaction (100)"}, ratio{2, "2.00 × upsert (200)"}}},
		{postgresBytes, reading{200, "200", "200", ratio{4, "4.00 × transaction (50)"}, ratio{2, "2.00 × upsert (100)"}}},
	} {
		got, err := inPostgres("work", w, tt.f).read(l)
		require.NoError(t, err)
		assert.Equal(t, tt.want, got)
	}
	got, err := sideBySide("work", w, postgresInPlace).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{value: 1, measured: "100.0 %; transaction 25.0 %, upsert 50.0 %", best: "100.0 %"}, got)
	got, err = sideBySide("work", w, postgresShares).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{value: 2, measured: "1:2.00; transaction 1:0.50, upsert 1:1.00", best: "1:1.00"}, got)
	assert.Nil(t, l.postgres.server, "what was timed needs no server")
}

// The rows are sorted by processes, callers and keys, whatever the order in which they were timed.
func TestPostgresTable(t *testing.T) {
	lone := bench.PostgresWork{Keys: 1, Callers: 1, Processes: 1}
	l := sampledInPostgres(lone)
	denied, many, shared := lone, lone, lone
	denied.Denied, many.Keys, shared.Processes = true, 10, 3
	for _, w := range []bench.PostgresWork{shared, many, denied} {
		l.postgres.samples[w] = l.postgres.samples[lone]
	}
	var works []string
	for _, row := range l.postgres.table()[1:] {
		works = append(works, row[0]+" "+row[1])
	}
	assert.Equal(t, []string{
		"keys=1/callers=1/processes=1 limiter", "keys=1/callers=1/processes=1 transaction", "keys=1/callers=1/processes=1 upsert",
		"keys=1/callers=1/processes=1/denied limiter", "keys=1/callers=1/processes=1/denied transaction",
		"keys=1/callers=1/processes=1/denied upsert",
		"keys=10/callers=1/processes=1 limiter", "keys=10/callers=1/processes=1 transaction", "keys=10/callers=1/processes=1 upsert",
		"keys=1/callers=1/processes=3 limiter", "keys=1/callers=1/processes=3 transaction", "keys=1/callers=1/processes=3 upsert",
	}, works)

	var out bytes.Buffer
	writePostgres(&out, new(postgresLab))
	assert.Empty(t, out.String())
}

// withoutPostgres hides the PostgreSQL of the machine from a test.
func withoutPostgres(t *testing.T) {
	folders := pgserver.Folders
	t.Cleanup(func() { pgserver.Folders = folders })
	pgserver.Folders = filepath.Join(t.TempDir(), "*")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RATELIMIT_REQUIRE_POSTGRES", "")
}

// Without PostgreSQL, what needs it is shown as not measured, unless it has to be there.
func TestReportWithoutPostgres(t *testing.T) {
	withoutPostgres(t)
	var out, progress bytes.Buffer
	kept, err := report(&out, &progress, options{pattern: "^PostgreSQL: "})
	require.NoError(t, err)
	assert.True(t, kept)
	n := len(postgresLines(full))
	assert.Equal(t, n, strings.Count(out.String(), "| not measured: no PostgreSQL |  |  |  |"))
	assert.NotContains(t, out.String(), "Everything")
	assert.Contains(t, progress.String(), bench.ErrNoPostgres.Error())

	t.Setenv("RATELIMIT_REQUIRE_POSTGRES", "1")
	_, err = report(&out, &progress, options{pattern: "^PostgreSQL: "})
	assert.ErrorContains(t, err, "there is no initdb")
}

// A report that has no line about PostgreSQL starts no server. One that has ends it.
func TestPostgresIsStartedForItsLines(t *testing.T) {
	pgserver.Program(t, "postgres")
	l := newLab(quick, io.Discard)
	l.rounds, l.postgresTurn = 1, time.Millisecond
	_, err := take(l, []line{collection("collection", 10)})
	require.NoError(t, err)
	assert.Nil(t, l.postgres.server)

	w := bench.PostgresWork{Keys: 1, Callers: 1, Processes: 1}
	table := []line{inPostgres("first", w, postgresLatency), sideBySide("second", w, postgresInPlace)}
	_, err = take(l, table)
	require.NoError(t, err)
	server := l.postgres.server
	assert.NotNil(t, server)
	assert.Len(t, l.postgres.samples[w]["limiter"], 1, "the second line needs no further calls")
	require.NoError(t, l.startPostgres())
	assert.Same(t, server, l.postgres.server, "all lines use one server")
	l.servers.close()
	_, err = bench.NewPostgresRun(t.Context(), server, bench.PostgresSpecs()[0], w)
	assert.Error(t, err, "the server has ended")
}
