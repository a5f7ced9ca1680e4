package pgstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/internal/pgserver"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// units returns how many units the load has granted, of all keys.
func (l *load) units() (n int64) {
	for k := range l.keys {
		n += l.granted[k].Load()
	}
	return n
}

// inBackground runs the load until the function that it returns is called.
func (l *load) inBackground(t *testing.T, stores []*pgstore.Store, callers int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { l.run(ctx, t, stores, callers) })
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); all.Wait() }) }
	t.Cleanup(stop)
	return stop
}

// TestHeldSnapshot keeps a transaction open that sees the table as it was, as a dump does. No old version of a row can be removed
// meanwhile, which makes a hot row slow; but each answer is right, and comes within the time limit.
func TestHeldSnapshot(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url, 2, nil)
	stores := processes(t, url, 3, pgstore.WithTable(name))
	tx, err := admin.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	seen := func() (rows int) {
		require.NoError(t, tx.QueryRow(t.Context(), "select count(*) from "+name).Scan(&rows))
		return rows
	}
	require.Zero(t, seen())
	l := newLoad(1, 3000, 300)
	l.run(t.Context(), t, stores, 4)
	require.Empty(t, l.texts())
	require.EqualValues(t, 3000, l.granted[0].Load())
	forgotten, lost := l.check(t, stores[0])
	require.Zero(t, forgotten)
	require.Zero(t, lost)
	require.Zero(t, seen(), "the snapshot is still open")
	require.NoError(t, tx.Rollback(t.Context()))
	t.Logf("the longest wait was %v", time.Duration(l.longest.Load()))
}

// A tally is what a process has counted: units by key, as in a load.
type tally struct{ Granted, Failed []int64 }

// childKeys is how many keys the load of a child has.
const childKeys = 3

// child runs a load on the table that the environment names until its input ends. It writes a line after the first grants, and then a
// tally. TestMain calls it in a process that TestStoppedProcess starts.
func child(url, name string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := pgstore.New(context.Background(), pool, pgstore.WithTable(name), patient())
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	l := newLoad(childKeys, 1<<30, 0)
	go func() {
		for l.grants.Load() < 200 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		fmt.Println("running")
	}()
	l.run(ctx, new(testing.T), []*pgstore.Store{store}, 16)
	var sum tally
	for k := range l.keys {
		sum.Granted, sum.Failed = append(sum.Granted, l.granted[k].Load()), append(sum.Failed, l.failed[k].Load())
	}
	return json.NewEncoder(os.Stdout).Encode(sum)
}

// TestStoppedProcess stops one process of three with SIGSTOP, again and again. It leaves no transaction open in the server, and the
// others go on; what was charged is what was granted.
func TestStoppedProcess(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url, 1, nil)
	stores := processes(t, url, 2, pgstore.WithTable(name), patient())
	self, err := os.Executable()
	require.NoError(t, err)
	other := exec.CommandContext(t.Context(), self)
	other.Env = append(os.Environ(), "PGSTORE_CHILD_URL="+url+"&application_name="+name, "PGSTORE_CHILD_TABLE="+name)
	other.Stderr = os.Stderr
	in, err := other.StdinPipe()
	require.NoError(t, err)
	out, err := other.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, other.Start())
	waited := false
	t.Cleanup(func() {
		if !waited {
			_ = other.Process.Kill()
			_ = other.Wait()
		}
	})
	var line string
	_, err = fmt.Fscanln(out, &line)
	require.NoError(t, err)
	require.Equal(t, "running", line)
	l := newLoad(childKeys, 1<<30, 0)
	stop := l.inBackground(t, stores, 16)
	const busy = "select count(*) from pg_stat_activity where application_name = $1 and state <> 'idle'"
	for range 10 {
		grew(t, l, 50)
		require.NoError(t, other.Process.Signal(syscall.SIGSTOP))
		idle := assert.Eventually(t, func() bool { return query[int](t, admin, busy, name) == 0 }, time.Minute, time.Millisecond)
		grew(t, l, 300)
		require.NoError(t, other.Process.Signal(syscall.SIGCONT))
		require.True(t, idle, "the stopped process has left a transaction open")
	}
	require.NoError(t, in.Close())
	var sum tally
	require.NoError(t, json.NewDecoder(out).Decode(&sum))
	waited = true
	require.NoError(t, other.Wait())
	stop()
	require.Empty(t, l.texts())
	own := l.units()
	for k := range l.keys {
		l.granted[k].Add(sum.Granted[k])
		l.failed[k].Add(sum.Failed[k])
	}
	forgotten, lost := l.check(t, stores[0])
	require.Zero(t, forgotten)
	require.Zero(t, lost)
	t.Logf("%d units granted by the stopped process, %d by the others", l.units()-own, own)
}

