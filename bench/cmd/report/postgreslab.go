package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// A postgresLab times limiters that keep their state in PostgreSQL. All of these limiters use one
// server, which the lab starts when a line of the report first needs it.
type postgresLab struct {
	server  *bench.PostgresServer // nil until the method startPostgres of lab is called
	samples map[bench.PostgresWork]postgresSamples
}

// postgresSamples maps the name of each subject to its samples, one for each round.
type postgresSamples map[string][]postgresSample

// A postgresSample is a sample of one round, with the sizes that the subject had after the last round.
type postgresSample struct {
	bench.PostgresSample
	bench.PostgresSizes
}

// startPostgres starts the PostgreSQL server, unless it is already running.
func (l *lab) startPostgres() (err error) {
	if l.postgres.server == nil {
		l.postgres.server, err = serve(&l.servers, bench.StartPostgres)
	}
	return err
}

// postgresWork times the limiters in PostgreSQL under the workload w, one after the other in each
// round. It keeps the samples, so the same workload is timed only once, even if several lines need it.
func (l *lab) postgresWork(w bench.PostgresWork) (postgresSamples, error) {
	if samples := l.postgres.samples[w]; samples != nil {
		return samples, nil
	}
	if err := l.startPostgres(); err != nil {
		return nil, err
	}
	l.say("PostgreSQL: " + w.String())
	ctx := context.Background()
	specs := bench.PostgresSpecs()
	var runs []*bench.PostgresRun
	defer func() {
		for _, run := range runs {
			run.Close()
		}
	}()
	for _, s := range specs {
		run, err := bench.NewPostgresRun(ctx, l.postgres.server, s, w)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	samples := make(postgresSamples)
	err := inTurns(l.rounds, len(runs), func(i int) error {
		// As in Redis, calls that are not timed come first.
		if _, err := runs[i].Time(ctx, l.postgresTurn/4); err != nil {
			return err
		}
		got, err := runs[i].Time(ctx, l.postgresTurn)
		samples[specs[i].Name] = append(samples[specs[i].Name], postgresSample{PostgresSample: got})
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, run := range runs {
		sizes, err := run.Sizes(ctx)
		if err != nil {
			return nil, err
		}
		for round := range samples[specs[i].Name] {
			samples[specs[i].Name][round].PostgresSizes = sizes
		}
	}
	l.postgres.samples[w] = samples
	return samples, nil
}

// table returns the figures of all subjects in PostgreSQL as a table, with one row for each subject
// under each workload.
func (l *postgresLab) table() [][]string {
	rows := [][]string{{
		"in PostgreSQL, median", "subject", "decisions/s", "latency", "99 of 100 within", "shares of processes",
		"bytes of WAL", "updates in place", "bytes per key",
	}}
	works := make([]bench.PostgresWork, 0, len(l.samples))
	for w := range l.samples {
		works = append(works, w)
	}
	slices.SortFunc(works, func(a, b bench.PostgresWork) int {
		return cmp.Or(a.Processes-b.Processes, a.Callers-b.Callers, a.Keys-b.Keys, cmp.Compare(a.String(), b.String()))
	})
	for _, w := range works {
		for _, s := range bench.PostgresSpecs() {
			row := []string{w.String(), s.Name}
			for _, f := range []shown[postgresSample]{
				postgresPerSecond, postgresLatency, postgresP99, postgresShares, postgresLog, postgresInPlace, postgresBytes,
			} {
				row = append(row, f.write(f.of(l.samples[w][s.Name])))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// The figures of a sample in PostgreSQL.
var (
	postgresPerSecond = shown[postgresSample]{func(s postgresSample) float64 { return s.PerSecond }, perSec, true}
	postgresLatency   = shown[postgresSample]{func(s postgresSample) float64 { return float64(s.Latency) }, micros, false}
	postgresP99       = shown[postgresSample]{func(s postgresSample) float64 { return float64(s.P99) }, micros, false}
	postgresShares    = shown[postgresSample]{func(s postgresSample) float64 { return s.Share }, oneTo, false}
	postgresLog       = shown[postgresSample]{func(s postgresSample) float64 { return s.Log }, whole, false}
	postgresInPlace   = shown[postgresSample]{func(s postgresSample) float64 { return s.InPlace }, tenths, true}
	postgresBytes     = shown[postgresSample]{func(s postgresSample) float64 { return s.Key }, whole, false}
)

// oneTo formats the ratio of the largest to the smallest share, such as 1:1.25.
func oneTo(ratio float64) string { return fmt.Sprintf("1:%.2f", ratio) }

// whole formats n without a fraction.
func whole(n float64) string { return fmt.Sprintf("%.0f", n) }

// tenths formats a share between 0 and 1 in percent, with one digit after the point.
func tenths(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// far is how much longer each round trip takes in the line about a server that is not near.
const far = time.Millisecond
