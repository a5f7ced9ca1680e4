package configfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// A logged is a log, and what was written to it.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the lines since the last call.
func (l *logged) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return strings.Split(strings.TrimSuffix(l.buf.String(), "\n"), "\n")
}

// log returns a logger without times.
func (l *logged) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// rule returns a document with one rule, of so many requests a minute.
func rule(n int) string {
	return fmt.Sprintf(`[{"name": "a", "algorithm": "FixedWindow", "rate": "%d/m"}]`+"\n", n)
}

// write replaces what is in a file in place.
func write(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// put replaces a file by another one.
func put(t testing.TB, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	require.NoError(t, os.Rename(path+".new", path))
}

// opened returns what Open makes of a new file with this content.
func opened(t testing.TB, text string) (path string, l *ratelimit.RateLimiter, w *configfile.Watcher, log *logged) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "limits.json")
	write(t, path, text)
	l, w, err := configfile.Open(path)
	require.NoError(t, err)
	log = &logged{}
	w.Log = log.log()
	return path, l, w, log
}

// limitOf returns the number of requests of the rule with this name, or 0.
func limitOf(l *ratelimit.RateLimiter, name string) int {
	rules, _ := l.Rules()
	for _, r := range rules {
		if r.Name == name {
			return r.Rate.Requests
		}
	}
	return 0
}

// watched runs w in a bubble, and steps, and then ends Run.
func watched(t *testing.T, w *configfile.Watcher, steps func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		steps(t)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// after waits until whatever Run does in d is done.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const (
	round = 5500 * time.Millisecond // the longest pause of Run
	rest  = 250 * time.Millisecond
)

func TestOpen(t *testing.T) {
	path, l, w, _ := opened(t, rule(7))
	require.Equal(t, 7, limitOf(l, "a"))
	s := w.Status()
	require.Len(t, s.Hash, 64)
	require.WithinDuration(t, time.Now(), s.Applied, time.Hour)
	require.Equal(t, configfile.Status{Hash: s.Hash, Applied: s.Applied, Loads: 1}, s)

	write(t, path, "[")
	for why, bad := range map[string]string{"no JSON": path, "no file": path + "x", "no rules": filepath.Dir(path)} {
		l, w, err := configfile.Open(bad)
		require.Error(t, err, why)
		require.Nil(t, l, why)
		require.Nil(t, w, why)
	}
	write(t, path, "[{}]")
	_, w, err := configfile.Open(path)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.Nil(t, w)
}

func TestBadWatcher(t *testing.T) {
	w := &configfile.Watcher{Every: -1}
	const want = "ratelimit: watcher.path is \"\": must be the path of a file\n" +
		"ratelimit: watcher.limiter is nil: must be made by ratelimit.New or configfile.Open\n" +
		"ratelimit: watcher.every is -1ns: must not be negative; 0 means 5s"
	require.EqualError(t, w.Run(t.Context()), want)
	require.EqualError(t, w.Reload(), want)
	require.ErrorIs(t, w.Reload(), ratelimit.ErrInvalidConfig)
	require.Zero(t, w.Status())

	_, l, _, _ := opened(t, rule(7))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w = &configfile.Watcher{Path: "none", Limiter: l}
	require.ErrorIs(t, w.Run(ended), context.Canceled)
	require.Zero(t, w.Status(), "it has read nothing")
}

