package grpclimit_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A told is what a client of a real connection learns of a denial.
type told struct {
	code     codes.Code
	message  string
	retry    time.Duration // of the RetryInfo; -1 if there is none
	rules    []string
	reason   string // of the ErrorInfo
	pushback []string
}

func learn(err error, trailer metadata.MD) told {
	s := status.Convert(err)
	got := told{code: s.Code(), message: s.Message(), retry: -1, pushback: trailer[pushbackKey]}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			got.retry = d.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				got.rules = append(got.rules, v.GetDescription())
			}
		case *errdetails.ErrorInfo:
			got.reason = d.GetDomain() + " " + d.GetReason()
		}
	}
	return got
}

const blockedReason = "github.com/ratelimit-go/ratelimit ABNORMAL_USAGE_DETECTED"

// TestBlocked tells clients of a real connection that they are blocked: by a penalty, by an override, and for ever.
func TestBlocked(t *testing.T) {
	l, clock := limited(t, nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerSecond(1),
		Penalty: ratelimit.Penalty{After: 1, Within: time.Minute, For: time.Hour}})
	w := behind(t, made(t, l, grpclimit.Config{MaxPushback: 2 * time.Hour}))
	err, _ := w.call(t)
	require.NoError(t, err)
	_, _ = w.call(t)
	err, trailer := w.call(t)
	perClient := []string{"per-client"}
	assert.Equal(t, told{codes.ResourceExhausted, "abnormal usage detected", time.Hour, perClient, blockedReason, []string{"3600000"}},
		learn(err, trailer))

	clock.Advance(time.Hour)
	block := ratelimit.Override{IP: "127.0.0.1", Effect: ratelimit.EffectBlock, Until: clock.Now().Add(time.Minute), Note: "a secret"}
	require.NoError(t, l.Override(t.Context(), block))
	err, trailer = w.call(t)
	assert.Equal(t, told{codes.ResourceExhausted, "abnormal usage detected", time.Minute, nil, blockedReason, []string{"60000"}},
		learn(err, trailer))
	block.Until = time.Time{}
	require.NoError(t, l.Override(t.Context(), block))
	err, trailer = w.call(t)
	assert.Equal(t, told{codes.ResourceExhausted, "abnormal usage detected", -1, nil, blockedReason, []string{"-1"}}, learn(err, trailer))
	assert.EqualValues(t, 1, w.service.calls.Load())

	require.NoError(t, l.Override(t.Context(), ratelimit.Override{IP: "127.0.0.1"}))
	err, _ = w.call(t)
	require.NoError(t, err)
}

// TestBlockedWaits ends a stream that waits for its messages, if its client is blocked for ever.
func TestBlockedWaits(t *testing.T) {
	l, _ := perMinute(t, 9)
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesWait}))
	w.service.duplex = echo
	stream, err := w.FullDuplexCall(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(nil))
	_, err = stream.Recv()
	require.NoError(t, err)
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{IP: "127.0.0.1", Effect: ratelimit.EffectBlock}))
	require.NoError(t, stream.Send(nil))
	_, err = stream.Recv()
	assert.Equal(t, told{codes.ResourceExhausted, "abnormal usage detected", -1, nil, blockedReason, nil}, learn(err, stream.Trailer()))
}

// unaryCodes returns what n calls from an address with this metadata are answered.
func unaryCodes(t *testing.T, i *grpclimit.Interceptors, from net.Addr, n int, pairs ...string) (got []codes.Code) {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(pairs...))
	if from != nil {
		ctx = peer.NewContext(ctx, &peer.Peer{Addr: from})
	}
	for range n {
		_, err := i.Unary()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: unaryCall}, nothing)
		got = append(got, status.Code(err))
	}
	return got
}

