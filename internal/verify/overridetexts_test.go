package verify

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestOverrideTexts proves that a text means what it says: a client whose name looks like an address is no address, an address is
// no client, and a network meets each address in it, however often the client changes its own.
func TestOverrideTexts(t *testing.T) {
	const network = "2001:db8:1:2::/64"
	for _, c := range []struct {
		why   string
		block ratelimit.Override
		req   ratelimit.Request
		meets bool
	}{
		{"the client itself", ratelimit.Override{Client: "203.0.113.9"}, ratelimit.Request{Client: "203.0.113.9"}, true},
		{"an address is no client", ratelimit.Override{Client: "203.0.113.9"}, ratelimit.Request{IP: "203.0.113.9"}, false},
		{"a client is no address", ratelimit.Override{IP: "203.0.113.9"}, ratelimit.Request{Client: "203.0.113.9"}, false},
		{"nor if named as httplimit names it", ratelimit.Override{IP: "203.0.113.9"}, ratelimit.Request{Client: "ip:203.0.113.9"}, false},
		{"a name with ip: is a name", ratelimit.Override{Client: "ip:203.0.113.9"}, ratelimit.Request{IP: "203.0.113.9"}, false},
		{"the same address in IPv6", ratelimit.Override{IP: "203.0.113.9"}, ratelimit.Request{IP: "::ffff:203.0.113.9"}, true},
		{"the first address of a network", ratelimit.Override{IP: network}, ratelimit.Request{IP: "2001:db8:1:2::"}, true},
		{"its last one", ratelimit.Override{IP: network}, ratelimit.Request{IP: "2001:db8:1:2:ffff:ffff:ffff:ffff"}, true},
		{"with a zone", ratelimit.Override{IP: network}, ratelimit.Request{IP: "2001:db8:1:2::7%eth0"}, true},
		{"the next network", ratelimit.Override{IP: network}, ratelimit.Request{IP: "2001:db8:1:3::"}, false},
		{"the network, by one address in it", ratelimit.Override{IP: "2001:db8:1:2::7"}, ratelimit.Request{IP: network}, true},
		{"a text of 1 MB", ratelimit.Override{IP: network}, ratelimit.Request{IP: strings.Repeat("2001:db8:1:2::7 ", 1<<16)}, false},
		{"a client of 1 MB", ratelimit.Override{Client: "a"}, ratelimit.Request{Client: strings.Repeat("a", 1<<20)}, false},
	} {
		l, _ := overridden(t)
		c.block.Effect, c.req.Endpoint = ratelimit.EffectBlock, "/"
		require.NoError(t, l.Override(t.Context(), c.block), c.why)
		res, err := l.Check(t.Context(), c.req)
		require.NoError(t, err, c.why)
		assert.Equal(t, c.meets, res.Reason == ratelimit.ReasonOverride, c.why)
	}
}

// TestOverrideTextsOfOperators proves that a text of 1 MB is refused with a short error, and that newlines and HTML in a name and
// a Note are kept as they are, and make no further line where an Override is printed.
func TestOverrideTextsOfOperators(t *testing.T) {
	l, _ := overridden(t)
	long := strings.Repeat("<b>\n", 1<<18)
	for _, o := range []ratelimit.Override{
		{Client: long, Effect: ratelimit.EffectBlock}, {IP: long, Effect: ratelimit.EffectBlock}, {Client: "a", Effect: long},
		{Client: "a", Effect: ratelimit.EffectBlock, Note: long}, {Client: "a", Effect: ratelimit.EffectBlock, Rules: []string{long}},
	} {
		err := l.Override(t.Context(), o)
		require.Error(t, err)
		require.Less(t, len(err.Error()), 1000)
		require.NotContains(t, err.Error(), "\n")
	}
	all, err := l.Overrides(t.Context())
	require.NoError(t, err)
	require.Empty(t, all)

	want := ratelimit.Override{Client: "a\n<script>", Effect: ratelimit.EffectBlock, Note: "\"ticket\"\r\n<img src=x>\x00\u202e"}
	require.NoError(t, l.Override(t.Context(), want))
	all, err = l.Overrides(t.Context())
	require.NoError(t, err)
	require.Equal(t, []ratelimit.Override{want}, all)
	require.NotContains(t, want.String(), "\n")
	x, err := l.Explain(t.Context(), ratelimit.Request{Client: want.Client, Endpoint: "/"})
	require.NoError(t, err)
	text, err := json.Marshal(x)
	require.NoError(t, err)
	var back ratelimit.Explanation
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, &want, back.Override)
	require.Equal(t, 2, strings.Count(strings.TrimSpace(x.String()), "\n")+1, x.String())
}
