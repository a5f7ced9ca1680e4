package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// processEnv is the environment variable that makes the test binary run as a process of the gateway. Its value is a
// setup in JSON.
const processEnv = "LLMGATEWAY_TEST_PROCESS"

func TestMain(m *testing.M) {
	if text := os.Getenv(processEnv); text != "" {
		log.Fatal(runProcess(text))
	}
	os.Exit(m.Run())
}

// A setup says how the processes of a test limit their clients.
type setup struct {
	Redis    string                    // the URL of the Redis server
	Model    string                    // the URL of the model
	Timeout  time.Duration             // of a call of Redis
	Replicas int                       // how many processes share the limits while Redis does not answer; with 0, all requests are denied then
	Rates    map[string]ratelimit.Rate // the rates of rules, by name
}

// gateway returns a gateway with the rules of the example at the rates of s.
func (s *setup) gateway(m model) (*gateway, error) {
	where, err := redis.ParseURL(s.Redis)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.New(redis.NewClient(where), redisstore.WithTimeout(s.Timeout))
	if err != nil {
		return nil, err
	}
	policy := ratelimit.FailClosed
	if s.Replicas > 0 {
		policy = ratelimit.FailLocal(s.Replicas)
	}
	g, err := newGateway(m, ratelimit.WithStore(store), ratelimit.WithName("llmgateway"), ratelimit.WithFailurePolicy(policy))
	for name, rate := range s.Rates {
		if err == nil {
			err = g.limiter.UpdateRate(name, rate)
		}
	}
	return g, err
}

// runProcess serves the gateway at a free port, until the process is killed. It prints the address, and then what
// becomes of each request: "start ID" when the model begins, "used ID TOKENS" when it ends, "done ID" when the request
// is settled.
func runProcess(text string) error {
	var s setup
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	g, err := s.gateway(func(ctx context.Context, prompt string, emit func(string, int) error) error {
		fmt.Println("start", prompt)
		used := 0
		defer func() { fmt.Println("used", prompt, used) }()
		return askModel(ctx, s.Model, prompt, func(piece string, tokens int) error {
			used += tokens
			return emit(piece, tokens)
		})
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.ServeHTTP(w, r)
		fmt.Println("done", r.Header.Get("X-Id"))
	})}
	return server.Serve(listener)
}

// askModel sends a prompt to the model at url. Each line of the answer is a piece, and begins with its tokens.
func askModel(ctx context.Context, url, prompt string, emit func(piece string, tokens int) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(prompt))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(line, " ")
		tokens, err := strconv.Atoi(first)
		if err != nil {
			return err
		}
		if err := emit(line, tokens); err != nil {
			return err
		}
	}
}

// A process is a process of the gateway, and what it has printed.
type process struct {
	url  string
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended, and everything is read
	errs bytes.Buffer  // what it has logged; may be read when over is closed

	mu       sync.Mutex
	requests map[string]*printed // guarded by mu
}

// A printed is what a process has printed about a request.
type printed struct {
	ended, done bool // whether the model has ended, and the request is settled
	used        int
}

// startProcess starts a process of the gateway. It ends with the test.
func startProcess(t *testing.T, s setup) *process {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{over: make(chan struct{}), requests: make(map[string]*printed)}
	p.cmd = exec.CommandContext(context.Background(), self) // Cleanup ends it
	p.cmd.Env = append(os.Environ(), processEnv+"="+string(text))
	p.cmd.Stderr = &p.errs
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.kill)
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "the process has not started")
	p.url = lines.Text()
	go func() {
		defer close(p.over)
		for lines.Scan() {
			p.note(strings.Fields(lines.Text()))
		}
		_ = p.cmd.Wait()
	}()
	return p
}

// note notes what a line says, of which these are the words.
func (p *process) note(words []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.requests[words[1]]
	switch {
	case words[0] == "start":
		p.requests[words[1]] = new(printed)
	case words[0] == "used":
		r.ended = true
		r.used, _ = strconv.Atoi(words[2])
	case r != nil: // done; a request that was denied has not started
		r.done = true
	}
}

// kill kills the process, and returns when everything that it has printed is read.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.over
}

// idle reports whether all requests that have started are settled.
func (p *process) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if !r.done {
			return false
		}
	}
	return true
}