// TestSkipNetworks limits nobody of these networks, by the address that Proxies gives.
func TestSkipNetworks(t *testing.T) {
	proxies := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}
	for _, row := range []struct {
		from     net.Addr
		proxies  httplimit.Proxies
		metadata []string
		want     codes.Code
		warned   bool
		why      string
	}{
		{tcp("192.168.1.2:1"), httplimit.Proxies{}, nil, codes.OK, false, "in the network"},
		{tcp("[::ffff:192.168.1.2]:1"), httplimit.Proxies{}, nil, codes.OK, false, "IPv4 in IPv6"},
		{tcp("192.169.1.2:1"), httplimit.Proxies{}, nil, codes.ResourceExhausted, false, "in no network"},
		{nil, httplimit.Proxies{}, nil, codes.ResourceExhausted, false, "no address"},
		{tcp("192.168.1.2:1"), httplimit.Proxies{}, []string{"x-forwarded-for", "192.168.1.3"}, codes.ResourceExhausted, true,
			"a proxy that nobody has declared"},
		{tcp("192.168.1.2:1"), httplimit.Proxies{}, []string{"forwarded", "for=192.168.1.3"}, codes.ResourceExhausted, true, "another name"},
		{tcp("192.168.1.2:1"), httplimit.Proxies{Hops: 1, Header: "X-Client"}, []string{"x-client", "nobody"}, codes.ResourceExhausted, true,
			"the proxy does not say who the client is"},
		{tcp("203.0.113.9:1"), httplimit.Proxies{}, []string{"x-forwarded-for", "192.168.1.3"}, codes.ResourceExhausted, false, "forged"},
		{tcp("10.0.0.1:1"), proxies, []string{"x-forwarded-for", "192.168.1.3"}, codes.OK, false, "a client behind the proxy"},
		{tcp("10.0.0.1:1"), proxies, []string{"x-forwarded-for", "203.0.113.9"}, codes.ResourceExhausted, false, "another client behind it"},
	} {
		l, _ := perMinute(t, 1)
		var book logbook
		i := made(t, l, grpclimit.Config{SkipNetworks: prefixes("192.168.0.0/16"), Proxies: row.proxies, Log: book.logger()})
		assert.Equal(t, []codes.Code{codes.OK, row.want, row.want}, unaryCodes(t, i, row.from, 3, row.metadata...), row.why)
		assert.Equal(t, row.warned, strings.Count(strings.Join(book.lines(), "\n"), "although") == 1, row.why)
		assert.Equal(t, row.want == codes.OK, l.Stats()[0].Allowed == 0, row.why)
	}

	l, _ := perMinute(t, 1)
	w := behind(t, made(t, l, grpclimit.Config{SkipNetworks: prefixes("127.0.0.0/8"), Messages: grpclimit.MessagesDeny}))
	w.service.duplex = echo
	answered, err, _ := talk(t, w, 5)
	assert.Equal(t, 5, answered)
	require.ErrorIs(t, err, io.EOF)
	for range 3 {
		err, _ := w.call(t)
		require.NoError(t, err)
	}
	assert.Zero(t, l.Stats()[0].Allowed, "nothing was asked over the real connection")
}

// TestDoubtfulExemption exempts nobody by the address of a proxy that nobody has declared, and says so once.
func TestDoubtfulExemption(t *testing.T) {
	office := ratelimit.Override{IP: "127.0.0.0/8", Effect: ratelimit.EffectExempt}
	user := func(context.Context, string) (string, string, bool) { return "alice", "", true }
	for _, row := range []struct {
		override ratelimit.Override
		c        grpclimit.Config
		metadata []string
		want     codes.Code
		warned   bool
		why      string
	}{
		{office, grpclimit.Config{}, nil, codes.OK, false, "a client in the network"},
		{office, grpclimit.Config{}, []string{"x-forwarded-for", "1.2.3.4"}, codes.ResourceExhausted, true, "a proxy that nobody has declared"},
		{ratelimit.Override{Client: "ip:127.0.0.1", Effect: ratelimit.EffectExempt}, grpclimit.Config{}, []string{"x-forwarded-for", "1.2.3.4"},
			codes.ResourceExhausted, true, "an address as a name"},
		{ratelimit.Override{Client: "alice", Effect: ratelimit.EffectExempt}, grpclimit.Config{Client: user},
			[]string{"x-forwarded-for", "1.2.3.4"}, codes.OK, false, "the client was verified"},
		{office, grpclimit.Config{Prepare: func(_ context.Context, r *ratelimit.Request) { r.IP = "127.1.1.1" }},
			[]string{"x-forwarded-for", "1.2.3.4"}, codes.OK, false, "the service has found the address itself"},
	} {
		l, _ := perMinute(t, 1)
		require.NoError(t, l.Override(t.Context(), row.override))
		var book logbook
		row.c.Log = book.logger()
		w := behind(t, made(t, l, row.c))
		var got []codes.Code
		for range 3 {
			err, _ := w.call(t, row.metadata...)
			got = append(got, status.Code(err))
		}
		assert.Equal(t, []codes.Code{codes.OK, row.want, row.want}, got, row.why)
		assert.Equal(t, row.warned, strings.Count(strings.Join(book.lines(), "\n"), "although") == 1, row.why)
	}

	// The messages of a stream that wait are exempt no more than its opening.
	l, _ := perMinute(t, 3)
	require.NoError(t, l.Override(t.Context(), office))
	var book logbook
	w := behind(t, made(t, l, grpclimit.Config{Messages: grpclimit.MessagesWait, Log: book.logger()}))
	w.service.duplex = echo
	stream, err := w.FullDuplexCall(metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", "1.2.3.4"))
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, stream.Send(nil))
		_, err = stream.Recv()
		require.NoError(t, err)
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	require.ErrorIs(t, err, io.EOF)
	assert.EqualValues(t, 3, l.Stats()[0].Allowed, "the opening and two messages")
}

// TestBadNetworks says what is wrong with each network.
func TestBadNetworks(t *testing.T) {
	l, _ := perMinute(t, 1)
	_, err := grpclimit.New(l, grpclimit.Config{SkipNetworks: prefixes("10.1.2.3/8", "::/0")})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	assert.ErrorContains(t, err, "skipNetworks[0] is 10.1.2.3/8: has bits set beyond its length: must be 10.0.0.0/8")
	assert.ErrorContains(t, err, "skipNetworks[1] is ::/0: must not be everybody")
}
