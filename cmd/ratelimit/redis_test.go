//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// startRedis starts a redis-server that ends with the test, and returns its address, a client of it
// and its process. Without a redis-server, the test is skipped, or fails if the environment has
// RATELIMIT_REQUIRE_REDIS=1.
func startRedis(t *testing.T, args ...string) (string, *redis.Client, *os.Process) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		require.NotEqual(t, "1", os.Getenv("RATELIMIT_REQUIRE_REDIS"), "there is no redis-server")
		t.Skip("no redis-server on this machine: the test needs to start one")
	}
	port := ""
	for port == "" {
		p := strconv.Itoa(10_000 + rand.IntN(20_000))
		if l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+p); err == nil {
			require.NoError(t, l.Close())
			port = p
		}
	}
	cmd := exec.CommandContext(context.Background(), path, append([]string{
		"--save", "", "--appendonly", "no", "--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--logfile", "log",
	}, args...)...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address := "127.0.0.1:" + port
	client := redis.NewClient(&redis.Options{Addr: address, Password: "secret"})
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := client.Ping(ctx).Err()
		if err == nil || strings.Contains(err.Error(), "without any password") {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, err)
		}
	}
	if len(args) == 0 {
		client = redis.NewClient(&redis.Options{Addr: address})
		t.Cleanup(func() { _ = client.Close() })
	}
	return address, client, cmd.Process
}

const sharedLimits = `{"rules": [
  {"endpoint": "/search", "algorithm": "TokenBucket", "rate": "100/d"},
  {"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "5/d", "key": "ip"},
  {"name": "all", "endpoint": "*", "additional": true, "algorithm": "SlidingWindowCounter", "rate": "100000/d", "key": "global"},
  {"endpoint": "/new", "algorithm": "FixedWindow", "rate": "50/d", "warmup": {"from": 10, "over": "24h"}}
]}`

// use makes requests to a limiter named "shop" with the rules above.
func use(t *testing.T, client *redis.Client) *ratelimit.RateLimiter {
	t.Helper()
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second), redisstore.WithDenialCache(0))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("limits.json", []byte(sharedLimits), 0o600))
	_, l, err := loadRules("limits.json", ratelimit.WithStore(store), ratelimit.WithName("shop"),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	for i := range 60 {
		for range i % 20 {
			_, err := l.Check(t.Context(), ratelimit.Request{Client: fmt.Sprintf("client%02d", i), Endpoint: "/search"})
			require.NoError(t, err)
		}
	}
	take := func(req ratelimit.Request) {
		_, err := l.Check(t.Context(), req)
		require.NoError(t, err)
	}
	take(ratelimit.Request{Client: "evil\x1b[2J", Endpoint: "/search", Cost: 100})
	take(ratelimit.Request{Client: strings.Repeat("long", 30), Endpoint: "/search", Cost: 99})
	take(ratelimit.Request{IP: "203.0.113.9", Endpoint: "/login", Cost: 5})
	take(ratelimit.Request{IP: "203.0.113.5", Endpoint: "/login", Cost: 4})
	take(ratelimit.Request{Client: "young", Endpoint: "/new", Cost: 9})
	require.NoError(t, client.Set(t.Context(), "ratelimit:{cforeign}:1t:shop%3a/search", "what", 0).Err())
	require.NoError(t, client.Set(t.Context(), "ratelimit:{cother}:1t:shop%3a/gone", "what", 0).Err())
	require.NoError(t, client.Set(t.Context(), "ratelimit:{cold}:1f:shop%3a/search", "86400000000 1 0 1", 0).Err()) // of another algorithm
	require.NoError(t, client.Set(t.Context(), "ratelimit:{cold}:1T:shop%3a/search", "1 864000000 100 1 0 5 @1", 0).Err())
	require.NoError(t, client.Set(t.Context(), "session:1", "x", 0).Err())
	return l
}

// do runs the program in the current directory.
func do(t *testing.T, args ...string) call {
	t.Helper()
	var out, errs strings.Builder
	code := run(t.Context(), &terminal{out: &out, err: &errs, width: 80}, args)
	return call{code, out.String(), errs.String()}
}

