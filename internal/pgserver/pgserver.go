// Package pgserver starts real PostgreSQL servers, for tests and for measurements.
package pgserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNone means that this machine cannot run PostgreSQL, and need not: the environment does not have
// RATELIMIT_REQUIRE_POSTGRES=1. The text of the error says what is missing.
var ErrNone = errors.New("pgserver: there is no PostgreSQL on this machine")

// Folders is a pattern that matches the folders of programs that the packages of Linux distributions make: one for each version of
// PostgreSQL. Find looks there before it looks in the PATH. Tests of what happens without PostgreSQL change it.
var Folders = "/usr/lib/postgresql/*/bin"

// none returns the error of a machine on which the given part of PostgreSQL is missing.
func none(missing string) error {
	if os.Getenv("RATELIMIT_REQUIRE_POSTGRES") == "1" {
		return fmt.Errorf("pgserver: RATELIMIT_REQUIRE_POSTGRES is set, and there is no %s", missing)
	}
	return fmt.Errorf("%w: no %s", ErrNone, missing)
}

// Find returns the path of a program of PostgreSQL, of the newest version that is installed. If there is none, the error of Find
// matches ErrNone, unless the environment has RATELIMIT_REQUIRE_POSTGRES=1.
func Find(name string) (string, error) {
	paths, _ := filepath.Glob(filepath.Join(Folders, name))
	if len(paths) > 0 {
		return slices.MaxFunc(paths, func(a, b string) int { return cmp.Compare(versionOf(a), versionOf(b)) }), nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", none(name)
	}
	return path, nil
}

// versionOf returns the version in the path of a program in one of the Folders, such as 16, or 9.6 for an old one.
func versionOf(path string) float64 {
	version, _ := strconv.ParseFloat(filepath.Base(filepath.Dir(filepath.Dir(path))), 64)
	return version
}

// A Server is a PostgreSQL server with a folder and a port of its own. Its superuser is postgres, and needs no password. It listens on
// the loopback address 127.0.0.1 only.
type Server struct {
	Dir      string               // its folder, with the files of the databases in the subfolder "data", and its output in the file "log"
	Port     int                  // where it listens
	As       *syscall.SysProcAttr // the user that it runs as, because PostgreSQL refuses to run as root; nil for the present user
	Settings []string             // such as "fsync=off": they have precedence over the file postgresql.conf
	Process  *os.Process          // nil while the server does not run

	ended chan struct{} // closed when Process and its children have ended
}

// New makes the files of a Server with empty databases. Run starts the Server, and Close removes the files.
func New(ctx context.Context, settings ...string) (_ *Server, err error) {
	initdb, err := Find("initdb")
	if err != nil {
		return nil, err
	}
	s := &Server{Settings: settings}
	if s.Dir, s.As, err = folder(); err != nil {
		return nil, err
	}
	create := exec.CommandContext(ctx, initdb, "-D", s.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
	create.SysProcAttr, create.Dir = s.As, s.Dir
	out, err := create.CombinedOutput()
	if err == nil {
		s.Port, err = freePort(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: initdb: %w: %s", err, out), s.Close())
	}
	return s, nil
}

// folder makes a folder for the files of a server. It also returns how to start the server: as the user to whom the folder belongs.
func folder() (dir string, as *syscall.SysProcAttr, err error) {
	as, uid, gid, err := User()
	if err != nil {
		return "", nil, err
	}
	dir, err = os.MkdirTemp("", "pgserver")
	if err == nil && as != nil {
		err = os.Chown(dir, uid, gid)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, as, nil
}

// freePort returns a port of the loopback address 127.0.0.1 on which no process listens.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// URL returns the address of the database named postgres, for its superuser.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.Port)
}

// Run starts the Server, and returns when it accepts connections. If it does not within a minute, or until ctx ends, Run ends it and
// returns an error. After Run, the Server does not depend on ctx.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	path, err := Find("postgres")
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.Dir, "-c", "listen_addresses=127.0.0.1"}
	for _, set := range s.Settings {
		args = append(args, "-c", set)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, args...)
	// The output goes through a pipe, not directly into the file. Wait then returns when all processes that have the pipe have ended,
	// the children too, but at most WaitDelay after the main process.
	output := struct{ io.Writer }{log}
	cmd.SysProcAttr, cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = s.As, s.Dir, &output, &output, 10*time.Second
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	ended := make(chan struct{})
	s.Process, s.ended = cmd.Process, ended
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(ended)
	}()
	for !s.ready() {
		select {
		case <-time.After(10 * time.Millisecond):
			continue
		case <-ended:
			err = errors.New("pgserver: the server has ended")
		case <-ctx.Done():
			err = fmt.Errorf("pgserver: the server did not start: %w", ctx.Err())
		}
		s.Stop()
		said, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
		return fmt.Errorf("%w: %s", err, said[max(0, len(said)-2000):])
	}
	return nil
}

// ready reports whether the server accepts connections. The first line of the file postmaster.pid is the number of its process, and the
// eighth becomes "ready".
func (s *Server) ready() bool {
	file, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := strings.Split(string(bytes.TrimSpace(file)), "\n")
	return len(lines) >= 8 && lines[0] == strconv.Itoa(s.Process.Pid) && strings.TrimSpace(lines[7]) == "ready"
}

// Stop ends the processes of the Server, if it runs, and cuts all connections. The Server does not wait for its clients and writes
// nothing more to its databases: Run then starts it as after a crash. Its files stay.
func (s *Server) Stop() {
	s.end(syscall.SIGQUIT)
}

// Kill ends the main process of the Server at once, if it runs. Its children end by themselves as soon as they notice, and Kill waits
// for them, for 10 seconds at most: until then they keep the port and the files.
func (s *Server) Kill() {
	s.end(syscall.SIGKILL)
}

// end sends the signal to the main process of the server, and waits until it and its children have ended.
func (s *Server) end(signal syscall.Signal) {
	if s.Process == nil {
		return
	}
	if err := s.Process.Signal(signal); err != nil { // there are systems without SIGQUIT
		_ = s.Process.Kill()
	}
	<-s.ended
	s.Process = nil
}

// Close ends the Server, if it runs, and removes its files.
func (s *Server) Close() error {
	s.Stop()
	return os.RemoveAll(s.Dir)
}
