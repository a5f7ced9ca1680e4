//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/internal/pgserver"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// A postgres is a PostgreSQL server that belongs to a test.
type postgres struct {
	address string // with the name of the database, as the commands print it
	process *os.Process
	pool    *pgxpool.Pool // of the superuser
}

// url returns the address for the given user, with a password that must not be printed.
func (p *postgres) url(user string) string {
	return "postgres://" + user + ":hunter2@" + p.address + "?sslmode=disable"
}

// startPostgres starts a server that ends with the test. Its database has the name shop.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	server := pgserver.Start(t, "fsync=off", "shared_buffers=16MB")
	p := &postgres{address: fmt.Sprintf("127.0.0.1:%d/shop", server.Port), process: server.Process}
	t.Cleanup(func() {
		_ = p.process.Signal(syscall.SIGCONT)
		assert.NoError(t, server.Close())
	})
	conn, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create database shop")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	p.pool, err = pgxpool.New(t.Context(), "postgres://postgres@"+p.address+"?sslmode=disable")
	require.NoError(t, err)
	t.Cleanup(p.pool.Close)
	return p
}

// execute runs a statement as the superuser.
func (p *postgres) execute(t *testing.T, sql string) {
	t.Helper()
	_, err := p.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// rows returns all that the table ratelimit has, but for rows that are swept soon.
func (p *postgres) rows(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	rows, err := p.pool.Query(t.Context(), "select encode(key, 'hex'), encode(value, 'hex') || expires || xmin || ctid"+
		" from ratelimit where expires > now() + '10 min'")
	require.NoError(t, err)
	var key, value string
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error { all[key] = value; return nil })
	require.NoError(t, err)
	return all
}