// dump returns all that a server has.
func dump(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, key := range c.Keys(t.Context(), "*").Val() {
		all[key] = c.Dump(t.Context(), key).Val() + c.PExpireTime(t.Context(), key).String()
	}
	return all
}

// calls returns how often a server has run each command.
func calls(t *testing.T, c *redis.Client) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for line := range strings.Lines(c.Info(t.Context(), "commandstats").Val()) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if ok {
			counts[name], _ = strconv.Atoi(strings.Split(rest, ",")[0])
		}
	}
	return counts
}

func TestTop(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	url := "redis://" + address
	use(t, client)
	before, commands := dump(t, client), calls(t, client)
	got := do(t, "top", url, "-config", "limits.json", "-n", "3", "-count", "10", "-pause", "0s")
	require.Equal(t, exitOK, got.code, got.err)
	// What is left is exact, unless the day ends. The times are not.
	require.Regexp(t, `^127\.0\.0\.1:\d+/0, [-0-9]{10} [:0-9]{8} UTC: 63 keys
4 keys belong to no rule of the file: 4 keys of limiter shop

shop:/login: SlidingWindowLog 5/d, 2 keys
key +left  of +denied for +as new after
203\.0\.113\.9     0   5 +\S+ +\S+
203\.0\.113\.5     1   5 +- +\S+

shop:/new: FixedWindow 50/d, 1 keys?
key    left  of  denied for +as new after
young     1  50           - +\S+

shop:/search: TokenBucket 100/d, 59 keys
key +left   of +denied for +as new after
evil\\x1b\[2J +0  100 +\S+ +\S+
#\S{39}\.\.\. +1  100 +- +\S+
client[135]9 +81  100 +- +\S+

shop:all: SlidingWindowCounter 100000/d, 1 keys?
key    left       of  denied for +as new after
""   99,213  100,000           - +\S+
$`, got.out)
	require.NotContains(t, got.out, "\x1b")
	require.Empty(t, got.err)
	for line := range strings.Lines(got.out) {
		require.LessOrEqual(t, len(line), 81)
	}
	require.Equal(t, before, dump(t, client), "nothing is written")
	after := calls(t, client)
	for name, n := range after {
		if n > commands[name] {
			require.Contains(t, []string{
				"ping", "scan", "eval", "evalsha", "time", "get", "llen", "lrange", "lindex", "hello", "select", "client|maint_notifications",
				"info", "keys", "dump", "pexpiretime", "command", "client|setinfo",
			}, name, "%d calls", n-commands[name])
		}
	}
	require.Greater(t, after["scan"], commands["scan"]+4, "in steps")

	got = do(t, "top", url, "-config", "limits.json", "-json", "-n", "1", "-name", "shop")
	require.Equal(t, exitOK, got.code)
	var out topJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Len(t, out.Rules, 4)
	require.Equal(t, "evil\x1b[2J", out.Rules[2].Top[0].Key)
	require.Len(t, out.Rules[2].Top, 1)
	got = do(t, "top", url, "-config", "limits.json", "-name", "elsewhere")
	require.Contains(t, got.out, "0 keys\n67 keys belong to no rule")
}

