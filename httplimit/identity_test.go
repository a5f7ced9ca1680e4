package httplimit_test

import (
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

const (
	proxy  = "10.0.0.1:4711"
	client = "203.0.113.9"
)

// TestIdentity finds the client, for peers, proxies and headers of all kinds. The advisories are
// those of packages that got such a row wrong.
func TestIdentity(t *testing.T) {
	none := httplimit.Proxies{}
	ten := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8")}
	both := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8", "2001:db8:ffff::/48")}
	hop := httplimit.Proxies{Hops: 1}
	hops := httplimit.Proxies{Hops: 2}
	unix := httplimit.Proxies{Unix: true}
	cdn := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8"), Header: "cf-connecting-ip"}
	const xff, cf = "X-Forwarded-For", "CF-Connecting-IP"
	type lines []string // name, value, ...
	rows := []struct {
		proxies httplimit.Proxies
		peer    string
		header  lines
		want    string
		why     string
	}{
		{none, "203.0.113.9:1234", nil, client, "the peer"},
		{none, "203.0.113.9", nil, client, "a peer without a port"},
		{none, "[2001:db8:1:2:3:4:5:6]:80", nil, "2001:db8:1:2::/64", "an IPv6 peer counts by /64: ulule's default of /128 lets it rotate"},
		{none, "[2001:db8:1:2:ffff::1]:80", nil, "2001:db8:1:2::/64", "another address of the same /64"},
		{none, "[2001:db8:1:3::1]:80", nil, "2001:db8:1:3::/64", "another /64"},
		{none, "[::ffff:203.0.113.9]:80", nil, client, "IPv4 within IPv6, before the mask: CVE-2026-30827, GHSA-46wh-pxpv-q5gq"},
		{none, "[::ffff:198.51.100.7]:80", nil, "198.51.100.7", "all of them in one budget: tollbooth's CanonicalizeIP"},
		{none, "[fe80::1%eth0]:80", nil, "fe80::/64", "a zone is no part of the client"},
		{none, "[64:ff9b::203.0.113.9]:80", nil, client, "NAT64 stands for an IPv4 address"},
		{none, "[64:ff9b::198.51.100.7]:80", nil, "198.51.100.7", "and another one for another"},
		{none, "[64:ff9b:1::203.0.113.9]:80", nil, "64:ff9b:1::/64", "but only its well-known prefix"},
		{none, "[::1]:80", nil, "::/64", "the loopback address of IPv6"},
		{none, "", nil, "unknown", "no peer: tollbooth then skipped the limit"},
		{none, "@", nil, "unknown", "an unnamed peer, not by a unix socket: httprate's one budget"},
		{none, "pipe", nil, "unknown", "no address at all"},
		{none, "203.0.113.9:http", nil, "unknown", "no port is no address"},
		{none, "unix", nil, "local", "by a unix socket"},

		{none, "203.0.113.9:1", lines{xff, "1.1.1.1"}, client, "nobody is believed: GHSA-3fxj-6jh8-hvhx (GO-2026-5774)"},
		{none, "203.0.113.9:1", lines{"X-Real-IP", "1.1.1.1"}, client, "GHSA-rjr7-jggh-pgcp (GO-2026-5777); CVE-2025-51663"},
		{none, "203.0.113.9:1", lines{"True-Client-IP", "1.1.1.1"}, client, "GHSA-9g5q-2w5x-hmxf (GO-2026-5775)"},
		{none, "203.0.113.9:1", lines{"Forwarded", "for=1.1.1.1"}, client, "nor is RFC 7239"},
		{none, "unix", lines{xff, "1.1.1.1"}, "local", "nor a unix socket"},

		{ten, proxy, lines{xff, client}, client, "a trusted proxy"},
		{ten, "[::ffff:10.0.0.1]:4711", lines{xff, client}, client, "a trusted proxy within IPv6"},
		{ten, "198.51.100.7:1", lines{xff, client}, "198.51.100.7", "past the proxy: httprate#61, and chi's ClientIPFromXFF"},
		{ten, proxy, lines{xff, "1.1.1.1, 203.0.113.9"}, client, "forged on the left: tollbooth#99, ulule's TrustForwardHeader"},
		{ten, proxy, lines{xff, "1.1.1.1", xff, client}, client, "forged in a line of its own"},
		{ten, proxy, lines{xff, "203.0.113.9, 10.9.9.9"}, client, "two proxies"},
		{ten, proxy, lines{xff, "203.0.113.9", xff, "10.9.9.9"}, client, "two proxies, a line each"},
		{ten, proxy, lines{xff, "1.1.1.1,203.0.113.9,10.1.1.1,10.2.2.2"}, client, "three, without space"},
		{ten, proxy, lines{xff, "203.0.113.9, ::ffff:10.9.9.9"}, client, "a hop within IPv6 is a trusted one"},
		{ten, proxy, lines{xff, "1.1.1.1, 10.9.9.9, 203.0.113.9"}, client, "a forged proxy further left"},
		{ten, proxy, lines{xff, "203.0.113.9, 64:ff9b::10.0.0.1"}, "10.0.0.1", "NAT64 of a proxy's address is not a proxy"},
		{ten, proxy, lines{xff, "203.0.113.9:5511"}, client, "with a port, as Azure writes it"},
		{ten, proxy, lines{xff, "[2001:db8:1:2::9]:5511"}, "2001:db8:1:2::/64", "IPv6 with a port"},
		{ten, proxy, lines{xff, "[2001:db8:1:2::9]"}, "2001:db8:1:2::/64", "IPv6 with brackets"},
		{ten, proxy, lines{xff, "2001:db8:1:2::9"}, "2001:db8:1:2::/64", "IPv6 as it is: throttled cut it at the last colon"},
		{ten, proxy, lines{xff, "fe80::1%eth0"}, "fe80::/64", "a zone in the header: httprate and tollbooth kept it"},
		{ten, proxy, lines{xff, "fe80::1%a,fe80::1%b"}, "fe80::/64", "another zone, the same client"},
		{ten, proxy, lines{xff, "\t 203.0.113.9 \t"}, client, "with white space"},
		{ten, proxy, lines{xff, "[203.0.113.9]"}, "10.0.0.1", "brackets are for IPv6"},
		{ten, proxy, nil, "10.0.0.1", "the proxy's own probe"},
		{ten, proxy, lines{xff, ""}, "10.0.0.1", "an empty line"},
		{ten, proxy, lines{xff, "unknown"}, "10.0.0.1", "no address"},
		{ten, proxy, lines{xff, "203.0.113.9, unknown"}, "10.0.0.1", "no address stops the walk: what is left of it is anybody's text"},
		{ten, proxy, lines{xff, "203.0.113.9, unknown, 10.9.9.9"}, "10.9.9.9", "the last entry is then the client"},
		{ten, proxy, lines{xff, "203.0.113.9,"}, "10.0.0.1", "an empty entry is no address"},
		{ten, proxy, lines{xff, "10.7.7.7, 10.9.9.9"}, "10.9.9.9", "a client among the proxies"},
		{ten, proxy, lines{xff, "203.0.113.9" + strings.Repeat(", 10.9.9.9", 63)}, client, "63 proxies"},
		{ten, proxy, lines{xff, "203.0.113.9" + strings.Repeat(", 10.9.9.9", 64)}, "10.9.9.9", "64 are too many"},
		{ten, proxy, lines{xff, strings.Repeat("1", 1<<20)}, "10.0.0.1", "a megabyte without a comma"},
		{ten, proxy, lines{xff, strings.Repeat("1,", 1<<19) + client}, client, "a megabyte of commas"},
		{ten, proxy, lines{xff, strings.Repeat(" ", 54) + "10.9.9.9.9"}, "10.0.0.1", "64 bytes that are no address"},
		{ten, proxy, lines{xff, strings.Repeat(" ", 53) + client}, client, "64 bytes with white space"},
		{ten, proxy, lines{xff, strings.Repeat(" ", 54) + client}, "10.0.0.1", "65 bytes"},
		{ten, proxy, lines{"X_Forwarded_For", "1.1.1.1", "X-Real-IP", "1.1.1.1"}, "10.0.0.1", "other headers than the one"},
		{both, "[2001:db8:ffff::1]:80", lines{xff, client}, client, "a proxy by IPv6"},
		{both, "[2001:db8:ffff::1%eth0]:80", lines{xff, client}, client, "with a zone"},
		{ten, "unix", lines{xff, client}, "local", "a unix socket is no address"},
		{ten, "@", lines{xff, client}, "unknown", "who is unknown is not believed"},

		{unix, "unix", lines{xff, client}, client, "a trusted unix socket"},
		{unix, "unix", lines{xff, "1.1.1.1, 203.0.113.9"}, client, "it has no other hops"},
		{unix, "unix", nil, "local", "without a header"},
		{unix, "198.51.100.7:1", lines{xff, client}, "198.51.100.7", "others are not believed"},

		{hop, "198.51.100.7:1", lines{xff, "1.1.1.1, 203.0.113.9"}, client, "one hop"},
		{hop, "unix", lines{xff, client}, client, "one hop by a unix socket"},
		{hop, "@", lines{xff, client}, "unknown", "who is unknown is not believed"},
		{hops, proxy, lines{xff, "1.1.1.1, 203.0.113.9, 10.9.9.9"}, client, "two hops"},
		{hops, proxy, lines{xff, "1.1.1.1, 203.0.113.9", xff, "10.9.9.9"}, client, "two hops in two lines"},
		{hops, proxy, lines{xff, client}, "10.0.0.1", "fewer than two"},
		{hops, proxy, lines{xff, "nobody, 203.0.113.9"}, "10.0.0.1", "no address"},
		{hops, proxy, lines{xff, strings.Repeat("1", 99) + ",10.9.9.9"}, "10.0.0.1", "too long"},

		{cdn, proxy, lines{cf, client, xff, "1.1.1.1"}, client, "another header"},
		{cdn, proxy, lines{cf, "2001:db8:1:2::9"}, "2001:db8:1:2::/64", "IPv6"},
		{cdn, proxy, lines{cf, "1.1.1.1, 203.0.113.9"}, "10.0.0.1", "a list: sethvargo's IPKeyFunc made a key of it"},
		{cdn, proxy, lines{cf, "1.1.1.1", cf, client}, "10.0.0.1", "two lines"},
		{cdn, proxy, lines{cf, "10.9.9.9"}, "10.9.9.9", "one address is the client's, also in the proxies' range"},
		{cdn, proxy, lines{xff, client}, "10.0.0.1", "it alone"},
		{cdn, "198.51.100.7:1", lines{cf, client}, "198.51.100.7", "past the CDN"},
	}
	require.GreaterOrEqual(t, len(rows), 60)
	l, _ := perMinute(t, 1_000_000)
	for _, row := range rows {
		r := request(t, "/", row.peer, row.header...)
		if row.peer == "unix" {
			r.RemoteAddr = "@"
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/s", Net: "unix"}))
		}
		m := made(t, l, httplimit.Config{Proxies: row.proxies, Info: true, Log: new(logbook).logger()})
		info := infoOf(t, m, r)
		assert.Equal(t, row.want, info.Request.IP, "%s: %s %q", row.why, row.peer, row.header)
		assert.Equal(t, "ip:"+row.want, info.Request.Client, row.why)
		if info.Addr.IsValid() {
			assert.Equal(t, info.Request.Client, m.Client(info.Addr), row.why)
		}
	}
}

func TestProxiesAddr(t *testing.T) {
	p := httplimit.Proxies{Trusted: prefixes("10.0.0.0/8"), Unix: true}
	values := []string{"1.1.1.1, ::ffff:203.0.113.9"}
	assert.Equal(t, netip.MustParseAddr(client), p.Addr(netip.MustParseAddr("::ffff:10.0.0.1"), values))
	assert.Equal(t, netip.MustParseAddr(client), p.Addr(netip.Addr{}, values), "by a unix socket")
	assert.Equal(t, netip.MustParseAddr("fe80::1"), p.Addr(netip.MustParseAddr("fe80::1%eth0"), values), "not trusted")
	assert.Equal(t, netip.Addr{}, p.Addr(netip.Addr{}, nil), "nothing is known")
	assert.Equal(t, netip.Addr{}, httplimit.Proxies{}.Addr(netip.Addr{}, values), "nobody is believed")
}

func TestIPv6Bits(t *testing.T) {
	l, _ := perMinute(t, 100)
	for bits, want := range map[int]string{0: "2001:db8:1:2::/64", 32: "2001:db8::/32", 56: "2001:db8:1::/56", 64: "2001:db8:1:2::/64",
		128: "2001:db8:1:2:3:4:5:6/128"} {
		m := made(t, l, httplimit.Config{IPv6Bits: bits})
		assert.Equal(t, "ip:"+want, m.Client(netip.MustParseAddr("2001:db8:1:2:3:4:5:6")), "%d bits", bits)
		assert.Equal(t, "ip:203.0.113.9", m.Client(netip.MustParseAddr("::ffff:203.0.113.9")), "%d bits", bits)
	}
	assert.Equal(t, "ip:unknown", made(t, l, httplimit.Config{}).Client(netip.Addr{}))
}

func TestClientNames(t *testing.T) {
	l, _ := perMinute(t, 100)
	named := func(client, tier string, ok bool) ratelimit.Request {
		m := made(t, l, httplimit.Config{Info: true, Client: func(*http.Request) (string, string, bool) { return client, tier, ok }})
		return infoOf(t, m, request(t, "/", "203.0.113.9:1")).Request
	}
	for name, want := range map[string]string{
		"alice": "alice", "ip:203.0.113.9": "id:ip:203.0.113.9", "id:ip:1.1.1.1": "id:id:ip:1.1.1.1", "id:": "id:id:", "IP:1": "IP:1",
	} {
		assert.Equal(t, ratelimit.Request{Client: want, Tier: "paid", IP: client, Endpoint: "unmatched"}, named(name, "paid", true), name)
	}
	address := ratelimit.Request{Client: "ip:" + client, IP: client, Endpoint: "unmatched"}
	assert.Equal(t, address, named("alice", "paid", false), "who is not verified is an address, without a tier")
	assert.Equal(t, address, named("", "paid", true), "and so is nobody")
}

// FuzzIdentity looks for a header that makes the package panic, or by which the text left of
// the first untrusted entry matters.
func FuzzIdentity(f *testing.F) {
	for _, seed := range []string{"203.0.113.9", "1.1.1.1, 203.0.113.9, 10.0.0.2", "[::1]:80,,", "fe80::1%eth0\n::ffff:10.0.0.1",
		"64:ff9b::1", strings.Repeat("10.0.0.1,", 70)} {
		f.Add("10.0.0.1:80", seed, "6.6.6.6", uint8(0))
	}
	l, _ := perMinute(f, math.MaxInt32) // more than a run can use up
	ten := prefixes("10.0.0.0/8", "2001:db8::/32")
	choices := []httplimit.Proxies{{Trusted: ten}, {}, {Hops: 1}, {Hops: 3}, {Trusted: ten, Header: "X-Real-IP"}, {Trusted: ten, Unix: true}}
	f.Fuzz(func(t *testing.T, peer, text, forged string, choice uint8) {
		p := choices[int(choice)%len(choices)]
		m := made(t, l, httplimit.Config{Proxies: p, Info: true, Log: new(logbook).logger()})
		ask := func(lines []string) httplimit.Info {
			r := request(t, "/", peer)
			r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"] = lines, lines
			return infoOf(t, m, r)
		}
		lines := strings.Split(text, "\n")
		info := ask(lines)
		require.NotEmpty(t, info.Request.IP)
		require.Equal(t, "ip:"+info.Request.IP, info.Request.Client)
		require.False(t, info.Addr.Is4In6())
		require.Empty(t, info.Addr.Zone())
		if choice%uint8(len(choices)) != 0 {
			return
		}
		// What is left of the client's own entry may be anything: another line, or the beginning of its line.
		for i, line := range slices.Backward(lines) {
			entries := strings.Split(line, ",")
			for j, entry := range slices.Backward(entries) {
				addr := p.Addr(netip.MustParseAddr("10.0.0.1"), []string{entry})
				if addr == netip.MustParseAddr("10.0.0.1") || ten[0].Contains(addr) || ten[1].Contains(addr) {
					continue // it stands for no client, or nothing can be said of it alone
				}
				rest := strings.Join(entries[j:], ",")
				with := ask(append([]string{forged + "," + rest}, lines[i+1:]...))
				without := ask(append([]string{rest}, lines[i+1:]...))
				require.Equal(t, without.Addr, with.Addr)
				require.Equal(t, without.Request, with.Request)
				return
			}
		}
	})
}
