package verify

// httpExemptMutants are faults in whom a Middleware lets pass unlimited, in what it tells clients who are blocked, and in the
// page that shows the state of a limiter.
var httpExemptMutants = []mutant{
	{
		name: "a block is a quota", file: "httplimit/problem.go",
		old: "kind = typeBlocked",
		new: "_ = typeBlocked",
		by:  "^TestHTTPBlocked$", why: "the client would be told to ask less often",
	},
	{
		name: "a penalty is no block", file: "httplimit/problem.go",
		old: "res.Reason == ratelimit.ReasonPenalty || ",
		new: "",
		by:  "^TestHTTPBlocked$", why: "the client would be told to ask less often",
	},
	{
		name: "Blocked answers all denials", file: "httplimit/hooks.go",
		old: "h.m.config.Blocked != nil && blocked(&i.Result)",
		new: "h.m.config.Blocked != nil",
		by:  "^TestHTTPBlocked$", why: "a usual denial is no block",
	},
	{
		name: "a proxy is exempt", file: "httplimit/exempt.go",
		old: "return !doubted",
		new: "return true",
		by:  "^TestHTTPExempt$", why: "everybody behind a proxy that nobody has declared would pass",
	},
	{
		name: "only SkipNetworks doubts", file: "httplimit/identity.go",
		old: "\tif doubted {\n\t\tv.doubtful",
		new: "\tif doubted && v.skipped {\n\t\tv.doubtful",
		by:  "^TestHTTPExempt$", why: "an override would exempt everybody behind a proxy that nobody has declared",
	},
	{
		name: "nobody hears of the doubt", file: "httplimit/middleware.go",
		old: "if doubt != nil && doubt.Met() {",
		new: "if doubt != nil && false {",
		by:  "^TestHTTPExempt$", why: "an operator would not know why an exemption has no effect",
	},
	{
		name: "a trusted proxy is doubted", file: "httplimit/identity.go",
		old: "doubted := !told && (",
		new: "doubted := (!told || true) && (",
		by:  "^TestHTTPExempt$", why: "clients behind a proxy would not be exempt",
	},
	{
		name: "a header is no sign of a proxy", file: "httplimit/identity.go",
		old: "(forwarded(r.Header) || len(r.Header[m.forwarding]) > 0)",
		new: "len(r.Header[m.forwarding]) > 0",
		by:  "^TestHTTPExempt$", why: "a proxy that sends another header would be exempt",
	},
	{
		name: "a header of one's own is no sign of a proxy", file: "httplimit/identity.go",
		old: "(forwarded(r.Header) || len(r.Header[m.forwarding]) > 0)",
		new: "forwarded(r.Header)",
		by:  "^TestHTTPExempt$", why: "a proxy that does not say who the client is would be exempt",
	},
	{
		name: "who is told of nobody is told", file: "httplimit/identity.go",
		old: "	return last, false\n",
		new: "	return last, true\n",
		by:  "^TestHTTPExempt$", why: "clients of whom a proxy says nothing would be exempt by its address",
	},
	{
		name: "services among the proxies are doubted", file: "httplimit/identity.go",
		old: "return last, true",
		new: "return last, false",
		by:  "^TestHTTPExempt$", why: "a service among the proxies has an address of its own",
	},
	{
		name: "too few hops are enough", file: "httplimit/identity.go",
		old: "; !ok {\n\t\t\treturn peer, false",
		new: "; !ok {\n\t\t\treturn peer, true",
		by:  "^TestHTTPExempt$", why: "the peer would be exempt although a client is behind it",
	},
	{
		name: "a handler is limited in an exempt network", file: "httplimit/middleware.go",
		old: "\tif v.skipped {\n\t\treturn true\n",
		new: "\tif v.skipped && v.repeats {\n\t\treturn true\n",
		by:  "^TestHTTPExempt$", why: "requests from these networks are not limited at all",
	},
	{
		name: "everybody is a network", file: "httplimit/exempt.go",
		old: "case network.Bits() == 0:",
		new: "case network.Bits() < 0:",
		by:  "^TestHTTPExempt$", why: "nobody would be limited",
	},
	{
		name: "bits beyond a network", file: "httplimit/exempt.go",
		old: "case network != network.Masked():",
		new: "case false:",
		by:  "^TestHTTPExempt$", why: "it is not said whether an address or a network is meant",
	},
	{
		name: "a name that is an address", file: "httplimit/exempt.go",
		old: "req.Client, addressPrefix+v.doubtful)",
		new: "req.Client, \"\")",
		by:  "^TestHTTPNames$", why: "an override of the name of a proxy's address would exempt everybody behind it",
	},
	{
		name: "an address of the service's own", file: "httplimit/exempt.go",
		old: "v.doubtful, req.IP,",
		new: "v.doubtful, v.doubtful,",
		by:  "^TestHTTPNames$", why: "the service has found the address itself",
	},
	{
		name: "a wait in a header field that is exact in another", file: "httplimit/headers.go",
		old: "seconds(v.info.later(d))",
		new: "seconds(d)",
		by:  "^TestHTTPJitter$", why: "one response says one time",
	},
	{
		name: "a wait that is told shorter than it is", file: "httplimit/headers.go",
		old: "return d + min(time.Duration(float64(d)*i.late), ratelimit.Never-d)",
		new: "return d - min(time.Duration(float64(d)*i.late), ratelimit.Never-d)",
		by:  "^TestHTTPJitter$", why: "the client would be denied again",
	},
	{
		name: "all clients are told the same time", file: "httplimit/headers.go",
		old: "v.info.late = rand.Float64() * m.config.Jitter",
		new: "v.info.late = m.config.Jitter + 0*rand.Float64()",
		by:  "^TestHTTPJitter$", why: "they would come back at once",
	},
	{
		name: "any Jitter is accepted", file: "httplimit/config.go",
		old: "if !(c.Jitter >= 0 && c.Jitter <= 1) {",
		new: "if c.Jitter < 0 || c.Jitter > 1 {",
		by:  "^TestHTTPJitterErrors$", why: "NaN is no part",
	},
	{
		name: "a page for each method", file: "httplimit/debug.go",
		old: "if r.Method != http.MethodGet && r.Method != http.MethodHead {",
		new: "if false {",
		by:  "^TestHTTPDebug$", why: "the page only shows",
	},
	{
		name: "a head with a body", file: "httplimit/debug.go",
		old: "if r.Method != http.MethodHead {",
		new: "if true {",
		by:  "^TestHTTPDebug$", why: "HEAD has no body",
	},
	{
		name: "the page is stored", file: "httplimit/debug.go",
		old: `h.Set("Cache-Control", "no-store")`,
		new: `h.Set("Cache-Control", "private")`,
		by:  "^TestHTTPDebug$", why: "a cache would keep names of clients",
	},
	{
		name: "the page without a policy", file: "httplimit/debug.go",
		old: `h.Set("Content-Security-Policy", d.policy)`,
		new: "",
		by:  "^TestHTTPDebug$", why: "the policy keeps scripts away",
	},
	{
		name: "what denies least", file: "httplimit/debugreport.go",
		old: "return cmp.Compare(b.Denied, a.Denied)",
		new: "return cmp.Compare(a.Denied, b.Denied)",
		by:  "^TestHTTPDebug$", why: "the rule that denies most is first",
	},
	{
		name: "an empty form is a question", file: "httplimit/debug.go",
		old: `ok = req.Client != "" || `,
		new: `ok = req.Client == "" || `,
		by:  "^TestHTTPDebug$", why: "the page would explain a client that nobody has named",
	},
	{
		name: "an address as it is written", file: "httplimit/debug.go",
		old: "addressClient(normal(addr), false, defaultIPv6Bits)",
		new: "addressClient(normal(addr), false, 128)",
		by:  "^TestHTTPDebug$", why: "a Middleware limits IPv6 by /64",
	},
}