// TestTopUnits has rules of units, one of which counts what is running.
func TestTopUnits(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	url := "redis://" + address
	require.NoError(t, os.WriteFile("gateway.json", []byte(`{"rules": [
  {"name": "requests", "endpoint": "/v1/chat", "algorithm": "TokenBucket", "rate": "60/d"},
  {"name": "tokens", "endpoint": "/v1/chat", "algorithm": "TokenBucket", "rate": "20000/d", "unit": "tokens"},
  {"name": "at once", "endpoint": "/v1/chat", "algorithm": "InFlight", "rate": "4/24h"}
]}`), 0o600))
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	_, l, err := loadRules("gateway.json", ratelimit.WithStore(store), ratelimit.WithName("llm"),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	for range 3 {
		req := ratelimit.Request{Client: "a", Endpoint: "/v1/chat", Costs: []ratelimit.Cost{{Unit: "tokens", N: 500}}}
		held, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		require.True(t, held.Result().Allowed)
	}
	got := do(t, "top", url, "-config", "gateway.json")
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `^127\.0\.0\.1:\d+/0, [-0-9]{10} [:0-9]{8} UTC: 3 keys

llm:at once: InFlight 4/d, 1 keys?
key  left  of  denied for +as new after
a       1   4           - +\S+
these times are bounds: requests may end earlier

llm:requests: TokenBucket 60/d, 1 keys?
key  left  of  denied for +as new after
a      57  60           - +\S+

llm:tokens: TokenBucket 20000/d tokens, 1 keys?
key +left +of  denied for +as new after
a +18,500  20,000           - +\S+
$`, got.out)
	got = do(t, "top", url, "-config", "gateway.json", "-json")
	var out topJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Equal(t, "llm:tokens", out.Rules[2].Rule)
	require.Equal(t, "tokens", out.Rules[2].Unit)

	got = do(t, "reset", url, "-config", "gateway.json", "-name", "llm", "-client", "a", "-endpoint", "/v1/chat")
	require.Equal(t, call{exitOK, address + `/0: reset 2 keys of limiter llm
rule      key  left before     now      of
requests  a             57      60      60
tokens    a         18,500  20,000  20,000
at once   a              -       -       4
Processes may still deny for 1s.
-: not known here, but reset too; see top
`, ""}, got)
	got = do(t, "top", url, "-config", "gateway.json")
	require.Contains(t, got.out, "UTC: 0 keys\n")
}

// TestTopAgain prints the page again and again, until it is interrupted.
func TestTopAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	url := "redis://" + address
	use(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	pages := &pager{after: 3, then: cancel}
	var errs strings.Builder
	code := run(ctx, &terminal{out: pages, err: &errs, width: 80}, []string{"top", url, "-config", "limits.json", "-every", "1ms"})
	require.Equal(t, exitOK, code, errs.String())
	require.GreaterOrEqual(t, pages.n, 3)
	cancel()
	code = run(ctx, &terminal{out: pages, err: &errs, width: 80}, []string{"top", url, "-config", "limits.json"})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "interrupted")
}

// A pager calls then after some pages.
type pager struct {
	n, after int
	then     func()
}

func (p *pager) Write(b []byte) (int, error) {
	if p.n++; p.n == p.after {
		p.then()
	}
	return len(b), nil
}

func TestReset(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	l := use(t, client)
	args := []string{"reset", "-redis", "redis://" + address, "-config", "limits.json", "-name", "shop"}
	got := do(t, append(args, "-client", "evil\x1b[2J", "-endpoint", "/search")...)
	require.Equal(t, call{exitOK, fmt.Sprintf(`%s/0: reset 1 key of limiter shop
rule     key          left before     now       of
/search  evil\x1b[2J            0     100      100
all      ""                99,213  99,213  100,000
all: not reset, as clients share it; see -rule
Processes may still deny for 1s.
`, address), ""}, got)
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: "evil\x1b[2J", Endpoint: "/search"})
	require.NoError(t, err)
	require.True(t, res.Allowed)

	require.Equal(t, exitOK, do(t, append(args, "-ip", "203.0.113.9", "-rule", "/login")...).code)
	res, err = l.Peek(t.Context(), ratelimit.Request{IP: "203.0.113.9", Endpoint: "/login"})
	require.NoError(t, err)
	require.Equal(t, 5, res.Remaining)
	got = do(t, append(args, "-client", "young")...)
	require.Equal(t, call{exitOK, address + `/0: reset 1 key of limiter shop
rule     key    left before  now   of
/search  young          100  100  100
/new     young            1   10   50
Processes may still deny for 1s.
`, ""}, got)
	require.Zero(t, client.Exists(t.Context(), "ratelimit:{cyoung}:1F:shop%3a/new").Val())

	for _, row := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"-client", "a", "-endpoint", "/login"}, exitUsage, `rule "/login" limits by ip: give -ip`},
		{[]string{"-client", "a", "-rule", "none\x1b"}, exitFailed, `none\x1b`},
		{nil, exitUsage, "-client, -ip, -attr or -rule is missing"},
		{[]string{"-client", "a", "-name", ""}, exitUsage, "-name is missing"},
		{[]string{"-client", "a", "-config", ""}, exitUsage, "-config is missing"},
		{[]string{"-client", "a", "-config", "none.json"}, exitFailed, "none.json: no such file"},
	} {
		got := do(t, append(slices.Clip(args), row.args...)...)
		require.Equal(t, row.code, got.code, got.err)
		require.Contains(t, got.err, row.err)
		require.Empty(t, got.out)
	}
}

