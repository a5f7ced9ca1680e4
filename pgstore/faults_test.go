package pgstore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// grew waits until the load has granted n requests more than now.
func grew(t *testing.T, l *load, n int64) {
	t.Helper()
	want := l.grants.Load() + n
	require.Eventually(t, func() bool { return l.grants.Load() >= want }, 5*time.Minute, time.Millisecond)
}

// TestTerminate ends the connections of a Store while it is used, again and again.
func TestTerminate(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url, 1, nil)
	stores := processes(t, url+"&application_name=victim", 2, pgstore.WithTable(name))
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(20, 1<<30, 0)
	var all sync.WaitGroup
	all.Go(func() { l.run(ctx, t, stores, 16) })
	for range 10 {
		grew(t, l, 200)
		execute(t, admin, "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'victim'")
	}
	grew(t, l, 200)
	cancel()
	all.Wait()
	forgotten, lost := l.check(t, stores[0])
	require.Zero(t, forgotten)
	t.Logf("%d grants, %d errors, %d units charged without an answer: %q", l.grants.Load(), l.errors.Load(), lost, l.texts())
	require.NotZero(t, l.errors.Load())
}

// A proxy stands between a Store and the server. It closes connections right before an answer of the server.
type proxy struct {
	listener net.Listener
	to       string
	cut      atomic.Int64 // how many answers are still to be cut
	all      sync.WaitGroup
}

func newProxy(t *testing.T, port int) *proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, to: fmt.Sprintf("127.0.0.1:%d", port)}
	p.all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.all.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.to)
	if err != nil {
		_ = client.Close()
		return
	}
	var all sync.WaitGroup
	all.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	buffer := make([]byte, 1<<16)
	for {
		n, err := server.Read(buffer)
		if err != nil || p.cut.Load() > 0 && p.cut.Add(-1) >= 0 {
			break
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			break
		}
	}
	_, _ = client.Close(), server.Close()
	all.Wait()
}

// TestCutAnswers loses answers of transactions that were committed. Such a call fails, and is not repeated.
func TestCutAnswers(t *testing.T) {
	server, name := sharedServer(t), table(t)
	p := newProxy(t, server.Port)
	url := strings.ReplaceAll(server.url(), strconv.Itoa(server.Port), strconv.Itoa(p.listener.Addr().(*net.TCPAddr).Port))
	s := newStore(t, poolOf(t, url, 4, nil), pgstore.WithTable(name))
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(20, 1<<30, 0)
	var all sync.WaitGroup
	all.Go(func() { l.run(ctx, t, []*pgstore.Store{s}, 32) })
	for range 40 {
		grew(t, l, 50)
		p.cut.Store(1)
	}
	grew(t, l, 200)
	cancel()
	all.Wait()
	forgotten, lost := l.check(t, s)
	require.Zero(t, forgotten)
	t.Logf("%d grants, %d errors, %d units charged without an answer: %q", l.grants.Load(), l.errors.Load(), lost, l.texts())
	require.NotZero(t, lost)
}

// pass lets d pass with RATELIMIT_SOAK=1, and otherwise no time.
func pass(d time.Duration) {
	if os.Getenv("RATELIMIT_SOAK") == "1" {
		<-time.After(d)
	}
}

