// Command postgres measures pgstore, the store for PostgreSQL, on the server that the environment variable POSTGRES_URL names. It
// compares pgstore with the simplest correct transaction (BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT) and with a single statement that
// only counts. With all three, a commit does not wait for the disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

func main() {
	long := flag.Duration("time", 5*time.Second, "how long each measurement takes")
	only := flag.String("scene", "", "measure only the scenes whose name contains this text")
	flag.Parse()
	url := os.Getenv("POSTGRES_URL")
	if url == "" {
		url = "postgres://postgres@127.0.0.1:5432/postgres"
	}
	if err := run(context.Background(), os.Stdout, url, *only, *long); err != nil {
		log.Fatal(err)
	}
}

// A taker is one of the ways to count in PostgreSQL that are compared. Its method take takes one unit of the key.
type taker interface {
	take(ctx context.Context, key string) error
	close()
}

// The type named "plain" adds 1 to a counter in a transaction of four statements. Each statement is a round trip to the server.
type plain struct{ pool *pgxpool.Pool }

func (p *plain) take(ctx context.Context, key string) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after Commit, Rollback does nothing
	var n int
	err = tx.QueryRow(ctx, "select n from bench_plain where key = $1 for update", key).Scan(&n)
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = tx.Exec(ctx, "insert into bench_plain values ($1, 1) on conflict (key) do update set n = bench_plain.n + 1", key)
	} else if err == nil {
		_, err = tx.Exec(ctx, "update bench_plain set n = $2 where key = $1", key, n+1)
	}
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (p *plain) close() { p.pool.Close() }

// The type upsert adds 1 to a counter with a single statement. Of all algorithms, only a fixed window can be made in this way.
type upsert struct{ pool *pgxpool.Pool }

func (u *upsert) take(ctx context.Context, key string) error {
	var n int
	return u.pool.QueryRow(ctx, `insert into bench_plain values ($1, 1)
		on conflict (key) do update set n = bench_plain.n + 1 returning n`, key).Scan(&n)
}

func (u *upsert) close() { u.pool.Close() }

// The type named "stored" takes units from a token bucket in pgstore, this module's store for PostgreSQL.
type stored struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
}

func (s *stored) take(ctx context.Context, key string) error {
	results, err := s.store.Take(ctx, []ratelimit.Ask{{
		Rule: "bench", Key: key, Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerHour(1 << 30), N: 1,
	}})
	if err == nil && !results[0].Allowed {
		err = errors.New("denied")
	}
	return err
}

func (s *stored) close() {
	s.store.Close()
	s.pool.Close()
}

// The variable kinds lists the takers that are compared. The function make returns a new taker with its own pool of connections.
var kinds = []struct {
	name string
	make func(ctx context.Context, url string, trip time.Duration) (taker, error)
}{
	{"plain", func(ctx context.Context, url string, trip time.Duration) (taker, error) {
		pool, err := poolOf(ctx, url, 16, trip)
		return &plain{pool}, err
	}},
	{"upsert", func(ctx context.Context, url string, trip time.Duration) (taker, error) {
		pool, err := poolOf(ctx, url, 16, trip)
		return &upsert{pool}, err
	}},
	{"pgstore", func(ctx context.Context, url string, trip time.Duration) (taker, error) {
		pool, err := poolOf(ctx, url, 4, trip)
		if err != nil {
			return nil, err
		}
		s, err := pgstore.New(ctx, pool, pgstore.WithTable("bench_limits"), pgstore.WithStoreOptions(dbstore.WithTimeout(10*time.Second)))
		return &stored{pool, s}, err
	}},
}

// A slowConn is a connection to a server that is not near: each message to the server, and so each round trip, takes longer by the
// duration trip.
type slowConn struct {
	net.Conn
	trip time.Duration
}

func (c *slowConn) Write(b []byte) (int, error) {
	time.Sleep(c.trip)
	return c.Conn.Write(b)
}

// poolOf returns a pool of n connections. A round trip of each takes longer by the duration trip.
func poolOf(ctx context.Context, url string, n int32, trip time.Duration) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = n
	config.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
	if dial := config.ConnConfig.DialFunc; trip > 0 {
		config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return &slowConn{conn, trip}, err
		}
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// The variable scenes lists the measurements. In each, several callers take units at once, from one or several takers.
var scenes = []struct {
	name      string
	processes int
	callers   int // number of callers (goroutines) in each process
	keys      int
	trip      time.Duration // added to each round trip
	latency   bool          // true: the figure is the median time of a decision; false: decisions a second
}{
	{"one caller, p50", 1, 1, 1000, 0, true},
	{"one caller, 1 ms away, p50", 1, 1, 1000, time.Millisecond, true},
	{"one key, 64 callers", 1, 64, 1, 0, false},
	{"10,000 keys, 64 callers", 1, 64, 10_000, 0, false},
	{"one key, 3 processes of 21", 3, 21, 1, 0, false},
	{"one key, 8 processes of 8", 8, 8, 1, 0, false},
}

