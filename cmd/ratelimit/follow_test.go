package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFollow writes lines to a pipe, waits, and ends the command by Ctrl-C.
func TestFollow(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("limits.json", []byte(exampleLimits), 0o600))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, lines := io.Pipe()
		defer func() { _ = lines.Close() }()
		var out, errs strings.Builder
		code := make(chan int)
		go func() {
			code <- run(ctx, &terminal{in: in, out: &out, err: &errs, width: 80, outLive: true},
				strings.Fields("replay - -config limits.json -follow"))
		}()
		for i := range 6 {
			_, err := io.WriteString(lines, logLine(i, "/login"))
			require.NoError(t, err)
		}
		time.Sleep(2*redrawEvery + 1) // in the bubble this takes no time
		synctest.Wait()
		require.Equal(t, 2, strings.Count(out.String(), clearScreen), "one page in two seconds")
		require.Contains(t, out.String(), clearScreen+"5 requests, 2026-10-10 12:00:00 to 2026-10-10 12:00:04 UTC\ndenied: 2 requests",
			"the last line may be a second late")
		cancel()
		require.Equal(t, exitOK, <-code)
		last := out.String()[strings.LastIndex(out.String(), clearScreen):]
		require.Contains(t, last, clearScreen+"6 requests, ", "the report so far")
		require.Contains(t, last, "denied: 3 requests")
	})
	for _, args := range []string{"replay a.log -config limits.json -follow", "replay - -config limits.json -follow -json"} {
		got := do(t, strings.Fields(args)...)
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.err, "-follow is for the standard input")
	}
}

// TestInterruptedPrintsTheReport ends a command by Ctrl-C while it waits for its input.
func TestInterruptedPrintsTheReport(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("limits.json", []byte(exampleLimits), 0o600))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		in, lines := io.Pipe()
		defer func() { _ = lines.Close() }()
		var out, errs strings.Builder
		code := make(chan int)
		go func() {
			code <- run(ctx, &terminal{in: in, out: &out, err: &errs, width: 80}, strings.Fields("replay - -config limits.json"))
		}()
		_, err := io.WriteString(lines, logLine(0, "/login")+logLine(1, "/login"))
		require.NoError(t, err)
		synctest.Wait()
		cancel()
		require.Equal(t, exitFailed, <-code)
		require.Contains(t, out.String(), "2 requests, ")
		require.Contains(t, errs.String(), "interrupted: this is the report so far")
	})
}
