package redisstore_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fault says what a proxy does with the reply to a script.
type fault int32

const (
	loses  fault = iota // closes the connection instead of replying
	resets              // resets the connection in the middle of the reply
	drops               // never replies
	delays              // replies after delay
)

// delay is longer than the timeout of the stores that are behind a delaying proxy.
const delay = time.Second

// A proxy passes bytes between a client and a server, and causes faults.
type proxy struct {
	addr  string
	fault atomic.Int32
	left  atomic.Int64 // how many more replies get the fault
	met   atomic.Int64 // how many replies have got it
	conns atomic.Int64 // how many connections clients have made
	slow  atomic.Int64 // how much later each reply comes, in nanoseconds
}

// startProxy starts a proxy of a server. It ends with the test.
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
			p.conns.Add(1)
			go p.serve(client.(*net.TCPConn), server)
		}
	}()
	return p
}

// will makes the next n replies to scripts get the fault f.
func (p *proxy) will(f fault, n int) {
	p.fault.Store(int32(f))
	p.met.Store(0)
	p.left.Store(int64(n))
}

// serve passes requests from client to the server, and replies back, until one of the two
// closes the connection.
func (p *proxy) serve(client *net.TCPConn, addr string) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var script atomic.Bool // whether the reply to a script is outstanding
	go func() {
		defer func() { _ = server.Close() }()
		pass(client, func(request []byte) bool {
			if bytes.Contains(request, []byte("\r\nevalsha\r\n")) || bytes.Contains(request, []byte("\r\neval\r\n")) {
				script.Store(true)
			}
			_, err := server.Write(request)
			return err == nil
		})
	}()
	pass(server, func(reply []byte) bool {
		if slow := time.Duration(p.slow.Load()); slow > 0 {
			<-time.After(slow)
		}
		if script.Swap(false) && p.left.Load() > 0 && p.left.Add(-1) >= 0 {
			p.met.Add(1)
			return fault(p.fault.Load()).meet(client, reply)
		}
		_, err := client.Write(reply)
		return err == nil
	})
}

// meet applies f to a reply, and reports whether the connection goes on.
func (f fault) meet(client *net.TCPConn, reply []byte) bool {
	switch f {
	case drops:
		return true
	case delays:
		<-time.After(delay)
		_, err := client.Write(reply)
		return err == nil
	case resets:
		_, _ = client.Write(reply[:len(reply)/2])
		_ = client.SetLinger(0)
	}
	return false
}

// pass calls to with the bytes that come from a connection, as long as to returns true.
func pass(from net.Conn, to func([]byte) bool) {
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if err != nil || !to(buffer[:n]) {
			return
		}
	}
}