// limiter makes a limiter with the name shop and the rules of a file, which keeps its state in the server, in the given table.
func (p *postgres) limiter(t *testing.T, config, table string) *ratelimit.RateLimiter {
	t.Helper()
	store, err := pgstore.New(t.Context(), p.pool, pgstore.WithTable(table),
		pgstore.WithStoreOptions(dbstore.WithTimeout(10*time.Second), dbstore.WithDenialCache(0)))
	require.NoError(t, err)
	t.Cleanup(store.Close)
	_, l, err := loadRules(config, ratelimit.WithStore(store), ratelimit.WithName("shop"), ratelimit.WithRequestIDs(time.Hour),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	return l
}

// use makes requests to a limiter with the rules of sharedLimits.
func (p *postgres) use(t *testing.T, table string) *ratelimit.RateLimiter {
	t.Helper()
	require.NoError(t, os.WriteFile("limits.json", []byte(sharedLimits), 0o600))
	l := p.limiter(t, "limits.json", table)
	take := func(req ratelimit.Request) {
		_, err := l.Check(t.Context(), req)
		require.NoError(t, err)
	}
	for i := range 60 {
		if cost := i % 20; cost > 0 {
			take(ratelimit.Request{Client: fmt.Sprintf("client%02d", i), Endpoint: "/search", Cost: cost})
		}
	}
	take(ratelimit.Request{Client: "evil\x1b[2J", Endpoint: "/search", Cost: 100, ID: "with an ID"})
	take(ratelimit.Request{Client: strings.Repeat("long", 30), Endpoint: "/search", Cost: 99})
	take(ratelimit.Request{Client: strings.Repeat("long", 60), Endpoint: "/search", Cost: 98})
	take(ratelimit.Request{IP: "203.0.113.9", Endpoint: "/login", Cost: 5})
	take(ratelimit.Request{IP: "203.0.113.5", Endpoint: "/login", Cost: 4})
	take(ratelimit.Request{Client: "young", Endpoint: "/new", Cost: 9})
	other := `[{"endpoint": "/gone", "algorithm": "TokenBucket", "rate": "9/d"},
  {"name": "/search", "endpoint": "/s", "algorithm": "FixedWindow", "rate": "9/d"}]`
	require.NoError(t, os.WriteFile("other.json", []byte(other), 0o600))
	gone := p.limiter(t, "other.json", table)
	for _, endpoint := range []string{"/gone", "/s"} { // of no rule of the file, and of another algorithm
		_, err := gone.Check(t.Context(), ratelimit.Request{Client: "old", Endpoint: endpoint})
		require.NoError(t, err)
	}
	return l
}

func TestTopOfPostgres(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startPostgres(t)
	p.use(t, "ratelimit")
	p.execute(t, "update ratelimit set value = value || 'x' where position('client19'::bytea in key) > 0")
	p.execute(t, "update ratelimit set expires = now() where position('client18'::bytea in key) > 0")
	p.execute(t, "create role reader login")
	p.execute(t, "grant select on ratelimit to reader")
	p.execute(t, "alter role reader set default_transaction_read_only = on")
	before := p.rows(t)
	got := do(t, "top", p.url("reader"), "-config", "limits.json", "-n", "3", "-count", "10", "-pause", "0s")
	require.Equal(t, exitOK, got.code, got.err)
	// What is left is exact, unless the day ends. The times are not.
	require.Regexp(t, `^`+strings.ReplaceAll(p.address, ".", `\.`)+`, [-0-9]{10} [:0-9]{8} UTC: 61 keys
3 keys belong to no rule of the file: 3 keys of limiter shop
1 key of unknown rules: names above 200 bytes are stored as a hash

shop:/login: SlidingWindowLog 5/d, 2 keys
key +left  of +denied for +as new after
203\.0\.113\.9     0   5 +\S+ +\S+
203\.0\.113\.5     1   5 +- +\S+

shop:/new: FixedWindow 50/d, 1 keys?
key    left  of  denied for +as new after
young     1  50           - +\S+

shop:/search: TokenBucket 100/d, 57 keys
key +left   of +denied for +as new after
evil\\x1b\[2J +0  100 +\S+ +\S+
\S{40}\.\.\. +1  100 +- +\S+
client[35]9 +81  100 +- +\S+

shop:all: SlidingWindowCounter 100000/d, 1 keys?
key    left       of  denied for +as new after
""   99,115  100,000           - +\S+
$`, got.out)
	require.Empty(t, got.err)
	require.Equal(t, before, p.rows(t), "nothing is written")

	got = do(t, "top", "-postgres", p.url("reader"), "-config", "limits.json", "-json", "-n", "1", "-name", "shop")
	require.Equal(t, exitOK, got.code, got.err)
	var out topJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Len(t, out.Rules, 4)
	require.Equal(t, "evil\x1b[2J", out.Rules[2].Top[0].Key)
	require.Len(t, out.Rules[2].Top, 1)
	require.Equal(t, 1, out.Hashed)
	got = do(t, "top", p.url("reader"), "-config", "limits.json", "-name", "elsewhere")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, p.address+" has no key of limiter elsewhere, but 64 keys of limiter shop\n")
}