// TestRun follows a file through good and bad content.
func TestRun(t *testing.T) {
	path, l, w, log := opened(t, rule(7))
	first := w.Status()
	watched(t, w, func(t *testing.T) {
		begun := time.Now()
		after(3 * round)
		require.Equal(t, first, w.Status(), "nothing has changed")

		const two = `[{"name": "b", "algorithm": "FixedWindow", "rate": "1/m"}, {"name": "a", "algorithm": "FixedWindow", "rate": "8/m"}]`
		put(t, path, two)
		after(round + rest)
		require.Equal(t, 8, limitOf(l, "a"))
		s := w.Status()
		require.True(t, s.Applied.After(begun) && s.Loads == 2 && s.Failures == 0 && s.Err == nil, "%+v", s)
		require.Equal(t, []string{fmt.Sprintf(`level=INFO msg="ratelimit: the file is applied" file=%s hash=%s added=[b] removed=[] changed=[a]`,
			path, s.Hash)}, log.lines())

		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "code", Rate: ratelimit.PerMinute(1)}))
		after(3 * round)
		require.Equal(t, 1, limitOf(l, "code"), "the file has not changed")

		put(t, path, `[{"name": "a", "algorithm": "FixedWindow", "rate": "x"}, 7]`)
		after(3 * round)
		require.Equal(t, 8, limitOf(l, "a"), "the rules stay")
		bad := w.Status()
		require.EqualError(t, bad.Err, path+":1:58: rules[1] is 7: must be a map that has algorithm and algoConfig")
		require.Equal(t, configfile.Status{Hash: s.Hash, Applied: s.Applied, Err: bad.Err, Loads: 2, Failures: 1}, bad)
		lines := log.lines()
		require.Len(t, lines, 1, "once")
		require.Regexp(t, `^level=ERROR msg="ratelimit: the file is refused, the rules stay" file=.* hash=[0-9a-f]{64} problems=1 `+
			`errors="\[.*:1:58: rules\[1\] is 7: `, lines[0])

		put(t, path, "["+strings.Repeat("\n{},", 30)+"{}]")
		after(3 * round)
		require.Equal(t, 2, w.Status().Failures)
		lines = log.lines()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "problems=93")
		require.Equal(t, 10, strings.Count(lines[0], path+":"), "of many problems, the first are logged: %s", lines[0])

		put(t, path, two)
		after(round + rest)
		require.Equal(t, configfile.Status{Hash: s.Hash, Applied: s.Applied, Loads: 2, Failures: 2}, w.Status(), "the file is what it was")
		require.Equal(t, 1, limitOf(l, "code"), "so it is not applied again")
		require.Equal(t, []string{fmt.Sprintf(`level=INFO msg="ratelimit: the file is again what was applied" file=%s hash=%s`, path, s.Hash)},
			log.lines())
		require.NoError(t, os.Remove(path))
		after(round + rest)
		require.ErrorIs(t, w.Status().Err, fs.ErrNotExist)
		require.Contains(t, log.lines()[0], `hash="" problems=1 errors=`)
		put(t, path, two)
		after(round + rest)
		require.Equal(t, configfile.Status{Hash: s.Hash, Applied: s.Applied, Loads: 2, Failures: 3}, w.Status())
		require.Len(t, log.lines(), 1)

		put(t, path, rule(9))
		after(round + rest)
		require.Equal(t, 9, limitOf(l, "a"))
		require.Zero(t, limitOf(l, "code"), "the file replaces what code has added")
		s = w.Status()
		require.Equal(t, configfile.Status{Hash: s.Hash, Applied: s.Applied, Loads: 3, Failures: 3}, s)
		require.Contains(t, log.lines()[0], "added=[] removed=\"[b code]\" changed=[a]")
	})
}

// TestFirstRead has a Watcher that is no Open's: it applies the file as it is first.
func TestFirstRead(t *testing.T) {
	path, l, _, log := opened(t, rule(7))
	w := &configfile.Watcher{Path: path, Limiter: l, Log: log.log(), Every: time.Hour}
	write(t, path, rule(8))
	watched(t, w, func(t *testing.T) {
		begun := time.Now()
		after(rest - 1)
		require.Equal(t, 7, limitOf(l, "a"), "one read is not enough")
		after(1)
		require.Equal(t, 8, limitOf(l, "a"))
		require.Equal(t, rest, w.Status().Applied.Sub(begun))
		write(t, path, rule(9))
		after(54*time.Minute - 2*rest)
		require.Equal(t, 8, limitOf(l, "a"), "an hour, less a tenth")
		after(12*time.Minute + 3*rest)
		require.Equal(t, 9, limitOf(l, "a"), "an hour and a tenth")
	})
	w = &configfile.Watcher{Path: path, Limiter: l, Every: math.MaxInt64, Log: log.log()}
	watched(t, w, func(*testing.T) { after(rest) })
	require.Equal(t, 1, w.Status().Loads)
}

