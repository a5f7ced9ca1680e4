package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

// TestMain runs the tests. In a process that a test has started, it is the command, which measures until a signal comes.
func TestMain(m *testing.M) {
	pattern := os.Getenv("REPORT_TEST_LINES")
	if pattern == "" {
		os.Exit(m.Run())
	}
	if folders := os.Getenv("REPORT_TEST_FOLDERS"); folders != "" {
		pgserver.Folders = folders
	}
	kept, err := report(os.Stdout, os.Stderr, options{quick: true, pattern: pattern, rounds: 1_000_000})
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitCode(kept, err))
}

// command starts the command in a process of its own, whose temporary files are in the folder dir. The process has to end by a signal.
func command(t *testing.T, dir string, env ...string) (cmd *exec.Cmd, said *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), append(env, "TMPDIR="+dir)...)
	output, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(output)
}

// folder returns a folder for the files of servers, which other users may enter, too.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "report") //nolint:usetesting // PostgreSQL runs as another user, who may not enter the folder of the test
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// ended checks that cmd ends with the code of an error, that it leaves no file in dir, and that the process of the server has ended.
func ended(t *testing.T, cmd *exec.Cmd, dir string, server int) {
	t.Helper()
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit)
	assert.Equal(t, 2, exit.ExitCode())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
	process, err := os.FindProcess(server)
	require.NoError(t, err)
	assert.ErrorIs(t, process.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

// TestSignalEndsServers sends a signal to a report that measures with both servers.
func TestSignalEndsServers(t *testing.T) {
	pgserver.Program(t, "postgres")
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		dir := folder(t)
		cmd, said := command(t, dir, "REPORT_TEST_LINES=^Redis: bytes|^PostgreSQL: TokenBucket.Take, 100 keys, one caller$")
		measures := false
		for !measures && said.Scan() {
			measures = strings.HasPrefix(said.Text(), "PostgreSQL: keys=")
		}
		require.True(t, measures)
		pids, err := filepath.Glob(filepath.Join(dir, "pgserver*", "data", "postmaster.pid"))
		require.NoError(t, err)
		require.Len(t, pids, 1)
		file, err := os.ReadFile(pids[0])
		require.NoError(t, err)
		pid, _, _ := strings.Cut(string(file), "\n")
		server, err := strconv.Atoi(pid)
		require.NoError(t, err)
		redis, err := filepath.Glob(filepath.Join(dir, "ratelimit-bench-*"))
		require.NoError(t, err)
		require.Len(t, redis, 1)
		require.NoError(t, cmd.Process.Signal(signal))
		ended(t, cmd, dir, server)
	}
}

// TestSignalEndsStart sends a signal while the files of the server are made, by an initdb that never ends.
func TestSignalEndsStart(t *testing.T) {
	pgserver.Program(t, "postgres")
	bin, dir := folder(t), folder(t)
	fake := "#!/bin/sh\necho $$ > made\nmv made pid\nexec sleep 1000\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "initdb"), []byte(fake), 0o755)) //nolint:gosec // a program
	cmd, said := command(t, dir, "REPORT_TEST_LINES=^PostgreSQL: ", "REPORT_TEST_FOLDERS="+bin)
	var initdb int
	require.Eventually(t, func() bool {
		pids, _ := filepath.Glob(filepath.Join(dir, "pgserver*", "pid"))
		if len(pids) == 0 {
			return false
		}
		file, err := os.ReadFile(pids[0])
		require.NoError(t, err)
		initdb, err = strconv.Atoi(strings.TrimSpace(string(file)))
		return err == nil
	}, time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	for said.Scan() { // until the process has closed its output
	}
	ended(t, cmd, dir, initdb)
}

// A closed counts how often it is closed.
type closed struct {
	times int
	err   error
}

func (c *closed) Close() error {
	c.times++
	return c.err
}

// TestServers closes each server once, also if one fails to close, and none that did not start.
func TestServers(t *testing.T) {
	var s servers
	s.close() // does nothing
	failed := errors.New("failed")
	all := []*closed{{err: failed}, {}}
	for _, c := range all {
		got, err := serve(&s, func(context.Context) (*closed, error) { return c, nil })
		require.NoError(t, err)
		assert.Same(t, c, got)
	}
	_, err := serve(&s, func(context.Context) (*closed, error) { return nil, failed })
	require.ErrorIs(t, err, failed)
	s.close()
	s.close()
	assert.Equal(t, []*closed{{1, failed}, {1, nil}}, all)
}