// TestCrash kills the server with SIGKILL while three processes use it, and starts it again. With WithDurableCommits nothing that was
// granted is forgotten. With RATELIMIT_SOAK=1 each process has 64 callers, for a minute.
func TestCrash(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			pgserver.Program(t, "postgres")
			server := own(t)
			opts := []pgstore.Option{pgstore.WithTable("limits")}
			if durable {
				opts = append(opts, pgstore.WithDurableCommits())
			}
			stores := processes(t, server.url(), 3, opts...)
			ctx, cancel := context.WithCancel(t.Context())
			l := newLoad(20, 1<<30, 0)
			var all sync.WaitGroup
			callers := 21
			if os.Getenv("RATELIMIT_SOAK") == "1" {
				callers = 64
			}
			all.Go(func() { l.run(ctx, t, stores, callers) })
			grew(t, l, 3000)
			pass(30 * time.Second)
			server.Kill()
			failed := l.errors.Load()
			require.Eventually(t, func() bool { return l.errors.Load() > failed+100 }, 5*time.Minute, time.Millisecond)
			server.run(t)
			grew(t, l, 3000)
			pass(30 * time.Second)
			cancel()
			all.Wait()
			forgotten, lost := l.check(t, stores[0])
			t.Logf("%d grants, %d errors, %d units forgotten, %d charged without an answer; the longest wait was %v",
				l.grants.Load(), l.errors.Load(), forgotten, lost, time.Duration(l.longest.Load()))
			if durable {
				require.Zero(t, forgotten)
			}
		})
	}
}

// TestStoppedServer stops all processes of the server for a while. Callers get errors meanwhile, and afterwards it goes on.
func TestStoppedServer(t *testing.T) {
	pgserver.Program(t, "postgres")
	server := own(t, "fsync=off")
	stores := processes(t, server.url(), 2, pgstore.WithTable("limits"))
	signal := func(to syscall.Signal) {
		links, err := filepath.Glob("/proc/[0-9]*/cwd")
		require.NoError(t, err)
		for _, link := range links {
			if dir, err := os.Readlink(link); err == nil && dir == filepath.Join(server.Dir, "data") {
				pid, err := strconv.Atoi(strings.Split(link, "/")[2])
				require.NoError(t, err)
				_ = syscall.Kill(pid, to) // it may have ended meanwhile
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(20, 1<<30, 0)
	var all sync.WaitGroup
	all.Go(func() { l.run(ctx, t, stores, 16) })
	grew(t, l, 500)
	signal(syscall.SIGSTOP)
	failed := l.errors.Load()
	assert.Eventually(t, func() bool { return l.errors.Load() > failed+100 }, 5*time.Minute, time.Millisecond)
	signal(syscall.SIGCONT)
	grew(t, l, 500)
	cancel()
	all.Wait()
	forgotten, lost := l.check(t, stores[0])
	require.Zero(t, forgotten)
	t.Logf("%d grants, %d errors, %d units charged without an answer: %q", l.grants.Load(), l.errors.Load(), lost, l.texts())
}

// TestDeletedRows deletes rows in a loop while they are used. No write is lost: what a deleted row and the present one have charged is
// what was granted.
func TestDeletedRows(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url+"&application_name=admin", 1, nil)
	stores := processes(t, url, 2, pgstore.WithTable(name), patient())
	execute(t, admin, fmt.Sprintf(`create table %[1]s_log (key bytea, value bytea);
		create function %[1]s_note() returns trigger language plpgsql as
			$$ begin insert into %[1]s_log values (old.key, old.value); return old; end $$;
		create trigger note before delete on %[1]s for each row when (current_setting('application_name') = 'admin')
			execute function %[1]s_note()`, name), pgx.QueryExecModeSimpleProtocol)
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(3, 1<<30, 0)
	var all sync.WaitGroup
	all.Go(func() { l.run(ctx, t, stores, 16) })
	for range 60 {
		grew(t, l, 30)
		execute(t, admin, "delete from "+name+" where key in (select key from "+name+" order by key for update)")
	}
	cancel()
	all.Wait()
	require.Empty(t, l.texts())
	_, _ = admin.Exec(t.Context(), "delete from "+name)
	rows, err := admin.Query(t.Context(), "select key, value from "+name+"_log order by key")
	require.NoError(t, err)
	values := make(map[string][][]byte)
	var key, value []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		values[string(key)] = append(values[string(key)], append([]byte(nil), value...))
		return nil
	})
	require.NoError(t, err)
	require.Len(t, values, 3)
	for key, all := range values {
		k, charged := int(key[len(key)-1]-'0'), int64(0)
		for _, value := range all {
			execute(t, admin, "insert into "+name+" values ($1, $2, now() + interval '1 day')", []byte(key), value)
			look := ask(fmt.Sprint(k), l.limit)
			look.N = 0
			fresh := newStore(t, poolOf(t, url, 1, nil), pgstore.WithTable(name))
			results, err := fresh.Take(t.Context(), []ratelimit.Ask{look})
			require.NoError(t, err)
			fresh.Close()
			charged += int64(l.limit - results[0].Remaining)
			execute(t, admin, "alter table "+name+" disable trigger note")
			execute(t, admin, "delete from "+name)
		}
		require.Equal(t, l.granted[k].Load(), charged, "key %d, %d rows", k, len(all))
	}
}

