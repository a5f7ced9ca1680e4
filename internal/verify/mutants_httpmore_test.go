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
		old: "return c.calls.Ask(&c.calls, func() error { return accept(next.list()) })",
		new: "return c.calls.Ask(&c.calls, func() error { _ = accept(next.list()); return nil })",
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
}