func run(ctx context.Context, w io.Writer, url, only string, long time.Duration) error {
	admin, err := poolOf(ctx, url, 1, 0)
	if err != nil {
		return err
	}
	defer admin.Close()
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "scene\tplain\tupsert\tpgstore\tof plain\tof upsert\tp99 of pgstore\tshares\t")
	for _, scene := range scenes {
		if !strings.Contains(scene.name, only) {
			continue
		}
		fmt.Fprintf(out, "%s\t", scene.name)
		var figures []float64
		var last figure
		for _, kind := range kinds {
			if _, err := admin.Exec(ctx, "drop table if exists bench_limits, bench_plain; create table bench_plain (key text primary key, n int) "+
				"with (fillfactor = 70)", pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			var takers []taker
			for range scene.processes {
				t, err := kind.make(ctx, url, scene.trip)
				if err != nil {
					return err
				}
				takers = append(takers, t)
			}
			if last, err = measure(ctx, takers, scene.callers, scene.keys, long); err != nil {
				return fmt.Errorf("%s, %s: %w", scene.name, kind.name, err)
			}
			if scene.latency {
				figures = append(figures, float64(last.p50.Microseconds()))
				fmt.Fprintf(out, "%d us\t", last.p50.Microseconds())
			} else {
				figures = append(figures, last.rate)
				fmt.Fprintf(out, "%.0f/s\t", last.rate)
			}
			for _, t := range takers {
				t.close()
			}
		}
		fmt.Fprintf(out, "%.2f x\t%.2f x\t%v\t%s\t\n", figures[2]/figures[0], figures[2]/figures[1],
			last.p99.Round(10*time.Microsecond), last.shares)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return sizes(ctx, w, admin, url, long)
}

// A figure holds the results of one measurement.
type figure struct {
	rate     float64 // decisions a second
	calls    int     // number of all decisions, also of those that the other fields leave out; see the function measure
	p50, p99 time.Duration
	shares   string // how evenly the processes are served: "1:1.50" if one made 1.5 times as many decisions as another
}

// measure lets the given number of callers of each taker take units, and returns the figures. The callers first
// warm up: they run for a fifth of the given duration. Then they run for the given duration. Only the number of
// calls in the figures includes the warm-up.
func measure(ctx context.Context, takers []taker, callers, keys int, long time.Duration) (f figure, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var times []time.Duration
	shares := make([]int, len(takers))
	warm := time.Now().Add(long / 5)
	end := warm.Add(long)
	for i, t := range takers {
		for c := range callers {
			all.Go(func() {
				var own []time.Duration
				var failed error
				calls := 0
				for n := c * 7919; failed == nil; n++ {
					began := time.Now()
					if began.After(end) {
						break
					}
					failed = t.take(ctx, "key-"+strconv.Itoa(n*31%keys))
					calls++
					if began.After(warm) {
						own = append(own, time.Since(began))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				times, shares[i], f.calls = append(times, own...), shares[i]+len(own), f.calls+calls
				err = errors.Join(err, failed)
			})
		}
	}
	all.Wait()
	switch {
	case err != nil:
		return f, err
	case slices.Min(shares) == 0:
		return f, errors.New("a process made no call in the time that counts")
	}
	slices.Sort(times)
	f.rate, f.p50, f.p99 = float64(len(times))/long.Seconds(), times[len(times)/2], times[len(times)*99/100]
	f.shares = fmt.Sprintf("1:%.2f", float64(slices.Max(shares))/float64(slices.Min(shares)))
	return f, nil
}

// sizes prints how many bytes a key takes in the table of pgstore, how many bytes of WAL (the server's log of changes) a grant writes,
// and what share of the updates PostgreSQL made in place.
func sizes(ctx context.Context, w io.Writer, admin *pgxpool.Pool, url string, long time.Duration) error {
	if _, err := admin.Exec(ctx, "drop table if exists bench_limits"); err != nil {
		return err
	}
	t, err := kinds[2].make(ctx, url, 0)
	if err != nil {
		return err
	}
	defer t.close()
	for i := range 10_000 {
		if err := t.take(ctx, fmt.Sprintf("client-%08d", i)); err != nil {
			return err
		}
	}
	var before, after, size int64
	var hot float64
	const wal = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
	if err := admin.QueryRow(ctx, "select pg_total_relation_size('bench_limits') / 10000").Scan(&size); err != nil {
		return err
	}
	if err := admin.QueryRow(ctx, wal).Scan(&before); err != nil {
		return err
	}
	f, err := measure(ctx, []taker{t}, 1, 1000, long)
	if err != nil {
		return err
	}
	if err := admin.QueryRow(ctx, wal).Scan(&after); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // the server adds updates to its statistics with a delay
	const inPlace = "select n_tup_hot_upd::float8 / n_tup_upd from pg_stat_user_tables where relname = 'bench_limits'"
	if err := admin.QueryRow(ctx, inPlace).Scan(&hot); err != nil {
		return err
	}
	fmt.Fprintln(w, strings.Join([]string{
		fmt.Sprintf("bytes a key, with its index: %d", size),
		fmt.Sprintf("bytes of WAL a grant, one caller: %.0f", float64(after-before)/float64(f.calls)),
		fmt.Sprintf("updates in place: %.1f %%", 100*hot),
	}, "\n"))
	return nil
}