// TestServerHangs stops a server: it accepts connections and does not answer.
func TestServerHangs(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, process := startRedis(t)
	use(t, client)
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	url := "redis://user:hunter2@" + address
	began := time.Now()
	for _, args := range [][]string{
		{"top", url, "-config", "limits.json", "-timeout", "200ms"},
		{"reset", url, "-config", "limits.json", "-timeout", "200ms", "-name", "shop", "-client", "a", "-endpoint", "/search"},
	} {
		got := do(t, args...)
		require.Equal(t, call{exitFailed, "", fmt.Sprintf("ratelimit %s: %s/0 does not answer within 200ms\n", args[0], address)}, got)
	}
	require.Less(t, time.Since(began), 10*time.Second)
	require.NoError(t, process.Signal(syscall.SIGCONT))

	// It hangs after the connection was made, between two steps.
	w := &watch{maxKeys: 1, count: 10}
	require.NoError(t, w.load("limits.json"))
	timeout, prefix := 300*time.Millisecond, "ratelimit"
	var err error
	long := 20 * time.Second
	w.server, err = (&serverFlags{timeout: &long, prefix: &prefix, redis: new(string)}).connect(t.Context(), []string{"redis://" + address})
	require.NoError(t, err)
	defer w.close()
	w.timeout = timeout
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	_, err = w.pass(t.Context())
	require.EqualError(t, err, address+"/0 does not answer within 300ms")
	require.NoError(t, process.Signal(syscall.SIGCONT))
}

func TestServerRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("limits.json", []byte(sharedLimits), 0o600))
	address, _, _ := startRedis(t, "--requirepass", "secret")
	for _, row := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"top", "redis://" + address, "-config", "limits.json"}, exitFailed, address + "/0 answers: NOAUTH"},
		{[]string{"top", "redis://:hunter2@" + address + "/3", "-config", "limits.json"}, exitFailed, address + "/3 answers: WRONGPASS"},
		{[]string{"top", "redis://:secret@" + address, "-config", "limits.json"}, exitOK, ""},
		{[]string{"top", "-redis", "redis://:secret@" + address, "-config", "limits.json"}, exitOK, ""},
		{[]string{"top", "-redis", "redis://a", "redis://b", "-config", "limits.json"}, exitUsage, `"redis://b" is one argument too many`},
		{[]string{"top", "redis://:hunter2@127.0.0.1:1", "-config", "limits.json"}, exitFailed, "127.0.0.1:1/0: connection refused\n"},
		{[]string{"top", "redis://:hunter2@x:y:z", "-config", "limits.json"}, exitUsage, "the address must be redis://"},
		{[]string{"top", "http://:hunter2@x", "-config", "limits.json"}, exitUsage, "the address must be redis://"},
		{[]string{"top", "-config", "limits.json", "-n", "0"}, exitUsage, "-n is 0"},
		{[]string{"top", "-config", "limits.json", "-count", "0"}, exitUsage, "-count is 0"},
		{[]string{"top", "-config", "limits.json", "-pause", "-1s"}, exitUsage, "-pause is -1s"},
		{[]string{"top", "-config", "limits.json", "-timeout", "0"}, exitUsage, "-timeout is 0s"},
		{[]string{"top"}, exitUsage, "-config is missing"},
		{[]string{"top", "-config", "none.json"}, exitFailed, "none.json: no such file"},
		{[]string{"top", "redis://127.0.0.1:1", "-config", "limits.json", "-prefix", "{"}, exitFailed, "prefix"},
	} {
		got := do(t, row.args...)
		require.Equal(t, row.code, got.code, "%q: %s", row.args, got.err)
		require.Contains(t, got.err, row.err)
		require.NotContains(t, got.err, "hunter2", "the password is a secret")
	}
}

