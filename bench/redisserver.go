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

// ErrNoRedis means that this machine has no redis-server, and that none is required: the
// environment does not have RATELIMIT_REQUIRE_REDIS=1.
var ErrNoRedis = errors.New("bench: there is no redis-server on this machine")

// A RedisServer is a redis-server process that listens on a free port of the loopback address
// 127.0.0.1. It has a folder of its own, and saves nothing to disk.
type RedisServer struct {
	addr    string
	dir     string
	process *exec.Cmd
	ended   chan struct{}   // closed when the process has ended
	admin   *redis.Client   // makes calls that are not measured
	clients []*redis.Client // all clients; Close closes them
}

// StartRedis starts a RedisServer. If the machine has no redis-server, it returns [ErrNoRedis]. If
// the environment also has RATELIMIT_REQUIRE_REDIS=1, it returns another error.
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
	// The end of ctx does not end the process. The method Close ends it.
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

// freePort returns a port of the loopback address 127.0.0.1 on which no process listens.
func freePort(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// ready waits until the server answers. It also checks the process ID of the server that answers,
// because another server may have taken the port in the meantime.
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
	// redisPool is the maximum number of connections of a client. No workload has more callers than
	// this, so no caller waits for a connection.
	redisPool = 64

	// redisTimeout is how long all clients wait for an answer. All subjects need the
	// same timeout: on a busy machine, a client with a shorter timeout would return
	// errors where other clients are only slow.
	redisTimeout = 5 * time.Second
)

// Client returns a new client. All clients have the same options, and Close closes them.
func (s *RedisServer) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: s.addr, PoolSize: redisPool, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
	})
	s.clients = append(s.clients, c)
	return c
}

// An Effort is the processor time that a server has used.
type Effort struct {
	Scripts time.Duration // processor time of scripts, including the commands that the scripts call
	Whole   time.Duration // processor time for everything: connections, protocol and scripts
}

// Effort returns the processor time that the server has used since it started.
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

// scriptTime returns the total time of the commands that run a script. The given text is the
// section commandstats of the server's INFO. The time of a script includes the commands that the
// script calls, so the rows of all other commands are ignored.
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

// figure returns the number with the given name from the given section of the server's INFO.
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

// empty removes all keys from the server.
func (s *RedisServer) empty(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }

// bytes returns the memory of all keys together, as MEMORY USAGE reports it.
func (s *RedisServer) bytes(ctx context.Context) (int64, error) {
	keys, err := s.admin.Keys(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, key := range keys {
		n, err := s.admin.MemoryUsage(ctx, key, 0).Result() // 0 makes Redis count all elements, without sampling
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}