// TestLockedRow has a row that somebody else has locked. A request for it fails, leaves nothing waiting in the server, and does
// not stop others.
func TestLockedRow(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url, 2, nil)
	s := newStore(t, poolOf(t, url+"&application_name="+name, 4, nil), pgstore.WithTable(name))
	for _, key := range []string{"a", "b"} {
		_, err := s.Take(t.Context(), []ratelimit.Ask{ask(key, 1000)})
		require.NoError(t, err)
	}
	tx, err := admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select 1 from "+name+" where key = $1 for update", []byte("f\x01ra"))
	require.NoError(t, err)
	for _, asks := range [][]ratelimit.Ask{{ask("a", 1000)}, {ask("a", 1000), ask("b", 1000)}} {
		_, err = s.Take(t.Context(), asks)
		var failure *dbstore.Error
		require.ErrorAs(t, err, &failure)
		require.True(t, failure.NotDone())
		var detail *pgstore.Error
		require.ErrorAs(t, err, &detail)
		require.Equal(t, "55P03", detail.Code)
		require.ErrorContains(t, err, "somebody else has locked a row or the table for too long")
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			_, err := s.Take(t.Context(), []ratelimit.Ask{ask([]string{"a", "b", "c", "d"}[i%4], 1000)})
			assert.Equal(t, i%4 == 0, err != nil, "%d: %v", i, err)
		})
	}
	all.Wait()
	const waiting = "select count(*) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'"
	require.Zero(t, query[int](t, admin, waiting, name))
	require.NoError(t, tx.Rollback(t.Context()))
	results, err := s.Take(t.Context(), []ratelimit.Ask{ask("a", 1000)})
	require.NoError(t, err)
	require.Equal(t, 998, results[0].Remaining)
}

// TestDroppedTable drops the table. Requests fail until New has made it again.
func TestDroppedTable(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	pool := poolOf(t, url, 4, nil)
	s := newStore(t, pool, pgstore.WithTable(name))
	_, err := s.Take(t.Context(), []ratelimit.Ask{ask("a", 10)})
	require.NoError(t, err)
	execute(t, pool, "drop table "+name)
	_, err = s.Take(t.Context(), []ratelimit.Ask{ask("a", 10)})
	require.ErrorContains(t, err, "has somebody dropped the table? pgstore.New makes it again (42P01)")
	require.ErrorContains(t, s.Ping(t.Context()), "pgstore: the database has no table "+name)
	newStore(t, pool, pgstore.WithTable(name))
	results, err := s.Take(t.Context(), []ratelimit.Ask{ask("a", 10)})
	require.NoError(t, err)
	require.Equal(t, 9, results[0].Remaining)
	require.NoError(t, s.Ping(t.Context()))
}