func TestRounded(t *testing.T) {
	require.Equal(t, 1200*time.Millisecond, rounded(1100*time.Millisecond+1))
	require.Equal(t, time.Second, rounded(time.Second))
	require.Equal(t, ratelimit.Never, rounded(ratelimit.Never))
}

// TestTopTiers shows a client of a tier by the limit that it has.
func TestTopTiers(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	require.NoError(t, os.WriteFile("tiers.json", []byte(`{"rules": [
  {"endpoint": "/a", "algorithm": "TokenBucket", "rate": "20/d", "tiers": {"paid": "600/d burst 90", "staff": "unlimited"}}]}`), 0o600))
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second))
	require.NoError(t, err)
	_, l, err := loadRules("tiers.json", ratelimit.WithStore(store), ratelimit.WithName("shop"),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	for _, req := range []ratelimit.Request{{Client: "bob", Cost: 20}, {Client: "carol", Tier: "paid", Cost: 30}} {
		req.Endpoint = "/a"
		res, err := l.Check(t.Context(), req)
		require.NoError(t, err)
		require.True(t, res.Allowed)
	}
	got := do(t, "top", "redis://"+address, "-config", "tiers.json")
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `\nbob +0 +20 +1h1(2m|1m5\S+) +(1d|23h59m5\S+)\ncarol +60 +90 +- +1h1(2m|1m5\S+)\n$`, got.out)
}

// TestTopWrongName names a limiter that the server does not have.
func TestTopWrongName(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	use(t, client)
	url := "redis://" + address
	got := do(t, "top", url, "-config", "limits.json", "-name", "shopp")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, address+"/0 has no key of limiter shopp, but 67 keys of limiter shop\n")
	for _, args := range [][]string{{"-name", "shopp", "-client", "alice"}, {"-name", "shopp", "-client", "alice", "-endpoint", "/search"}} {
		got = do(t, append([]string{"reset", url, "-config", "limits.json"}, args...)...)
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.err, "has no key of limiter shopp, but ")
	}
	got = do(t, "reset", url, "-config", "limits.json", "-name", "shop", "-client", "nobody")
	require.Equal(t, call{exitFound, address + "/0: nothing to reset: client nobody has used nothing in 2 rules of limiter shop\n", ""}, got)
	got = do(t, "reset", url, "-config", "limits.json", "-name", "shop", "-client", "client19", "-dry-run", "-json")
	require.Equal(t, exitOK, got.code, got.err)
	var out resetJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out))
	require.Equal(t, 1, out.Keys)
	require.True(t, out.DryRun)
	require.Equal(t, 81, *out.Rules[0].Before)
	got = do(t, "reset", url, "-config", "limits.json", "-name", "shop", "-client", "client19", "-dry-run")
	require.Contains(t, got.out, "would reset 1 key of limiter shop\n")
	require.NotContains(t, got.out, remembered)
	got = do(t, "reset", url, "-config", "limits.json", "-name", "shop", "-client", "client19")
	require.Regexp(t, `reset 1 key of limiter shop\n.*\n/search +client19 +81 +100 +100\n`, got.out, "the dry run has changed nothing")
}

// TestTopSurvives stops a server while top shows its keys, and lets it go on.
func TestTopSurvives(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, process := startRedis(t)
	use(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	var texts []string
	pages := writerFunc(func(b []byte) (int, error) {
		texts = append(texts, string(b))
		switch {
		case len(texts) == 1:
			require.NoError(t, process.Signal(syscall.SIGSTOP))
		case strings.Contains(string(b), "trying again"):
			require.NoError(t, process.Signal(syscall.SIGCONT))
		case strings.Contains(texts[len(texts)-2], "trying again"):
			cancel()
		}
		return len(b), nil
	})
	var errs strings.Builder
	code := run(ctx, &terminal{out: pages, err: &errs, width: 80},
		[]string{"top", "redis://" + address, "-config", "limits.json", "-every", "1ms", "-timeout", "200ms"})
	require.Equal(t, exitOK, code, errs.String())
	require.Contains(t, texts[1], "does not answer within 200ms: trying again\n")
	require.Contains(t, texts[len(texts)-1], "shop:/search: TokenBucket 100/d, ")
}

// A writerFunc is a function that is a writer.
type writerFunc func([]byte) (int, error)

// Write calls the function.
func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
