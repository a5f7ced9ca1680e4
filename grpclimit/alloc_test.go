package grpclimit_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestAllocations bounds what a granted call costs beside its handler: the text of the address,
// and what metadata is copied to.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	one := ratelimit.Rule{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000)}
	two := []ratelimit.Rule{one, {Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1_000_000)}}
	for _, row := range []struct {
		name  string
		rules []ratelimit.Rule
		c     grpclimit.Config
		from  net.Addr
		want  float64
	}{
		{"one rule", []ratelimit.Rule{one}, grpclimit.Config{}, tcp("203.0.113.9:80"), 1},
		{"two rules", two, grpclimit.Config{}, tcp("203.0.113.9:80"), 1},
		{"IPv6", two, grpclimit.Config{}, tcp("[2001:db8:1:2:3:4:5:6]:80"), 1},
		{"a private address", two, grpclimit.Config{}, tcp("10.0.0.1:80"), 1},
		{"a proxy", two, grpclimit.Config{Proxies: httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}}, tcp("10.0.0.1:80"), 2},
	} {
		l, clock := limited(t, row.rules, nil)
		pairs := metadata.Pairs(":authority", "example.com", "user-agent", "grpc-go")
		if row.c.Proxies.Trusted != nil {
			pairs.Set("x-forwarded-for", "198.51.100.7, 10.0.0.2")
		}
		ctx := peer.NewContext(metadata.NewIncomingContext(t.Context(), pairs), &peer.Peer{Addr: row.from})
		unary, info := made(t, l, row.c).Unary(), &grpc.UnaryServerInfo{FullMethod: unaryCall}
		_, err := unary(ctx, nil, info, nothing)
		require.NoError(t, err)
		got := testing.AllocsPerRun(500, func() {
			clock.Advance(1000)
			_, _ = unary(ctx, nil, info, nothing)
		})
		assert.LessOrEqual(t, got, row.want, row.name)
	}
}