// TestPauses has the pauses between reads: 5 s, give or take a tenth, and not all the same.
func TestPauses(t *testing.T) {
	seen := map[time.Duration]bool{}
	w := &configfile.Watcher{}
	for range 1000 {
		d := w.Pause()
		require.True(t, 4500*time.Millisecond <= d && d <= 5500*time.Millisecond, "%v", d)
		seen[d] = true
	}
	require.Greater(t, len(seen), 900)
	w.Every = 1
	require.Equal(t, time.Duration(1), w.Pause())
}

// TestNeverAtRest writes a file so often that no two reads agree.
func TestNeverAtRest(t *testing.T) {
	path, l, w, log := opened(t, rule(1))
	watched(t, w, func(t *testing.T) {
		begun := time.Now()
		n := 100
		for w.Status().Loads == 1 && time.Since(begun) < time.Minute {
			n++
			text := rule(n)
			switch n % 3 { // of three, one is half done, and one is refused
			case 1:
				text = text[:len(text)/2]
			case 2:
				text = `[{"name": "a", "algorithm": "FixedWindow", "rate": "0/m"}]` + strings.Repeat(" ", n)
			}
			put(t, path, text)
			after(200 * time.Millisecond)
		}
		require.Equal(t, 2, w.Status().Loads)
		require.Zero(t, limitOf(l, "a")%3, "one that is good")
		require.GreaterOrEqual(t, limitOf(l, "a"), n-6, "the newest that is")
		require.NoError(t, w.Status().Err)
		require.GreaterOrEqual(t, time.Since(begun), 19*rest)
		require.Len(t, log.lines(), 1)

		for begun = time.Now(); w.Status().Failures == 0 && time.Since(begun) < time.Minute; n++ {
			put(t, path, fmt.Sprintf("[%d", n)) // never good
			after(200 * time.Millisecond)
		}
		s := w.Status()
		require.Equal(t, []int{2, 1}, []int{s.Loads, s.Failures})
		require.ErrorContains(t, s.Err, `must have a "," or a "]" here, but has the end of the file`)
		require.Len(t, log.lines(), 1)
	})
}

// TestByteByByte writes a file in place, byte by byte, at every speed: no half of it is applied,
// and the whole is.
func TestByteByByte(t *testing.T) {
	path, l, w, _ := opened(t, rule(1))
	random := rand.New(rand.NewPCG(1, 2))
	watched(t, w, func(t *testing.T) {
		for n := range 4 {
			text := strings.Repeat(" ", 40) + rule(1000+n)
			file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			require.NoError(t, err)
			before := limitOf(l, "a")
			for i := range len(text) {
				_, err := file.WriteString(text[i : i+1])
				require.NoError(t, err)
				if i < len(text)-2 { // then only the line feed is missing
					require.Equal(t, before, limitOf(l, "a"))
				}
				after(time.Duration(random.Int64N(int64(100 << n * time.Millisecond))))
			}
			require.NoError(t, file.Close())
			after(2*round + 20*rest)
			require.Equal(t, 1000+n, limitOf(l, "a"))
			require.NoError(t, w.Status().Err)
		}
	})
}