// TestReadOnly makes the server read-only, and back.
func TestReadOnly(t *testing.T) {
	pgserver.Program(t, "postgres")
	server := own(t, "fsync=off")
	pool := poolOf(t, server.url(), 2, nil)
	s := newStore(t, pool)
	_, err := s.Take(t.Context(), []ratelimit.Ask{ask("a", 10)})
	require.NoError(t, err)
	admin := poolOf(t, server.url(), 1, nil)
	execute(t, admin, "alter role postgres set default_transaction_read_only = on")
	pool.Reset()
	_, err = s.Take(t.Context(), []ratelimit.Ask{ask("a", 10)})
	require.ErrorContains(t, err, "the server takes no writes, as a replica does (25006)")
	_, err = pgstore.New(t.Context(), pool)
	require.EqualError(t, err, "pgstore: the transactions of this role or database are read-only")
	require.EqualError(t, s.Ping(t.Context()), "pgstore: the transactions of this role or database are read-only")
	execute(t, admin, "set default_transaction_read_only = off")
	execute(t, admin, "alter role postgres reset default_transaction_read_only")
	require.Eventually(t, func() bool { // the connections that were read-only are closed by and by
		results, err := s.Take(t.Context(), []ratelimit.Ask{ask("a", 10)})
		return err == nil && results[0].Remaining == 8
	}, 10*time.Second, time.Millisecond)
}

// TestManyStart lets many processes start at once on a database that has no table.
func TestManyStart(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	pool := poolOf(t, url, 20, nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			s, err := pgstore.New(t.Context(), pool, pgstore.WithTable(name))
			if assert.NoError(t, err) {
				assert.NoError(t, s.Ping(t.Context()))
				s.Close()
				s.Close()
			}
		})
	}
	all.Wait()
}

// TestRights starts as a role that lacks rights.
func TestRights(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url, 1, nil)
	execute(t, admin, "create role "+name+" login")
	pool := poolOf(t, strings.Replace(url, "postgres:secret", name+":secret", 1), 2, nil)
	_, err := pgstore.New(t.Context(), pool, pgstore.WithTable(name))
	require.ErrorContains(t, err, "pgstore: cannot make the table "+name+" and the function "+name+"_put_1 and the function "+name+
		"_swap_1: run the SQL of pgstore.Schema yourself, or give the role the right: pgstore: permission denied for schema public (42501)")
	execute(t, admin, pgstore.Schema(name), pgx.QueryExecModeSimpleProtocol)
	execute(t, admin, "grant select, insert, update on "+name+" to "+name)
	_, err = pgstore.New(t.Context(), pool, pgstore.WithTable(name))
	require.EqualError(t, err, "pgstore: the role may not select, insert, update and delete in the table "+name)
	execute(t, admin, "grant delete on "+name+" to "+name)
	require.NoError(t, newStore(t, pool, pgstore.WithTable(name)).Ping(t.Context()))
}

// TestForeignTable finds a table that is not one of pgstore.
func TestForeignTable(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	pool := poolOf(t, url, 1, nil)
	execute(t, pool, "create table "+name+" (key bytea primary key, value text, expires timestamptz, version int)")
	_, err := pgstore.New(t.Context(), pool, pgstore.WithTable(name))
	require.ErrorContains(t, err, "pgstore: the table "+name+" was not made by this version of pgstore: it has the columns")
	require.Equal(t, 4, query[int](t, pool, "select count(*) from pg_attribute where attrelid = $1::regclass and attnum > 0", name))
}

