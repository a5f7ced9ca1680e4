//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const speedLimits = `{"rules": [
  {"endpoint": "/search", "algorithm": "TokenBucket", "rate": "60/m"},
  {"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "5/m", "key": "ip"},
  {"endpoint": "/api/*", "algorithm": "SlidingWindowCounter", "rate": "100/m"}
], "default": {"algorithm": "FixedWindow", "rate": "600/m"}}`

// writeLog writes a log in the combined format with n requests, of 20,000 clients. Half of the requests
// come from a few of them.
func writeLog(w io.Writer, n int) error {
	b := bufio.NewWriterSize(w, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(r, 1.2, 8, 19_999)
	paths := []string{"/", "/search", "/login", "/api/items", "/api/items/7", "/static/app.js", "/cart", "/checkout"}
	at := time.Date(2026, 10, 10, 0, 0, 0, 0, time.UTC)
	for i := range n {
		if i%20 == 0 {
			at = at.Add(time.Second)
		}
		c := uint64(i/2) % 20_000
		if i%2 == 0 {
			c = clients.Uint64()
		}
		fmt.Fprintf(b, "10.%d.%d.%d - - [%s] \"GET %s?q=%d HTTP/1.1\" 200 %d \"https://example.com/\" \"Mozilla/5.0 (X11; Linux x86_64; "+
			"rv:120.0)\"\n",
			c>>16, c>>8&255, c&255, at.Format("02/Jan/2006:15:04:05 -0700"), paths[r.IntN(len(paths))], r.IntN(1000), r.IntN(100_000))
	}
	return b.Flush()
}

// writeLogTo writes such a log to a file.
func writeLogTo(tb testing.TB, path string, n int) {
	tb.Helper()
	require.NoError(tb, save(path, func(w io.Writer) error { return writeLog(w, n) }))
}

// cost runs a program, and returns the processor time that it took and its largest memory in bytes.
func cost(tb testing.TB, name string, args ...string) (time.Duration, int64) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), name, args...)
	cmd.Stderr = os.Stderr
	require.NoError(tb, cmd.Run())
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	require.True(tb, ok)
	largest := int64(usage.Maxrss) << 10 //nolint:unconvert // Maxrss is an int32 on some machines
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), largest
}

// TestReplaySpeed compares replay with mawk, which counts the lines of each client, and the memory for
// a million lines with that for ten. It takes two gigabytes of disk, and is run by
//
//	RATELIMIT_SPEED=1 go test -v -run TestReplaySpeed ./cmd/ratelimit
func TestReplaySpeed(t *testing.T) {
	if os.Getenv("RATELIMIT_SPEED") != "1" {
		t.Skip("RATELIMIT_SPEED=1 is not set")
	}
	dir := t.TempDir()
	program, config := filepath.Join(dir, "ratelimit"), filepath.Join(dir, "limits.json")
	require.NoError(t, exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").Run())
	require.NoError(t, os.WriteFile(config, []byte(speedLimits), 0o600))
	var memory [2]int64
	for i, n := range []int{1_000_000, 10_000_000} {
		log := filepath.Join(dir, "access.log")
		writeLogTo(t, log, n)
		maxRatio := 3.0
		best := [2]time.Duration{time.Hour, time.Hour}
		for range 3 { // the fastest of three counts, because other programs run too
			count, _ := cost(t, "mawk", "{n[$1]++} END{for(k in n) c++; print c}", log)
			var replay time.Duration
			replay, memory[i] = cost(t, program, "replay", log, "-config", config)
			best = [2]time.Duration{min(best[0], count), min(best[1], replay)}
		}
		ratio := float64(best[1]) / float64(best[0])
		t.Logf("%d lines: mawk %v, replay %v, %.2f times that; %d MB at most", n, best[0].Round(time.Millisecond),
			best[1].Round(time.Millisecond), ratio, memory[i]>>20)
		require.Less(t, ratio, maxRatio)
	}
	require.Less(t, memory[1], memory[0]*5/4, "memory does not grow with the lines")
}

// BenchmarkReplay measures a request of a log: to read it, to decide, and to count it.
func BenchmarkReplay(b *testing.B) {
	const n = 200_000
	b.Chdir(b.TempDir())
	var log strings.Builder
	require.NoError(b, writeLog(&log, n))
	require.NoError(b, os.WriteFile("limits.json", []byte(speedLimits), 0o600))
	require.NoError(b, os.WriteFile("shadow.json", []byte(strings.ReplaceAll(speedLimits, `"algorithm"`, `"mode": "shadow", "algorithm"`)),
		0o600))
	for _, row := range []struct{ name, args string }{
		{"one", "-config limits.json"}, {"shadow", "-config shadow.json"}, {"against", "-config limits.json -against shadow.json"},
	} {
		b.Run("config="+row.name, func(b *testing.B) {
			for b.Loop() {
				t := &terminal{in: strings.NewReader(log.String()), out: io.Discard, err: io.Discard, width: 80}
				require.Equal(b, exitOK, run(b.Context(), t, strings.Fields("replay - "+row.args)))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/line")
		})
	}
}
