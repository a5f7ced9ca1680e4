package pgserver

import (
	"errors"
	"syscall"
	"testing"
)

// Program is [Find] for a test: it skips the test if the machine does not have the program, and fails it if the machine must have it.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := Find(name)
	check(t, err)
	return path
}

// Unprivileged is [User] for a test.
func Unprivileged(t testing.TB) (as *syscall.SysProcAttr, uid, gid int) {
	t.Helper()
	as, uid, gid, err := User()
	check(t, err)
	return as, uid, gid
}

// Start returns a [Server] that runs. If the machine cannot run PostgreSQL, Start skips the test, or fails it if the environment has
// RATELIMIT_REQUIRE_POSTGRES=1. The caller closes the Server, which may outlive the test.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	Program(t, "postgres")
	s, err := New(t.Context(), settings...)
	check(t, err)
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(errors.Join(err, s.Close()))
	}
	return s
}

// check skips the test if err means that this machine cannot run PostgreSQL. For another error it fails the test.
func check(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, ErrNone):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}