// TestTopTiersOfPostgres shows clients of tiers by the limit that they have, also in windows and with a warm-up, and units, and what is
// running.
func TestTopTiersOfPostgres(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startPostgres(t)
	require.NoError(t, os.WriteFile("tiers.json", []byte(`{"rules": [
  {"endpoint": "/a", "algorithm": "TokenBucket", "rate": "20/d", "tiers": {"paid": "600/d burst 90", "staff": "unlimited"}},
  {"endpoint": "/b", "algorithm": "SlidingWindowCounter", "rate": "20/d", "tiers": {"paid": "600/d"}},
  {"endpoint": "/c", "algorithm": "TokenBucket", "rate": "20/d", "tiers": {"paid": "600/d"}, "warmup": {"from": 10, "over": "24h"}},
  {"name": "tokens", "endpoint": "/v1", "algorithm": "TokenBucket", "rate": "20000/d", "unit": "tokens"},
  {"name": "at once", "endpoint": "/v1", "algorithm": "InFlight", "rate": "4/24h"}]}`), 0o600))
	l := p.limiter(t, "tiers.json", "limits_of_shop")
	for _, req := range []ratelimit.Request{
		{Client: "bob", Endpoint: "/a", Cost: 20}, {Client: "carol", Endpoint: "/a", Tier: "paid", Cost: 30},
		{Client: "bob", Endpoint: "/b", Cost: 20}, {Client: "carol", Endpoint: "/b", Tier: "paid", Cost: 30},
		{Client: "carol", Endpoint: "/c", Tier: "paid", Cost: 3},
	} {
		res, err := l.Check(t.Context(), req)
		require.NoError(t, err)
		require.True(t, res.Allowed)
	}
	req := ratelimit.Request{Client: "a", Endpoint: "/v1", Costs: []ratelimit.Cost{{Unit: "tokens", N: 1500}}}
	for range 3 {
		held, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		require.True(t, held.Result().Allowed)
	}
	args := []string{"-postgres", p.url("postgres"), "-table", "limits_of_shop", "-config", "tiers.json"}
	got := do(t, append([]string{"top"}, args...)...)
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `UTC: 7 keys

shop:/a: TokenBucket 20/d, 2 keys
key +left  of +denied for +as new after
bob +0 +20 +1h1(2m|1m5\S+) +(1d|23h59m5\S+)
carol +60 +90 +- +1h1(2m|1m5\S+)

shop:/b: SlidingWindowCounter 20/d, 2 keys
key +left +of +denied for +as new after
bob +0 +20 .*
carol +570 +600 .*

shop:/c: TokenBucket 20/d, 1 key
key +left +of .*
carol +7 +600 .*

shop:at once: InFlight 4/d, 1 key
key +left +of .*
a +1 +4 .*
these times are bounds: requests may end earlier

shop:tokens: TokenBucket 20000/d tokens, 1 key
key +left +of .*
a +15,500  20,000 .*
$`, got.out)
	got = do(t, append([]string{"reset", "-name", "shop", "-client", "a", "-endpoint", "/v1"}, args...)...)
	require.Equal(t, call{exitOK, p.address + `: reset 1 key of limiter shop
rule     key  left before     now      of
tokens   a         15,500  20,000  20,000
at once  a              -       -       4
Processes may still deny for 1s.
-: not known here, but reset too; see top
`, ""}, got)
	require.Contains(t, do(t, append([]string{"top"}, args...)...).out, "UTC: 5 keys\n")
}

func TestResetOfPostgres(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startPostgres(t)
	l := p.use(t, "ratelimit")
	args := []string{"reset", "-postgres", p.url("postgres"), "-config", "limits.json", "-name", "shop"}
	before := p.rows(t)
	got := do(t, append(args, "-client", "evil\x1b[2J", "-endpoint", "/search", "-dry-run")...)
	require.Contains(t, got.out, "would reset 1 key of limiter shop\n")
	require.Equal(t, before, p.rows(t), "a dry run writes nothing")
	got = do(t, append(args, "-client", "evil\x1b[2J", "-endpoint", "/search")...)
	require.Equal(t, call{exitOK, p.address + `: reset 1 key of limiter shop
rule     key          left before     now       of
/search  evil\x1b[2J            0     100      100
all      ""                99,115  99,115  100,000
all: not reset, as clients share it; see -rule
Processes may still deny for 1s.
`, ""}, got)
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: "evil\x1b[2J", Endpoint: "/search"})
	require.NoError(t, err)
	require.Equal(t, 100, res.Remaining)

	long := strings.Repeat("long", 60) // a name that no row has
	require.Equal(t, exitOK, do(t, append(args, "-client", long)...).code)
	res, err = l.Peek(t.Context(), ratelimit.Request{Client: long, Endpoint: "/search"})
	require.NoError(t, err)
	require.Equal(t, 100, res.Remaining)
	require.Len(t, p.rows(t), len(before)-2)

	got = do(t, append(args, "-client", "nobody")...)
	require.Equal(t, call{exitFound, p.address + ": nothing to reset: client nobody has used nothing in 2 rules of limiter shop\n", ""}, got)
	got = do(t, append(args, "-client", "alice", "-name", "shopp")...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, p.address+" has no key of limiter shopp, but ")

	// A row that somebody has broken is an error that names it, and reset by the library deletes it.
	p.execute(t, "update ratelimit set value = value || 'x' where position('client59'::bytea in key) > 0")
	got = do(t, append(args, "-client", "client59", "-endpoint", "/search")...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, `the row of rule "shop:/search", key "client59" is broken: its checksum is wrong`)
}

