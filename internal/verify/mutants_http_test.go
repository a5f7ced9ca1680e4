package verify

// httpMutants are faults in who an HTTP request comes from, and in what it is answered.
var httpMutants = []mutant{
	{
		name: "entries from the left", file: "httplimit/identity.go",
		old: "case i >= 0:\n\t\tentry, l.line = l.line[from+i+1:], l.line[:from+i]",
		new: "case i >= 0:\n\t\ti = strings.IndexByte(l.line, ',')\n\t\tentry, l.line = l.line[:i], l.line[i+1:]",
		by:  "^TestHTTP$", why: "the client would say who it is",
	},
	{
		name: "lines from the first", file: "httplimit/identity.go",
		old: "l.line, l.lines, l.begun = l.lines[n-1], l.lines[:n-1], true",
		new: "l.line, l.lines, l.begun = l.lines[0], l.lines[1:], true",
		by:  "^TestHTTP$", why: "a line that the client has sent would count",
	},
	{
		name: "every peer is believed", file: "httplimit/identity.go",
		old: "return p.Hops > 0 || p.trusts(peer)",
		new: "return true",
		by:  "^TestHTTP$", why: "the client would say who it is",
	},
	{
		name: "hops are not skipped", file: "httplimit/identity.go",
		old: "if !p.trusts(addr) {\n\t\t\treturn addr\n\t\t}",
		new: "return addr",
		by:  "^TestHTTP$", why: "all clients would share the budget of a proxy",
	},
	{
		name: "garbage is skipped", file: "httplimit/identity.go",
		old: "if !ok {\n\t\t\tbreak\n\t\t}",
		new: "if !ok && entry == \"\" {\n\t\t\tbreak\n\t\t}\n\t\tif !ok {\n\t\t\tcontinue\n\t\t}",
		by:  "^TestHTTP$", why: "what is left of it is the client's text",
	},
	{
		name: "one hop too few", file: "httplimit/identity.go",
		old: "for range p.Hops - 1 {",
		new: "for range p.Hops - 2 {",
		by:  "^TestHTTP$", why: "a proxy would be the client",
	},
	{
		name: "a list where one address is due", file: "httplimit/identity.go",
		old: "ok && len(values) == 1 && entries.ended()",
		new: "ok",
		by:  "^TestHTTP$", why: "the proxy has not overwritten the header",
	},
	{
		name: "mapped addresses stay", file: "httplimit/identity.go",
		old: `return addr.Unmap().WithZone("")`,
		new: `return addr.WithZone("")`,
		by:  "^TestHTTP$", why: "a proxy would not be known, and all IPv4 clients would share a budget",
	},
	{
		name: "no mask", file: "httplimit/identity.go",
		old: "addr.Prefix(m.config.IPv6Bits)",
		new: "addr.Prefix(128)",
		by:  "^TestHTTP$", why: "a client has 2^64 addresses",
	},
	{
		name: "NAT64 is one network", file: "httplimit/identity.go",
		old: "if nat64.Contains(addr) {",
		new: "if false {",
		by:  "^TestHTTP$", why: "all clients behind NAT64 would share a budget",
	},
	{
		name: "a name may be an address", file: "httplimit/identity.go",
		old: "return namePrefix + name",
		new: "return name",
		by:  "^TestHTTP$", why: "a user could drain another's budget",
	},
	{
		name: "an API key of any length", file: "httplimit/pick.go",
		old: "len(values) != 1 || values[0] == \"\" || len(values[0]) > maxKey {\n\t\t\treturn \"\", \"\", false\n\t\t}\n\t\treturn lookup(values[0])",
		new: "len(values) != 1 {\n\t\t\treturn \"\", \"\", false\n\t\t}\n\t\treturn lookup(values[0])",
		by:  "^TestHTTP$", why: "a lookup would get texts as long as a header may be",
	},
	{
		name: "seconds are rounded down", file: "httplimit/headers.go",
		old: "return int64((d-1)/time.Second) + 1",
		new: "return int64(d / time.Second)",
		by:  "^TestHTTP$", why: "a client would come too early",
	},
	{
		name: "t is the whole reset", file: "httplimit/headers.go",
		old: "return min(s.unit, s.ResetAfter), true",
		new: "return s.ResetAfter + s.unit, true",
		by:  "^TestHTTP$", why: "a bucket has one unit more before",
	},
	{
		name: "a window is rounded down", file: "httplimit/policy.go",
		old: "if rest > 0 {",
		new: "if rest > per {",
		by:  "^TestHTTP$", why: "more would be promised than is granted",
	},
	{
		name: "rules in their order", file: "httplimit/headers.go",
		old: "at > 0 && res.Remaining < shown[at-1].Remaining",
		new: "at > len(shown)",
		by:  "^TestHTTP$", why: "of many rules, the tightest would not be shown",
	},
	{
		name: "all rules in a denial", file: "httplimit/headers.go",
		old: "for i := range shown {\n\t\ts := &shown[i]\n\t\tif !v.info.Result.Allowed && s.Allowed {\n\t\t\tcontinue\n\t\t}\n\t\tif len(text)",
		new: "for i := range shown {\n\t\ts := &shown[i]\n\t\tif len(text)",
		by:  "^TestHTTP$", why: "a client could not see what has denied",
	},
	{
		name: "shared rules are shown", file: "httplimit/headers.go",
		old: "if p == nil || p.hidden {",
		new: "if p == nil {",
		by:  "^TestHTTP$", why: "a client would see what all others do",
	},
	{
		name: "names as they are", file: "httplimit/headers.go",
		old: "case c < ' ' || c > '~' || c == '%':",
		new: "case c > '~':",
		by:  "^TestHTTP$", why: "a name could end the header field",
	},
	{
		name: "a closed store is the client's fault", file: "httplimit/policy.go",
		old: "status = http.StatusServiceUnavailable",
		new: "_ = http.StatusServiceUnavailable",
		by:  "^TestHTTP$", why: "users would read it as a limit of theirs",
	},
	{
		name: "degraded results are shown", file: "httplimit/headers.go",
		old: "if res.Limit < 0 || res.Degraded {",
		new: "if res.Limit < 0 {",
		by:  "^TestHTTP$", why: "a policy does not know what is left",
	},
	{
		name: "the path is the endpoint", file: "httplimit/endpoint.go",
		old: "_, pattern := m.Handler(r)\n\t\treturn pathOf(pattern)",
		new: "return r.URL.Path",
		by:  "^TestHTTP$", why: "each spelling would have a budget of its own",
	},
}
