//go:build unix

// Package pgserver makes what tests need to start a real PostgreSQL server.
package pgserver

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
)

// Program returns the path of the PostgreSQL program with this name. If several versions are installed, it takes the newest. If
// the program is not installed, Program skips the test. If RATELIMIT_REQUIRE_POSTGRES=1 is set in the environment, Program fails
// the test instead.
func Program(t testing.TB, name string) string {
	t.Helper()
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if slices.Sort(paths); len(paths) > 0 {
		return paths[len(paths)-1]
	}
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path
	case os.Getenv("RATELIMIT_REQUIRE_POSTGRES") == "1":
		t.Fatalf("no %s: %v", name, err)
	}
	t.Skipf("no %s on this machine", name)
	return ""
}

// Unprivileged returns the attributes with which to start a process that does not run as root, because PostgreSQL refuses to run
// as root. The attributes are nil if the test itself does not run as root. Unprivileged also returns the user and the group to whom
// the files of the process must belong.
func Unprivileged(t testing.TB) (as *syscall.SysProcAttr, uid, gid int) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil, os.Getuid(), os.Getgid()
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
			return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, uid, gid
		}
	}
	t.Skip("root cannot run PostgreSQL, and there is no other user")
	return nil, 0, 0
}

// NewCluster makes the files of a server with empty databases, in the subfolder "data" of a new folder. The superuser of the server
// is postgres, and needs no password. NewCluster returns the new folder, which the caller must remove, and the attributes with which
// to start the process of the server.
func NewCluster(t testing.TB) (dir string, as *syscall.SysProcAttr) {
	t.Helper()
	initdb := Program(t, "initdb")
	as, uid, gid := Unprivileged(t)
	dir, err := os.MkdirTemp("", "pgserver") //nolint:usetesting // the server may outlive the test, and runs as another user
	if err == nil {
		err = os.Chown(dir, uid, gid)
	}
	if err != nil {
		t.Fatal(err)
	}
	create := exec.CommandContext(t.Context(), initdb, "-D", filepath.Join(dir, "data"), "-A", "trust", "-U", "postgres",
		"-E", "UTF8", "--locale=C", "--no-sync")
	create.SysProcAttr, create.Dir = as, dir
	if out, err := create.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir, as
}
