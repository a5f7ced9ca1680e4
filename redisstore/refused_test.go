package redisstore_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// A secure server is a redis-server with a port for TLS. Clients know its certificate by roots.
type secure struct {
	*server
	tls   string // the address of the port for TLS
	roots *x509.CertPool
}

// startTLS starts a server with a certificate of its own. The argument clients is the server's option
// tls-auth-clients: whether clients need a certificate.
func startTLS(t testing.TB, clients string, args ...string) secure {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	roots, port := x509.NewCertPool(), freePort(t)
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "EC PRIVATE KEY", Bytes: private},
	} {
		text := pem.EncodeToMemory(block)
		roots.AppendCertsFromPEM(text)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	args = append(args, "--tls-port", port, "--tls-auth-clients", clients, "--tls-cert-file", filepath.Join(dir, "cert"),
		"--tls-key-file", filepath.Join(dir, "key"), "--tls-ca-cert-file", filepath.Join(dir, "cert"))
	return secure{startReal(t, args...), "127.0.0.1:" + port, roots}
}

// TestRefusals checks that an error says why a server that can be reached refuses each connection.
func TestRefusals(t *testing.T) {
	t.Parallel()
	open, closed := startTLS(t, "no"), startTLS(t, "yes")
	trusts := func(s secure) *tls.Config { return &tls.Config{RootCAs: s.roots} }
	full := startReal(t, "--maxclients", "1")
	until(t, func(context.Context) error { // until the server has closed the connection of the function await
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", full.addr)
		require.NoError(t, err)
		_, err = conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		reply := make([]byte, 5)
		if _, _ = conn.Read(reply); string(reply) != "+PONG" {
			_ = conn.Close()
			return errors.New(string(reply))
		}
		t.Cleanup(func() { _ = conn.Close() })
		return nil
	})
	for name, row := range map[string]struct {
		opt  redis.Options
		text string
	}{
		"a plain client on a port for TLS":  {redis.Options{Addr: open.tls}, "it may expect TLS"},
		"a client with TLS on a plain port": {redis.Options{Addr: open.addr, TLSConfig: trusts(open)}, "the server may not use TLS"},
		"a certificate that nobody knows":   {redis.Options{Addr: open.tls, TLSConfig: &tls.Config{}}, "certificate signed by unknown authority"},
		"a client without a certificate":    {redis.Options{Addr: closed.tls, TLSConfig: trusts(closed)}, "certificate required"},
		"too many clients":                  {redis.Options{Addr: full.addr}, "max number of clients reached"},
		"no such database":                  {redis.Options{Addr: open.addr, DB: 99}, "DB index is out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			reason{client: redis.NewClient(&row.opt), class: redisstore.ClassDial, text: row.text}.check(t)
		})
	}
	client := redis.NewClient(&redis.Options{Addr: open.tls, TLSConfig: trusts(open)})
	defer func() { _ = client.Close() }()
	s := newStore(t, client)
	require.NoError(t, s.Ping(t.Context()))
	assert.True(t, take(t, s, askFor("a")).Allowed, "with the right certificate, nothing is refused")
}

// TestBusyServer lets another client run a script that does not end. It checks that the server's refusal to run
// anything else means that nothing was charged.
func TestBusyServer(t *testing.T) {
	srv := startReal(t, "--busy-reply-threshold", "1")
	client, other := srv.client(t), srv.client(t)
	s := newStore(t, client, redisstore.WithTimeout(short))
	u, granted := ask(all[0], yearly(100_000), 1), 1
	take(t, s, u)
	ended := make(chan error)
	go func() { ended <- other.Eval(context.Background(), "while true do end", nil).Err() }()
	var failed *redisstore.Error
	until(t, func(context.Context) error {
		_, err := s.Take(context.Background(), []ratelimit.Ask{u})
		switch {
		case err == nil:
			granted++
			return errors.New("the script has not begun")
		case errors.As(err, &failed) && failed.Class == redisstore.ClassBusy:
			return nil
		}
		return err
	})
	assert.ErrorContains(t, failed, "BUSY")
	assert.False(t, failed.NotSent(), "it was sent, and refused")
	assert.False(t, failed.Answered(), "the server decides about no key")
	until(t, func(ctx context.Context) error { return client.ScriptKill(ctx).Err() })
	require.Error(t, <-ended)
	assert.Equal(t, 100_000-granted, left(t, s, u), "nothing was charged")
}

// TestPingEnds calls Ping of a server that accepts connections and is silent. It checks that Ping ends with its
// context, with TLS and without, although the client would wait much longer.
func TestPingEnds(t *testing.T) {
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var clients []redis.UniversalClient
	defer func() {
		_ = silent.Close() // this also closes the connections, which nobody has accepted; until then the clients cannot be closed
		for _, client := range clients {
			_ = client.Close()
		}
	}()
	for _, conf := range []*tls.Config{nil, {InsecureSkipVerify: true}} {
		opt := redis.UniversalOptions{
			Addrs: []string{silent.Addr().String()}, TLSConfig: conf, DialTimeout: time.Hour, ReadTimeout: time.Hour, MaxRetries: -1,
		}
		for _, client := range []redis.UniversalClient{redis.NewClient(opt.Simple()), redis.NewClusterClient(opt.Cluster())} {
			clients = append(clients, client)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err := newStore(t, client).Ping(ctx)
			cancel()
			require.ErrorIs(t, err, ratelimit.ErrStore)
		}
	}
}