// TestOptions proves that mistakes are errors at once.
func TestOptions(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://u:secret@127.0.0.1:1/x?sslmode=disable")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	for _, name := range []string{"", "a b", "A", "a.b.c", "a;drop table x", strings.Repeat("a", 52), "1a", `"a"`} {
		_, err = pgstore.New(t.Context(), pool, pgstore.WithTable(name))
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%q", name)
		require.Empty(t, pgstore.Schema(name))
	}
	_, err = pgstore.New(t.Context(), nil)
	require.EqualError(t, err, "ratelimit: pool is <nil>: must not be nil")
	_, err = pgstore.New(t.Context(), pool, nil)
	require.EqualError(t, err, "ratelimit: options[0] is <nil>: must not be nil")
	_, err = pgstore.New(t.Context(), pool, pgstore.WithStoreOptions(dbstore.WithTimeout(0)))
	require.EqualError(t, err, "ratelimit: timeout is 0s: must be longer than zero")
	_, err = pgstore.New(t.Context(), pool)
	require.ErrorContains(t, err, "pgstore: cannot connect: ")
	require.NotContains(t, err.Error(), "secret")
	_, err = ratelimit.New(nil, nil, ratelimit.WithStore(&pgstore.Store{}), ratelimit.WithName("shop"), ratelimit.WithOverrides())
	require.EqualError(t, err, "ratelimit: store is *pgstore.Store: must have the methods SetOverrides and OverridesSince: "+
		"WithOverrides keeps overrides in it")
	var zero pgstore.Store
	zero.Close()
	require.ErrorIs(t, zero.Ping(t.Context()), ratelimit.ErrInvalidConfig)
}

// TestSweep deletes the rows that have expired, and no others.
func TestSweep(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	pool := poolOf(t, url, 2, nil)
	s := newStore(t, pool, pgstore.WithTable(name))
	s.Close() // the test sweeps by itself
	execute(t, pool, "insert into "+name+" select decode(lpad(to_hex(n), 8, '0'), 'hex'), decode(repeat('00', 26), 'hex'), "+
		"now() + case when n % 10 = 0 then interval '1 hour' else interval '-1 second' end from generate_series(1, 20000) n")
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "select 1 from "+name+" where key = '\\x00000001' for update")
	require.NoError(t, err)
	many := 0
	for range 40 {
		again, err := s.Sweep(t.Context())
		require.NoError(t, err)
		if again {
			many++
		}
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 2001, query[int](t, pool, "select count(*) from "+name), "those that live, and one that was locked")
	require.Equal(t, 2000, query[int](t, pool, "select count(*) from "+name+" where expires > now()"))
	require.NotZero(t, many)
	require.Less(t, many, 40)
}

// TestLean measures what a decision writes: a grant updates its row in place, and a denial writes nothing.
func TestLean(t *testing.T) {
	pgserver.Program(t, "postgres")
	server := own(t, "wal_level=minimal", "max_wal_senders=0", "autovacuum=off", "full_page_writes=off")
	pool := poolOf(t, server.url(), 2, nil)
	s := newStore(t, pool, pgstore.WithStoreOptions(dbstore.WithDenialCache(0)))
	s.Close()
	wal := func() int64 {
		return query[int64](t, pool, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
	}
	a := ask("a", 2000)
	a.Algorithm = ratelimit.AlgorithmTokenBucket
	take := func() ratelimit.Result {
		results, err := s.Take(t.Context(), []ratelimit.Ask{a})
		require.NoError(t, err)
		return results[0]
	}
	take()
	before := wal()
	for range 1999 {
		require.True(t, take().Allowed)
	}
	grants := wal() - before
	require.False(t, take().Allowed)
	before = wal()
	for range 1000 {
		require.False(t, take().Allowed)
	}
	require.Equal(t, before, wal(), "a denial writes nothing")
	require.Less(t, grants/1999, int64(220), "bytes of a grant")
	execute(t, pool, "select pg_stat_force_next_flush()")
	hot := query[float64](t, pool, "select n_tup_hot_upd::float8 / n_tup_upd from pg_stat_user_tables where relname = 'ratelimit'")
	t.Logf("%d bytes of WAL a grant of one caller, %.1f %% of the updates in place", grants/1999, 100*hot)
	require.GreaterOrEqual(t, hot, 0.95)
	for i := range 3000 {
		a.Key = fmt.Sprintf("client-%08d", i)
		take()
	}
	size := query[int64](t, pool, "select pg_total_relation_size('ratelimit')")
	t.Logf("%d bytes a key", size/3000)
}
