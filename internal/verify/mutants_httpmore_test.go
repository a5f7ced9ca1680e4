package verify

// httpMoreMutants are faults in what a Middleware tells clients and operators.
var httpMoreMutants = []mutant{
	{
		name: "each outage is the service's fault", file: "httplimit/policy.go",
		old: "return i >= 0 && rules[i].OnStoreError == ratelimit.FailClosed",
		new: "return i >= 0",
		by:  "^TestHTTPStatus$", why: "the client has used its share",
	},
	{
		name: "no answer is a denial", file: "httplimit/policy.go",
		old: "return http.StatusInternalServerError\n\t}\n\trules, defaultRule",
		new: "}\n\trules, defaultRule",
		by:  "^TestHTTPStatus$", why: "the client would be told to ask less often",
	},
	{
		name: "what is refused is applied", file: "change.go",
		old: "return c.calls.Ask(&c.calls, func() error { return accept(c.next.list()) })",
		new: "return c.calls.Ask(&c.calls, func() error { _ = accept(c.next.list()); return nil })",
		by:  "^TestHTTPReload$", why: "a misspelt rule would replace that of the login",
	},
	{
		name: "only the start is checked", file: "httplimit/policy.go",
		old: "before != nil {",
		new: "before == nil {",
		by:  "^TestHTTPReload$", why: "a reload would make a rule limit nothing without a word",
	},
	{
		name: "each change repeats the log", file: "httplimit/check.go",
		old: "c.known = p.endpoints",
		new: "_ = c.known",
		by:  "^TestHTTPReload$", why: "a rule is named once",
	},
	{
		name: "an unknown tier is not named", file: "httplimit/middleware.go",
		old: "rules.tiers != nil && !rules.tiers[tier]",
		new: "rules.tiers != nil && rules.tiers[tier]",
		by:  "^TestHTTPTiers$", why: "a misspelt plan would get the rate of everybody without a word",
	},
	{
		name: "a tier is named for each request", file: "httplimit/log.go",
		old: "l.tiers[strings.Clone(name)] = true",
		new: "_ = strings.Clone(name)",
		by:  "^TestHTTPTiers$", why: "a flood of requests would be a flood of lines",
	},
	{
		name: "Explain does not say that a tier is unknown", file: "internal/explained/explained.go",
		old: "tier != \"\" && !slices.ContainsFunc(e.Rules, tiered)",
		new: "tier != \"\" && slices.ContainsFunc(e.Rules, tiered)",
		by:  "^TestHTTPTiers$", why: "an operator asks why a client has the rate of everybody",
	},
	{
		name: "only unmatched requests are compared", file: "httplimit/middleware.go",
		old: "if rule := m.policies().endpoints[route]; rule != \"\" && ",
		new: "if rule := m.policies().endpoints[route]; rule == route+\"x\" && ",
		by:  "^TestHTTPRoutes$", why: "the rule of the inner route would limit nothing without a word",
	},
	{
		name: "an Endpoint of the user's is never compared", file: "httplimit/middleware.go",
		old: "case endpoint == route, own && endpoint != unmatched:",
		new: "case endpoint == route, own:",
		by:  "^TestHTTPRoutes$", why: "a rule would limit nothing without a word",
	},
	{
		name: "other names are compared with routes", file: "httplimit/middleware.go",
		old: "case endpoint == route, own && endpoint != unmatched:",
		new: "case endpoint == route:",
		by:  "^TestHTTPRoutes$", why: "an Endpoint may have names of its own",
	},
	{
		name: "CONNECT names its endpoint", file: "httplimit/endpoint.go",
		old: "if r.Method == http.MethodConnect && r.URL != nil &&",
		new: "if r.Method == http.MethodConnect && r.URL == nil &&",
		by:  "^TestHTTPRoutes$", why: "a client would choose its key",
	},
	{
		name: "a unix peer has the address that it says", file: "httplimit/identity.go",
		old: "local != nil && strings.HasPrefix(local.Network(), \"unix\")",
		new: "local != nil && strings.HasPrefix(local.Network(), \"unix\") && r.RemoteAddr == \"\"",
		by:  "^TestHTTPPeers$", why: "a local process could be anybody",
	},
	{
		name: "a wrong proxy is not named", file: "httplimit/identity.go",
		old: "m.logs.once(warnProxies)",
		new: "_ = warnProxies",
		by:  "^TestHTTPPeers$", why: "all clients would share a budget without a word",
	},
	{
		name: "a panic copies nothing back", file: "httplimit/middleware.go",
		old: "defer copyBack(r, inner) // runs even if next panics",
		new: "defer func() {\n\t\t\tif inner.Pattern == before {\n\t\t\t\tcopyBack(r, inner)\n\t\t\t}\n\t\t}()",
		by:  "^TestHTTPPanic$", why: "the files of the form would stay for ever",
	},
	{
		name: "each type that begins with grpc", file: "httplimit/problem.go",
		old: "return ok && (rest == \"\" || rest[0] == '+' || rest[0] == ';')",
		new: "return ok && len(rest) >= 0",
		by:  "^TestHTTPContentType$", why: "a client could hide its denials from a log of statuses",
	},
	{
		name: "Count does not see a ResponseController", file: "httplimit/count.go",
		old: "return through{c}",
		new: "return c.ResponseWriter",
		by:  "^TestHTTPCountMore$", why: "a stream that has begun would be judged by a later status",
	},
	{
		name: "a rule that gives nothing back answers 500", file: "httplimit/middleware.go",
		old: "reserve = units != nil || !errors.Is(err, ratelimit.ErrInvalidConfig)",
		new: "reserve = units != nil || err != nil",
		by:  "^TestHTTPCountMore$", why: "a reload would stop the service",
	},
	{
		name: "a crowd is not named", file: "httplimit/count.go",
		old: "return r.Receipts >= engine.MaxOpen",
		new: "return r.Receipts > engine.MaxOpen",
		by:  "^TestHTTPCountMore$", why: "units stay charged without a word",
	},
	{
		name: "t is the time to one unit", file: "httplimit/headers.go",
		old: "d = max(d, s.pace())",
		new: "d = min(d, s.pace())",
		by:  "^TestHTTPPace$", why: "a client that paces itself would send 99 a second",
	},
	{
		name: "the pace is rounded down", file: "httplimit/headers.go",
		old: "quotient++\n\t\t}\n\t\tif quotient <=",
		new: "_ = quotient\n\t\t}\n\t\tif quotient <=",
		by:  "^TestHTTPPace$", why: "a client that paces itself would exceed the rate",
	},
	{
		name: "an inner denial knows only itself", file: "httplimit/middleware.go",
		old: "max(v.info.Result.RetryAfter, v.info.outer)",
		new: "max(v.info.Result.RetryAfter, 0)",
		by:  "^TestHTTPPace$", why: "the outer layer would deny a client that has waited",
	},
	{
		name: "a denial prints as a grant", file: "internal/explained/explained.go",
		old: "case r.Allowed:\n\t\tb =",
		new: "case !r.Allowed:\n\t\tb =",
		by:  "^TestResultPrints$", why: "who reads a log would be misled",
	},
	{
		name: "a comma too many is not named", file: "configfile/scan.go",
		old: "!bytes.HasSuffix(before, []byte(\",\"))",
		new: "!bytes.HasSuffix(before, []byte(\";\"))",
		by:  "^TestFileMeans$", why: "the place is that of the bracket, and the mistake stands before it",
	},
}