// TestReload applies the file at once, changed or not.
func TestReload(t *testing.T) {
	path, l, w, log := opened(t, rule(7))
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "code", Rate: ratelimit.PerMinute(1)}))
	require.NoError(t, w.Reload())
	require.Zero(t, limitOf(l, "code"))
	require.Contains(t, log.lines()[0], "removed=[code]")
	require.NoError(t, w.Reload())
	require.Equal(t, []string{""}, log.lines(), "nothing has changed")
	require.Equal(t, 3, w.Status().Loads)

	write(t, path, "[")
	for n := range 3 {
		require.EqualError(t, w.Reload(), path+`:1:2: must be a JSON value, but is the end of the file`)
		require.Equal(t, n+1, w.Status().Failures)
	}
	require.Len(t, log.lines(), 1, "once")
	require.Equal(t, 7, limitOf(l, "a"))
	write(t, path, rule(8))
	require.NoError(t, w.Reload())
	require.Equal(t, 8, limitOf(l, "a"))
	require.NoError(t, w.Status().Err)

	watched(t, w, func(t *testing.T) { // while Run waits for rest
		after(round)
		write(t, path, rule(10))
		for range 24 {
			after(rest)
		}
		write(t, path, rule(11))
		require.NoError(t, w.Reload())
		loads := w.Status().Loads
		after(2 * round)
		require.Equal(t, 11, limitOf(l, "a"))
		require.Equal(t, loads, w.Status().Loads, "Run does not apply it again")
	})
}

// TestNoFile has a path that leads to what is no file: the rules stay, and nothing waits.
func TestNoFile(t *testing.T) {
	_, l, _, _ := opened(t, rule(7))
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	makePipe(t, at("pipe"))
	require.NoError(t, os.Symlink("pipe", at("link")))
	require.NoError(t, os.Symlink("round", at("round")))
	write(t, at("large"), "[")
	require.NoError(t, os.Truncate(at("large"), 1<<30))
	write(t, at("above"), strings.Repeat(" ", 4<<20+1))
	write(t, at("fits"), rule(8)+strings.Repeat(" ", 4<<20-len(rule(8))))
	write(t, at("cut"), rule(8)[:20])
	write(t, at("mixed"), rule(8)+rule(9))
	write(t, at("deep"), strings.Repeat("[", 1<<20))
	write(t, at("none"), "[]")
	write(t, at("empty"), "")
	for _, tt := range []struct{ name, want string }{
		{"pipe", "must be a regular file, but its mode is prw-------"},
		{"link", "must be a regular file, but its mode is prw-------"},
		{"round", "too many levels of symbolic links"},
		{"", "must be a regular file, but is a directory"},
		{"missing", "no such file or directory"},
		{"cut/x", "not a directory"},
		{"large", "must have at most 4194304 bytes"},
		{"above", "must have at most 4194304 bytes"},
		{"cut", `1:16: must have a closing double quote`},
		{"mixed", `2:1: must end here, but there is "["`},
		{"deep", "1:33: must have at most 32 objects and lists within each other"},
		{"none", "1:1: rules is empty: must have at least one config, or there be a default config"},
		{"empty", "1:1: must be a JSON value, but is the end of the file"},
	} {
		log := &logged{}
		w := &configfile.Watcher{Path: at(tt.name), Limiter: l, Log: log.log()}
		err := w.Reload()
		require.Error(t, err, tt.name)
		require.Equal(t, w.Path+":"+tt.want, strings.Replace(err.Error(), ": ", ":",
			map[bool]int{true: 0, false: 1}['0' <= tt.want[0] && tt.want[0] <= '9']), tt.name)
		require.Equal(t, 7, limitOf(l, "a"), tt.name)
		require.Equal(t, configfile.Status{Err: err, Failures: 1}, w.Status(), tt.name)
		watched(t, w, func(*testing.T) { after(3 * round) })
		require.Len(t, log.lines(), 1, "%s: once", tt.name)
	}
	require.NoError(t, (&configfile.Watcher{Path: at("fits"), Limiter: l, Log: slog.New(slog.DiscardHandler)}).Reload())
	require.Equal(t, 8, limitOf(l, "a"), "a file of 4 MiB")
}

