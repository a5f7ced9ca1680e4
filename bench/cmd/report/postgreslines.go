package main

import (
	"fmt"

	"github.com/ratelimit-go/ratelimit/bench"
)

// These are names of subjects in bench.PostgresSpecs. The report divides this module's figures by the
// figures of two ways to count that need no library.
const (
	postgresMine = "limiter"     // this module's limiter with a store
	postgresBase = "transaction" // BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT
	postgresPeer = "upsert"      // a single statement that counts
)

// loneKeys is the number of keys in the workloads of a single caller in PostgreSQL.
const loneKeys = 100

// postgresLines returns the lines of the report that need a PostgreSQL server.
func postgresLines(s sizes) []line {
	var (
		lone  = bench.PostgresWork{Keys: loneKeys, Callers: 1, Processes: 1}
		hot   = bench.PostgresWork{Keys: 1, Callers: manyCallers, Processes: 1}
		wide  = bench.PostgresWork{Keys: s.serverKeys, Callers: manyCallers, Processes: 1}
		three = bench.PostgresWork{Keys: 1, Callers: 21, Processes: 3}
		eight = bench.PostgresWork{Keys: 1, Callers: 8, Processes: 8}
		keys  = bench.Count(s.serverKeys) + " keys"
		take  = "PostgreSQL: TokenBucket.Take, "
	)
	distant, denied := lone, lone
	distant.Trip = far
	denied.Denied = true
	return []line{
		inPostgres(take+"100 keys, one caller", lone, postgresLatency),
		inPostgres(take+"100 keys, one caller, round trips 1 ms longer", distant, postgresLatency),
		inPostgres(take+"one hot key, 64 callers", hot, postgresPerSecond),
		inPostgres(take+keys+", uniform, 64 callers", wide, postgresPerSecond),
		inPostgres(take+"one hot key, 3 processes of 21 callers", three, postgresPerSecond),
		sideBySide("PostgreSQL: shares of 3 processes of 21 callers, one hot key", three, postgresShares),
		inPostgres(take+"one hot key, 8 processes of 8 callers", eight, postgresPerSecond),
		sideBySide("PostgreSQL: shares of 8 processes of 8 callers, one hot key", eight, postgresShares),
		inPostgres("PostgreSQL: bytes of WAL for a grant, 100 keys, one caller", lone, postgresLog),
		inPostgres("PostgreSQL: bytes of WAL for a denial, 100 keys, one caller, nothing cached", denied, postgresLog),
		sideBySide("PostgreSQL: updates in place (HOT), "+keys+", uniform, 64 callers", wide, postgresInPlace),
		inPostgres("PostgreSQL: bytes per key with its index, "+keys, wide, postgresBytes),
	}
}

// inPostgres returns a line of the report that compares this module's limiter with a transaction of
// four statements and with a single statement. The figure f of all three is measured under the
// workload w.
func inPostgres(work string, w bench.PostgresWork, f shown[postgresSample]) line {
	return line{work: work, read: func(l *lab) (reading, error) {
		samples, err := l.postgresWork(w)
		if err != nil {
			return reading{}, err
		}
		mine := samples[postgresMine]
		to := func(name string) ratio {
			return newRatio(f.ratio(mine, samples[name]), name, f.write(f.of(samples[name])))
		}
		return reading{
			value:    f.of(mine),
			measured: f.write(f.of(mine)),
			best:     f.best(mine),
			base:     to(postgresBase),
			peer:     to(postgresPeer),
		}, nil
	}}
}

// sideBySide returns a line of the report that shows the figure f of all subjects under the workload
// w. It divides nothing, because a ratio of shares says little.
func sideBySide(work string, w bench.PostgresWork, f shown[postgresSample]) line {
	return line{work: work, read: func(l *lab) (reading, error) {
		samples, err := l.postgresWork(w)
		if err != nil {
			return reading{}, err
		}
		of := func(name string) string { return f.write(f.of(samples[name])) }
		return reading{
			value: f.of(samples[postgresMine]),
			measured: fmt.Sprintf("%s; %s %s, %s %s", of(postgresMine),
				postgresBase, of(postgresBase), postgresPeer, of(postgresPeer)),
			best: f.best(samples[postgresMine]),
		}, nil
	}}
}
