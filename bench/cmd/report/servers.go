package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// The type servers holds the servers that a report has started. A signal that ends the report ends
// them too.
type servers struct {
	mu      sync.Mutex
	running []io.Closer     // guarded by mu
	signals context.Context // ends with a signal; nil until the first server is started
	release func()          // makes signals end only the report
}

// serve calls the function start, and returns the server that it has started. If a signal comes in
// the meantime, the context of start ends.
func serve[S io.Closer](s *servers, start func(context.Context) (S, error)) (server S, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signals == nil {
		ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		keep := context.AfterFunc(ctx, func() {
			s.end()
			os.Exit(2)
		})
		s.signals = ctx
		s.release = func() {
			keep()
			release()
		}
	}
	server, err = start(s.signals)
	if err == nil {
		s.running = append(s.running, server)
	}
	return server, err
}

// end ends the servers that run.
func (s *servers) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range s.running {
		_ = server.Close()
	}
	s.running = nil
}

// close ends the servers that run. A signal then ends only the report.
func (s *servers) close() {
	if s.release != nil {
		s.release()
	}
	s.end()
}