// TestSwaps replaces files and symbolic links a thousand times while requests are decided. The
// last wins, and no request is lost. No goroutine is left either: synctest.Test would wait for it in vain,
// and panic.
func TestSwaps(t *testing.T) {
	path, l, w, _ := opened(t, rule(1_000_000))
	dir := filepath.Dir(path)
	var asked, wrong atomic.Int64
	watched(t, w, func(t *testing.T) {
		stop := make(chan struct{})
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"a"}})
					asked.Add(1)
					if err != nil || !res.Allowed || res.Limit < 1_000_000 || res.Limit > 1_001_000 {
						wrong.Add(1)
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		}
		random := rand.New(rand.NewPCG(3, 4))
		for n := 1; n <= 1000; n++ {
			if n%2 == 0 {
				put(t, path, rule(1_000_000+n))
			} else { // as Kubernetes does: a link to a new directory, swapped by a rename
				target := filepath.Join(dir, fmt.Sprintf("v%d", n))
				require.NoError(t, os.Mkdir(target, 0o700))
				write(t, filepath.Join(target, "limits.json"), rule(1_000_000+n))
				require.NoError(t, os.Symlink(target, filepath.Join(dir, "data.new")))
				require.NoError(t, os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")))
				require.NoError(t, os.Symlink("data/limits.json", path+".new"))
				require.NoError(t, os.Rename(path+".new", path))
			}
			time.Sleep(time.Duration(random.Int64N(int64(600 * time.Millisecond))))
			if n%100 == 0 {
				after(2*round + 20*rest)
				require.Equal(t, 1_000_000+n, limitOf(l, "a"), "the last wins")
			}
		}
		close(stop)
		callers.Wait()
		require.NoError(t, w.Status().Err)
		require.Zero(t, w.Status().Failures)
	})
	require.Zero(t, wrong.Load())
	require.Greater(t, asked.Load(), int64(5_000))
	t.Logf("%d requests, %d loads", asked.Load(), w.Status().Loads)
}

// TestWhatCodeHasGiven keeps the Resolve of a rule, and tells a rule with another limiter as
// changed.
func TestWhatCodeHasGiven(t *testing.T) {
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Custom", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) {
		return ratelimit.NewTokenBucket(ratelimit.PerMinute(3))
	}))
	const two = `[{"name": "c", "algorithm": "Custom", "algoConfig": {"v": %d}}, {"name": "a", "algorithm": "FixedWindow", "rate": "%d/m"}]`
	path := filepath.Join(t.TempDir(), "limits.json")
	write(t, path, fmt.Sprintf(two, 1, 5))
	l, w, err := configfile.Open(path, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	log := &logged{}
	w.Log = log.log()
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "a", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(5),
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.PerMinute(50), true
		}}))
	for _, tt := range []struct {
		text, want, why string
	}{
		{fmt.Sprintf(two, 1, 6), "added=[] removed=[] changed=[a]", "the custom limiter is the same"},
		{fmt.Sprintf(two, 2, 6), "added=[] removed=[] changed=[c]", "it is another one"},
		{fmt.Sprintf(two, 2, 6) + " ", "added=[] removed=[] changed=[]", "only another text"},
		{strings.Replace(fmt.Sprintf(two, 2, 6), `"a"`, `"a", "key": "ip", "tiers": {"x": "9/m"}`, 1), "changed=[a]", "a key and tiers"},
		{strings.Replace(fmt.Sprintf(two, 2, 6), `"a"`, `"a", "key": "ip", "tiers": {"x": "8/m"}`, 1), "changed=[a]", "a tier"},
	} {
		write(t, path, tt.text)
		require.NoError(t, w.Reload(), tt.why)
		require.Contains(t, log.lines()[0], tt.want, tt.why)
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "x", Rules: []string{"a"}})
		require.NoError(t, err)
		require.Equal(t, 50, res.Limit, "the Resolve stays")
	}
	var many []string
	for n := range 25 {
		many = append(many, fmt.Sprintf(`{"name": "r%02d\n", "algorithm": "FixedWindow", "rate": "1/m"}`, n))
	}
	write(t, path, "["+strings.Join(many, ",")+"]")
	require.NoError(t, w.Reload())
	line := log.lines()
	require.Len(t, line, 1, "names are quoted")
	require.Contains(t, line[0], `r09\n and 15 more]`)
}

