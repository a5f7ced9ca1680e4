package grpclimit_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestBadConfig says what is wrong.
func TestBadConfig(t *testing.T) {
	good, _ := perMinute(t, 1)
	empty, err := ratelimit.New(nil, nil)
	require.NoError(t, err)
	slashless, _ := perMinute(t, 1, ratelimit.Rule{Endpoint: "shop.Items/Get", Rate: ratelimit.PerMinute(1)})
	shared, _ := perMinute(t, 1,
		ratelimit.Rule{Endpoint: "/users/{id}", Rate: ratelimit.PerMinute(1)}, ratelimit.Rule{Endpoint: "GET /items",
			Rate: ratelimit.PerMinute(1)},
		ratelimit.Rule{Endpoint: "login", Rate: ratelimit.PerMinute(1)}, ratelimit.Rule{Endpoint: "*", Rate: ratelimit.PerMinute(1)})
	for _, row := range []struct {
		why  string
		l    *ratelimit.RateLimiter
		c    grpclimit.Config
		want []string
	}{
		{"the zero Config is good", good, grpclimit.Config{}, nil},
		{"a limiter is needed", nil, grpclimit.Config{}, []string{"limiter is nil: must be one that ratelimit.New has made"}},
		{"rules are needed", empty, grpclimit.Config{}, []string{"limiter is without rules: must have at least one rule"}},
		{"methods have a slash", slashless, grpclimit.Config{},
			[]string{`rules["shop.Items/Get"].endpoint is shop.Items/Get: must begin with a slash as full methods do: "/shop.Items/Get", or ` +
				`set Config.Endpoint`}},
		{"names of one's own need none", slashless, grpclimit.Config{Endpoint: func(context.Context, string) string { return "" }}, nil},
		{"a server of HTTP may share the limiter", shared, grpclimit.Config{}, nil},
		{"below the first of Messages", good, grpclimit.Config{Messages: -1},
			[]string{"messages is -1: must be MessagesFree, MessagesDeny or MessagesWait"}},
		{"beyond the last of Messages", good, grpclimit.Config{Messages: 3}, []string{"messages is 3: "}},
		{"a negative pushback", good, grpclimit.Config{MaxPushback: -1},
			[]string{"maxPushback is -1ns: must be from 1ns to 596h31m23.647s, or 0 for 10s"}},
		{"a pushback that the trailer cannot tell", good, grpclimit.Config{MaxPushback: 596*time.Hour + 32*time.Minute},
			[]string{"maxPushback is 596h32m0s: "}},
		{"the longest", good, grpclimit.Config{MaxPushback: (1<<31 - 1) * time.Millisecond}, nil},
		{"everybody is no proxy", good, grpclimit.Config{Proxies: httplimit.Proxies{Trusted: prefixes("0.0.0.0/0")}},
			[]string{"proxies.trusted[0] is 0.0.0.0/0: must not be everybody"}},
		{"all at once", good, grpclimit.Config{Messages: 3, MaxPushback: -1, Proxies: httplimit.Proxies{Hops: -1, Trusted: []netip.Prefix{{}}}},
			[]string{"messages", "maxPushback", "proxies.hops", "proxies.trusted[0]"}},
	} {
		t.Run(row.why, func(t *testing.T) {
			i, err := grpclimit.New(row.l, row.c)
			if row.want == nil {
				require.NoError(t, err)
				assert.NotNil(t, i)
				return
			}
			assert.Nil(t, i)
			assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			for _, want := range row.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}
