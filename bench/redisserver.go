package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoRedis means that this machine has no redis-server, and that there need
// not be one.
var ErrNoRedis = errors.New("bench: there is no redis-server on this machine")

// A RedisServer is a redis-server of its own: on a free port of the loopback, with
// a folder of its own, and without persistence.
type RedisServer struct {
	addr    string
	dir     string
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	admin   *redis.Client // for what is not measured
	clients []*redis.Client
}

// StartRedis starts a RedisServer. Its error matches [ErrNoRedis] where there is
// none to be started, unless RATELIMIT_REQUIRE_REDIS=1 is in the environment.
func StartRedis(ctx context.Context) (*RedisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
			return nil, errors.New("bench: RATELIMIT_REQUIRE_REDIS is set, and there is no redis-server")
		}
		return nil, ErrNoRedis
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "ratelimit-bench-")
	if err != nil {
		return nil, err
	}
	s := &RedisServer{addr: net.JoinHostPort("127.0.0.1", port), dir: dir, ended: make(chan struct{})}
	// Close ends it.
	s.process = exec.CommandContext(context.Background(), path, "--port", port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", dir, "--logfile", "log")
	if err := s.process.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		_ = s.process.Wait()
		close(s.ended)
	}()
	s.admin = s.Client()
	if err := s.ready(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// freePort returns a port of the loopback that nobody listens on.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// ready waits until the server answers. Another one may have taken the port since
// it was free, so it is asked who it is.
func (s *RedisServer) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		pid, err := s.figure(ctx, "server", "process_id")
		switch {
		case err == nil && int(pid) == s.process.Process.Pid:
			return nil
		case err == nil:
			return fmt.Errorf("bench: another server listens on %s", s.addr)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.ended:
			return fmt.Errorf("bench: redis-server has ended: %v", s.process.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("bench: redis-server does not answer: %w", err)
		}
	}
}

// Close ends the server and closes its clients.
func (s *RedisServer) Close() error {
	for _, c := range s.clients {
		_ = c.Close()
	}
	err := s.process.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.ended
	return errors.Join(err, os.RemoveAll(s.dir))
}

const (
	// redisPool is how many connections a client may have: one for each caller
	// that any workload has, so that nobody waits for one.
	redisPool = 64

	// redisTimeout is how long everyone waits for an answer. On a machine that is
	// busy with something else, one that gives up sooner would have errors where
	// the others are slow.
	redisTimeout = 5 * time.Second
)

// Client returns a client of its own for each call, all with the same options. It
// is closed with the server.
func (s *RedisServer) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: s.addr, PoolSize: redisPool, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
	})
	s.clients = append(s.clients, c)
	return c
}

// An Effort is the processor time that a server has used.
type Effort struct {
	Scripts time.Duration // in scripts, with all that these called
	Whole   time.Duration // in all: connections, protocol, scripts
}

// Effort returns what the server has used since it started.
func (s *RedisServer) Effort(ctx context.Context) (Effort, error) {
	user, err := s.figure(ctx, "cpu", "used_cpu_user")
	if err != nil {
		return Effort{}, err
	}
	system, err := s.figure(ctx, "cpu", "used_cpu_sys")
	if err != nil {
		return Effort{}, err
	}
	stats, err := s.admin.Info(ctx, "commandstats").Result()
	return Effort{
		Scripts: scriptTime(stats),
		Whole:   time.Duration((user + system) * float64(time.Second)),
	}, err
}

// scriptTime adds up the time of the commands that run a script, from INFO
// commandstats. What a script calls is listed there as well, and is a part of
// that time already.
func scriptTime(stats string) (sum time.Duration) {
	for line := range strings.SplitSeq(stats, "\r\n") {
		name, fields, _ := strings.Cut(line, ":")
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall":
			_, rest, _ := strings.Cut(fields, "usec=")
			usec, _, _ := strings.Cut(rest, ",")
			n, _ := strconv.ParseInt(usec, 10, 64)
			sum += time.Duration(n) * time.Microsecond
		}
	}
	return sum
}

// figure returns a number of a section of INFO.
func (s *RedisServer) figure(ctx context.Context, section, name string) (float64, error) {
	info, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("bench: INFO %s has no %s", section, name)
}

// empty removes all keys.
func (s *RedisServer) empty(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }

// bytes returns what all keys together take, by MEMORY USAGE.
func (s *RedisServer) bytes(ctx context.Context) (int64, error) {
	keys, err := s.admin.Keys(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, key := range keys {
		n, err := s.admin.MemoryUsage(ctx, key, 0).Result() // 0 counts all elements
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