// TestTogether reloads from several goroutines while Run runs and the file changes. What was
// written last is applied in the end, and each reload has applied what it has read, or newer.
func TestTogether(t *testing.T) {
	path, l, w, _ := opened(t, rule(1))
	watched(t, w, func(t *testing.T) {
		var written atomic.Int64
		written.Store(1)
		var reloaders sync.WaitGroup
		for range 4 {
			reloaders.Go(func() {
				for range 50 {
					least := written.Load()
					err := w.Reload()
					if n := int64(limitOf(l, "a")); err != nil || n < least {
						t.Errorf("%v: %d is older than %d", err, n, least)
					}
					time.Sleep(70 * time.Millisecond)
					_ = w.Status()
				}
			})
		}
		for n := 2; n <= 100; n++ {
			put(t, path, rule(n))
			written.Store(int64(n))
			time.Sleep(40 * time.Millisecond)
		}
		reloaders.Wait()
		after(round + rest)
		require.Equal(t, 100, limitOf(l, "a"))
		require.Zero(t, w.Status().Failures)
	})
}

// TestRequiredRules refuses a file that has lost a rule that code needs.
func TestRequiredRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	write(t, path, rule(7))
	l, w, err := configfile.Open(path, ratelimit.WithRequiredRules("a"))
	require.NoError(t, err)
	w.Log = slog.New(slog.DiscardHandler)
	write(t, path, "\n"+strings.Replace(rule(8), `"a"`, `"b"`, 1))
	require.EqualError(t, w.Reload(), path+`:2:1: rules["a"] is missing: must exist: WithRequiredRules names it`)
	require.Equal(t, 7, limitOf(l, "a"))
}

// TestWatcherCheck refuses a file by what its rules say.
func TestWatcherCheck(t *testing.T) {
	const text = `{"rules": [{"endpoint": %q, "algorithm": "FixedWindow", "rate": "1/m"}], "default": {"algorithm": "GCRA", "rate": "9/m"}}`
	path, l, w, log := opened(t, fmt.Sprintf(text, "/login"))
	inForce := func() string {
		rules, _ := l.Rules()
		return rules[0].Endpoint
	}
	w.Check = func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
		require.Equal(t, "/login", inForce())
		require.Equal(t, "default", defaultRule.Name)
		if rules[0].Name != "/login" {
			return errors.New("no route gives " + rules[0].Endpoint)
		}
		return nil
	}
	write(t, path, fmt.Sprintf(text, "/logn"))
	require.EqualError(t, w.Reload(), path+": no route gives /logn")
	require.Equal(t, "/login", inForce(), "the rules stay")
	require.EqualError(t, w.Status().Err, path+": no route gives /logn")
	require.Equal(t, 1, w.Status().Failures)
	require.Contains(t, log.lines()[0], `msg="ratelimit: the file is refused, the rules stay"`)
	require.Error(t, w.Reload())
	require.Equal(t, []string{""}, log.lines(), "each content is logged once")

	write(t, path, fmt.Sprintf(text, "/login")+" ")
	require.NoError(t, w.Reload())
	require.Equal(t, 2, w.Status().Loads)
	watched(t, w, func(t *testing.T) {
		put(t, path, fmt.Sprintf(text, "/logn"))
		after(round + rest)
		require.Equal(t, "/login", inForce())
		require.ErrorContains(t, w.Status().Err, "no route gives /logn")
	})
	w.Check = func([]ratelimit.Rule, *ratelimit.Rule) error {
		return &ratelimit.ConfigError{Field: "rules[0].endpoint", Value: `"/logn"`, Reason: "must be a route"}
	}
	require.EqualError(t, w.Reload(), path+`:1:13: rules[0].endpoint is "/logn": must be a route`, "a field has its place")
}
