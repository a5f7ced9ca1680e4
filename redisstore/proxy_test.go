package redisstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A proxy passes bytes to a server and back, and loses replies when told to.
type proxy struct {
	addr  string
	loses atomic.Int64 // how many more replies; each is the end of its connection
}

func startProxy(t testing.TB, server string) *proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := &proxy{addr: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client, server)
		}
	}()
	return p
}

func (p *proxy) serve(client net.Conn, addr string) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		pass(client, server, func() bool { return true })
		_ = server.Close()
	}()
	pass(server, client, func() bool {
		return p.loses.Load() <= 0 || p.loses.Add(-1) < 0
	})
}

// pass passes what comes from one end to the other while may says so.
func pass(from, to net.Conn, may func() bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil || !may() {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
