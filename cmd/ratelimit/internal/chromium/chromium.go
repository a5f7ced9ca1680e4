// Package chromium drives a headless Chromium in tests, over the pipe of its DevTools protocol.
package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// The constant patience is how long the test waits for the browser to answer one call.
const patience = 2 * time.Minute

// A Browser is a running Chromium.
type Browser struct {
	requests io.Writer

	mu      sync.Mutex
	last    int                  // id of the last call; guarded by the field mu
	waiting map[int]chan message // channels of the calls without an answer, by the id of the call; guarded by the field mu
	pages   map[string]*Page     // open pages, by the id of their session; guarded by the field mu
	ended   error                // why the browser gives no more answers; guarded by the field mu
}

// A message is a call, an answer or an event of the DevTools protocol.
type message struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts Chromium, and stops it when the test ends. If Chromium is not installed, Start skips the test. If
// the environment variable RATELIMIT_REQUIRE_CHROMIUM is also set, the test fails instead.
func Start(t testing.TB) *Browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_CHROMIUM") != "" {
			t.Fatalf("RATELIMIT_REQUIRE_CHROMIUM is set, but there is no Chromium: %v", err)
		}
		t.Skipf("there is no Chromium: %v", err)
	}
	profile, err := os.MkdirTemp("", "chromium") //nolint:usetesting // a process of the browser may write to it while it is removed
	if err != nil {
		t.Fatal(err)
	}
	b := &Browser{waiting: make(map[int]chan message), pages: make(map[string]*Page)}
	stop, err := b.start(path, profile)
	if err != nil {
		_ = os.RemoveAll(profile)
		t.Fatalf("chromium does not start: %v", err)
	}
	t.Cleanup(func() {
		stop()
		_ = os.RemoveAll(profile)
	})
	return b
}

// start starts the program at path. The program reads requests from file descriptor 3 and writes answers to file
// descriptor 4; both are pipes. The function that start returns stops the program.
func (b *Browser) start(path, profile string) (stop func(), err error) {
	theirIn, requests, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirIn.Close(), requests.Close())
	}
	//nolint:noctx // the function stop, which is returned below, ends the process
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--force-device-scale-factor=1", "--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	err = cmd.Start()
	_, _ = theirIn.Close(), theirOut.Close()
	if err != nil {
		return nil, errors.Join(err, requests.Close(), answers.Close())
	}
	b.requests = requests
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(answers)
	}()
	return func() {
		_, _ = b.call(nil, "Browser.close", nil)
		_ = requests.Close()
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		_ = answers.Close()
		<-read
	}, nil
}

// The method named "read" reads messages until the pipe ends. It passes each answer to the call that waits for the
// answer, and each event to the page to which the event belongs.
func (b *Browser) read(from io.Reader) {
	r := bufio.NewReader(from)
	var err error
	for err == nil {
		var text []byte
		if text, err = r.ReadBytes(0); err != nil {
			break
		}
		var m message
		if err = json.Unmarshal(text[:len(text)-1], &m); err != nil {
			break
		}
		b.mu.Lock()
		answer, page := b.waiting[m.ID], b.pages[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case answer != nil:
			answer <- m
		case page != nil:
			page.note(m)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = fmt.Errorf("chromium has ended: %w", err)
	for id, answer := range b.waiting {
		close(answer)
		delete(b.waiting, id)
	}
}

// The Go method named "call" calls a method of the DevTools protocol for the given page, or for the whole browser
// if page is nil. It returns the result.
func (b *Browser) call(page *Page, method string, params any) (json.RawMessage, error) {
	m := message{Method: method}
	if page != nil {
		m.Session = page.session
	}
	if params != nil {
		var err error
		if m.Params, err = json.Marshal(params); err != nil {
			return nil, err
		}
	}
	answer := make(chan message, 1)
	if err := b.send(m, answer); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: no answer within %s", method, patience)
	case got, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: %w", method, b.why())
		}
		if got.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, got.Error.Message)
		}
		return got.Result, nil
	}
}

func (b *Browser) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

// send gives the message m a new id, and sends it to the browser. When the browser has answered, Browser.read
// sends this answer to the channel.
func (b *Browser) send(m message, answer chan message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended != nil {
		return b.ended
	}
	b.last++
	m.ID = b.last
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	b.waiting[m.ID] = answer
	if _, err := b.requests.Write(append(text, 0)); err != nil {
		delete(b.waiting, m.ID)
		return err
	}
	return nil
}