// TestPostgresHangs stops the server, which then accepts connections and does not answer, and has a row that somebody has locked.
func TestPostgresHangs(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startPostgres(t)
	p.use(t, "ratelimit")
	tx, err := p.pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select 1 from ratelimit for update")
	require.NoError(t, err)
	got := do(t, "top", p.url("postgres"), "-config", "limits.json")
	require.Equal(t, exitOK, got.code, "%s: top waits for no lock", got.err)
	got = do(t, "reset", p.url("postgres"), "-config", "limits.json", "-timeout", "400ms", "-name", "shop", "-client", "client59")
	require.Equal(t, call{exitFailed, "", "ratelimit reset: " + p.address +
		" answers: canceling statement due to lock timeout: somebody else has locked a row or the table for too long (55P03)\n"}, got)
	require.NoError(t, tx.Rollback(t.Context()))

	require.NoError(t, p.process.Signal(syscall.SIGSTOP))
	for _, args := range [][]string{
		{"top", p.url("postgres"), "-config", "limits.json", "-timeout", "200ms"},
		{"reset", p.url("postgres"), "-config", "limits.json", "-timeout", "200ms", "-name", "shop", "-client", "a", "-endpoint", "/search"},
	} {
		require.Equal(t, call{exitFailed, "", fmt.Sprintf("ratelimit %s: %s does not answer within 200ms\n", args[0], p.address)}, do(t, args...))
	}
	require.NoError(t, p.process.Signal(syscall.SIGCONT))
}