// freePort returns a port on which nobody listens.
func freePort(t testing.TB) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// pooler starts PgBouncer in transaction mode, with two connections to the server, and returns the URL of the database behind it. It
// skips the test without PgBouncer, or fails it if the environment has RATELIMIT_REQUIRE_POSTGRES=1.
func pooler(t *testing.T, behind *server) string {
	t.Helper()
	path := "/usr/sbin/pgbouncer" // which is not in the path of every user
	if _, err := os.Stat(path); err != nil {
		path = pgserver.Program(t, "pgbouncer")
	}
	dir, err := os.MkdirTemp("", "pgbouncer") //nolint:usetesting // it runs as another user, who may not enter the directory of the test
	require.NoError(t, err)
	as, uid, gid := pgserver.Unprivileged(t)
	require.NoError(t, os.Chown(dir, uid, gid))
	port, config := freePort(t), filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
`, behind.Port, port), 0o600))
	require.NoError(t, os.Chown(config, uid, gid))
	cmd := exec.CommandContext(context.Background(), path, "-q", config)
	cmd.SysProcAttr, cmd.Dir = as, dir
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	url := strings.Replace(behind.url(), strconv.Itoa(behind.Port), strconv.Itoa(port), 1)
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		return err == nil && conn.Close(t.Context()) == nil
	}, time.Minute, 20*time.Millisecond)
	return url
}

// TestPooler uses the server through PgBouncer, which gives each transaction any connection. Three processes grant exactly the limit of
// each key, and no setting of a transaction stays behind for another client of the pooler.
func TestPooler(t *testing.T) {
	server, name := sharedServer(t), table(t)
	url := pooler(t, server)
	stores := processes(t, url, 3, pgstore.WithTable(name), patient())
	require.NoError(t, stores[0].Ping(t.Context()))
	l := newLoad(5, 400, 60)
	l.run(t.Context(), t, stores, 21)
	require.Empty(t, l.texts())
	for k := range l.keys {
		require.EqualValues(t, 400, l.granted[k].Load())
	}
	forgotten, lost := l.check(t, stores[0])
	require.Zero(t, forgotten)
	require.Zero(t, lost)
	other := poolOf(t, url, 4, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	for range 4 {
		require.Equal(t, "on", query[string](t, other, "show synchronous_commit"))
		require.Equal(t, "0", query[string](t, other, "show lock_timeout"))
	}
}

// TestDiskFull has the table on a disk that becomes full. Requests that need more space fail with the error of the server and are not
// charged; when there is space again, it goes on.
func TestDiskFull(t *testing.T) {
	pgserver.Program(t, "postgres")
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	server := own(t, "fsync=off", "autovacuum=off")
	_, uid, gid := pgserver.Unprivileged(t)
	disk := filepath.Join(server.Dir, "disk")
	require.NoError(t, os.Mkdir(disk, 0o700))
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=1m,mode=0700,uid=%d,gid=%d", uid, gid)); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_FORCE|2) }) // 2 is MNT_DETACH: the server may still use it
	filler := filepath.Join(disk, "filler")
	require.NoError(t, os.WriteFile(filler, make([]byte, 768<<10), 0o600))
	admin := poolOf(t, server.url(), 1, nil)
	execute(t, admin, "create tablespace small location '"+disk+"'", pgx.QueryExecModeSimpleProtocol)
	stores := processes(t, server.url()+"&default_tablespace=small", 2, pgstore.WithTable("limits"))
	l := newLoad(3000, 1<<30, 0)
	stop := l.inBackground(t, stores, 16)
	full := func() bool { return l.errors.Load() > 100 }
	require.Eventually(t, full, 2*time.Minute, time.Millisecond)
	require.NoError(t, os.Remove(filler))
	grew(t, l, 500)
	stop()
	t.Logf("%d grants, %d errors: %.300q", l.grants.Load(), l.errors.Load(), l.texts())
	for _, text := range l.texts() {
		require.Contains(t, text, "No space left on device (53100)")
	}
	forgotten, lost := l.check(t, stores[0])
	require.Zero(t, forgotten)
	require.Zero(t, lost)
	for k := range l.keys {
		require.Zero(t, l.failed[k].Load(), "an answer of the server says that nothing was charged")
	}
}

// TestFailover kills a primary and promotes its replica. Stores whose URL names both go on with the new primary. It has all that the
// replica had received: what was granted before that is not forgotten.
func TestFailover(t *testing.T) {
	backup := pgserver.Program(t, "pg_basebackup")
	primary := own(t, "fsync=off")
	dir, err := os.MkdirTemp("", "pgstore") //nolint:usetesting // the server runs as another user, who may not enter the directory of the test
	require.NoError(t, err)
	_, uid, gid := pgserver.Unprivileged(t)
	require.NoError(t, os.Chown(dir, uid, gid))
	copied := exec.CommandContext(t.Context(), backup, "-h", "127.0.0.1", "-p", strconv.Itoa(primary.Port), "-U", "postgres",
		"-D", filepath.Join(dir, "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	copied.SysProcAttr, copied.Dir = primary.As, dir
	out, err := copied.CombinedOutput()
	require.NoError(t, err, "%s", out)
	replica := &server{&pgserver.Server{Dir: dir, Port: freePort(t), As: primary.As, Settings: primary.Settings}}
	t.Cleanup(func() {
		replica.Kill()
		_ = replica.Close()
	})
	replica.run(t)
	both := fmt.Sprintf("postgres://postgres:secret@127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable&target_session_attrs=read-write",
		replica.Port, primary.Port)
	stores := processes(t, both, 2, pgstore.WithTable("limits"), pgstore.WithStoreOptions(dbstore.WithTimeout(slowMachine)))
	first, second := poolOf(t, primary.url(), 1, nil), poolOf(t, replica.url(), 1, nil)
	_, err = pgstore.New(t.Context(), second, pgstore.WithTable("limits"))
	require.EqualError(t, err, "pgstore: the server is a replica, which takes no writes: connect to the primary server")
	l := newLoad(20, 1<<30, 0)
	stop := l.inBackground(t, stores, 16)
	grew(t, l, 1000)
	safe := l.units()
	until := query[string](t, first, "select pg_current_wal_insert_lsn()::text")
	require.Eventually(t, func() bool {
		return query[bool](t, second, "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", until)
	}, time.Minute, time.Millisecond)
	grew(t, l, 200)
	primary.Kill()
	failed := l.errors.Load()
	require.Eventually(t, func() bool { return l.errors.Load() > failed+50 }, 5*time.Minute, time.Millisecond)
	before := l.units()
	require.True(t, query[bool](t, second, "select pg_promote()"))
	grew(t, l, 1000)
	stop()
	forgotten, lost := l.check(t, stores[0])
	t.Logf("%d units granted by the old primary, %d of them since the replica was known to have all, %d forgotten, %d charged without an "+
		"answer, %d errors", before, before-safe, forgotten, lost, l.errors.Load())
	require.LessOrEqual(t, forgotten, before-safe)
}