// TestPostgresRefuses has wrong command lines, and servers that do not have what is needed.
func TestPostgresRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startPostgres(t)
	p.use(t, "limits")
	require.Equal(t, exitOK, do(t, "top", "-postgres", p.url("postgres"), "-config", "limits.json", "-table", "limits").code)
	p.execute(t, "create role nobody login")
	p.execute(t, "create role reader login")
	p.execute(t, "grant select on limits to reader")
	p.execute(t, "create table foreign_table (id int)")
	p.execute(t, "create table half_table (like limits including all)")
	top, reset := []string{"top", "-config", "limits.json"}, []string{"reset", "-config", "limits.json", "-name", "shop", "-client", "a"}
	for _, row := range []struct {
		args []string
		more []string
		code int
		err  string
	}{
		{top, []string{p.url("postgres")}, exitFailed, p.address + ": the database has no table ratelimit: see -table\n"},
		{reset, []string{p.url("postgres")}, exitFailed, p.address + ": the database has no table ratelimit: see -table\n"},
		{top, []string{p.url("postgres"), "-table", "a b"}, exitFailed, `table is "a b": must be a name in lower case`},
		{top, []string{p.url("postgres"), "-table", "foreign_table"}, exitFailed, p.address + ` answers: column "key" does not exist`},
		{reset, []string{p.url("postgres"), "-table", "half_table"}, exitFailed, p.address + ": the database has no function half_table_put_1"},
		{top, []string{p.url("nobody"), "-table", "limits"}, exitFailed, p.address + " answers: permission denied for table limits (42501)\n"},
		{reset, []string{p.url("reader"), "-table", "limits"}, exitFailed, p.address + ": the role may not select, insert, update and delete"},
		{top, []string{p.url("stranger"), "-table", "limits"}, exitFailed, p.address + ` answers: role "stranger" does not exist (28000)`},
		{top, []string{strings.Replace(p.url("postgres"), "/shop", "/none", 1)}, exitFailed,
			`/none answers: database "none" does not exist (3D000)`},
		{top, []string{"postgres://a:hunter2@127.0.0.1:1/shop?sslmode=disable"}, exitFailed, "127.0.0.1:1/shop: connection refused\n"},
		{top, []string{"postgres://a:hunter2@:x:y/z"}, exitUsage, "the address must be postgres://user:password@host:port/database\n"},
		{top, []string{"-postgres", "redis://:hunter2@db"}, exitUsage, "the address must be postgres://"},
		{top, []string{"-postgres", "host=127.0.0.1 port=1 password=hunter2 sslmode=disable dbname=a"}, exitFailed,
			"127.0.0.1:1/a: connection refused\n"},
		{top, []string{"-redis", p.url("postgres")}, exitUsage, "-redis has the address of a PostgreSQL server: use -postgres\n"},
		{top, []string{"-redis", "redis://db", "-postgres", p.url("postgres")}, exitUsage, "-redis and -postgres are given: "},
		{top, []string{"-postgres", p.url("postgres"), "-prefix", "x"}, exitUsage,
			"-prefix is for Redis: in PostgreSQL, -table names the table\n"},
		{top, []string{"-table", "x"}, exitUsage, "-table is for PostgreSQL: in Redis, -prefix is the first word of the keys\n"},
		{top, []string{p.url("postgres"), "-timeout", "0"}, exitUsage, "-timeout is 0s: must be above 0"},
		{top, []string{"http://:hunter2@db"}, exitUsage, "unix://path, or postgres://user:password@host:port/database\n"},
		{[]string{"block", "-name", "shop", "-client", "a"}, []string{p.url("postgres")}, exitUsage,
			"the address is one of PostgreSQL: overrides that processes share need Redis\n"},
		{[]string{"overrides", "-name", "shop"}, []string{"-redis", p.url("postgres")}, exitUsage,
			"-redis has the address of a PostgreSQL server: overrides that processes share need Redis\n"},
	} {
		got := do(t, append(slices.Clip(row.args), row.more...)...)
		require.Equal(t, row.code, got.code, "%q: %s", row.more, got.err)
		require.Contains(t, got.err, row.err)
		require.NotContains(t, got.err, "hunter2", "the password is a secret")
		require.Empty(t, got.out)
	}
	var tables int
	require.NoError(t, p.pool.QueryRow(t.Context(), "select count(*) from pg_tables where schemaname = 'public'").Scan(&tables))
	require.Equal(t, 3, tables, "no command makes a table")
}

// TestTopSurvivesOfPostgres stops the server while top shows its keys, and lets it go on.
func TestTopSurvivesOfPostgres(t *testing.T) {
	t.Chdir(t.TempDir())
	p := startPostgres(t)
	p.use(t, "ratelimit")
	ctx, cancel := context.WithCancel(t.Context())
	var texts []string
	pages := writerFunc(func(b []byte) (int, error) {
		texts = append(texts, string(b))
		switch {
		case len(texts) == 1:
			p.stopSessions(t, syscall.SIGSTOP)
		case strings.Contains(string(b), "trying again"):
			p.stopSessions(t, syscall.SIGCONT)
		case strings.Contains(texts[len(texts)-2], "trying again"):
			cancel()
		}
		return len(b), nil
	})
	var errs strings.Builder
	code := run(ctx, &terminal{out: pages, err: &errs, width: 80},
		[]string{"top", p.url("postgres"), "-config", "limits.json", "-every", "1ms", "-timeout", "300ms"})
	require.Equal(t, exitOK, code, errs.String())
	require.Contains(t, texts[1], "does not answer within 300ms: trying again\n")
	require.Contains(t, texts[len(texts)-1], "shop:/search: TokenBucket 100/d, ")
}

// stopSessions sends a signal to all processes of the server: the first one, and those that it has started for connections.
func (p *postgres) stopSessions(t *testing.T, signal syscall.Signal) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "pid=", "--ppid", strconv.Itoa(p.process.Pid)).Output()
	require.NoError(t, err)
	for field := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(field)
		require.NoError(t, err)
		_ = syscall.Kill(pid, signal)
	}
	require.NoError(t, p.process.Signal(signal))
}
