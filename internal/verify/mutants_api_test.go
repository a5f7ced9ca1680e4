package verify

// apiMutants are faults in what is told of each rule, in resetting, in how custom limiters are
// asked, and in how the rules change.
var apiMutants = []mutant{
	{
		name: "each answer in the order of locks", file: "decision.go",
		old: "return cmp.Compare(rule(a).Index, rule(b).Index)",
		new: "return cmp.Compare(rule(a).serial, rule(b).serial)",
		by:  "^TestEachAnswer$", why: "the rules may have been listed in another order since",
	},
	{
		name: "a custom limiter that is not asked is not looked at", file: "decision.go",
		old: "if i == d.custom && d.origins[i].by == 0 {",
		new: "if i == d.custom && d.origins[i].by != 0 {",
		by:  "^TestErrorsOfCustomLimiters$", why: "its entry must be an answer",
	},
	{
		name: "a look that takes", file: "custom.go",
		old: "rule.takeCustom(ctx, rule.key.text(&d.request), 0)",
		new: "rule.takeCustom(ctx, rule.key.text(&d.request), int(d.parts[d.custom].N))",
		by:  "^TestErrorsOfCustomLimiters$", why: "another rule has denied the request",
	},
	{
		name: "the error of a custom limiter denies", file: "policy.go",
		old: "if p == FailClosed {",
		new: "if p != (FailurePolicy{}) {",
		by:  "^TestErrorsOfCustomLimiters$", why: "FailOpen grants",
	},
	{
		name: "the error of a custom limiter is not counted", file: "custom.go",
		old: "if failed != nil && d.order.Mode != engine.ModeDryRun {",
		new: "if failed != nil && d.order.Mode == engine.ModeDryRun {",
		by:  "^TestErrorsOfCustomLimiters$", why: "it leaves no trace",
	},
	{
		name: "an answer of a custom limiter's policy is not counted", file: "decision.go",
		old: "r.totals.Add(counters.Degraded, 1)",
		new: "r.totals.Add(counters.Degraded, 0)",
		by:  "^TestErrorsOfCustomLimiters$", why: "it leaves no trace",
	},
	{
		name: "a wrong count is answered by the policy", file: "custom.go",
		old: "case r.enforces() && (errors.Is(err, ErrInvalidCount)",
		new: "case !r.enforces() && (errors.Is(err, ErrInvalidCount)",
		by:  "^TestErrorsOfCustomLimiters$", why: "it is the caller's mistake",
	},
	{
		name: "units are kept when a custom limiter's policy denies", file: "custom.go",
		old: "committed = d.Passes\n",
		new: "committed = d.Passes || failed != nil\n",
		by:  "^TestErrorsOfCustomLimiters$", why: "the request was denied",
	},
	{
		name: "FailLocal is inherited by a custom limiter", file: "ruleset.go",
		old: "p.local() && r.Limiter != nil {\n\t\treturn FailOpen",
		new: "p.local() && r.Limiter != nil {\n\t\treturn FailClosed",
		by:  "^TestErrorsOfCustomLimiters$", why: "it is FailOpen",
	},
	{
		name: "a shared budget is reset unasked", file: "ratelimit.go",
		old: "return whole && (own || slices.Contains(req.Rules, r.Name))",
		new: "return whole && (own || req.Endpoint != \"\")",
		by:  "^TestResetsOfRequests$", why: "it belongs to others too",
	},
	{
		name: "a key is reset though the request lacks a part", file: "internal/keyspec/maker.go",
		old: "given = req.part(part) != \"\"",
		new: "given = part.Kind != Endpoint || req.Client != \"\"",
		by:  "^TestResetsOfRequests$", why: "another key would be reset, and no error be returned",
	},
	{
		name: "an attribute that is not given is reset", file: "internal/keyspec/maker.go",
		old: "_, given = req.Attrs[part.Name]",
		new: "given = true",
		by:  "^TestResetsOfRequests$", why: "a Reset with nothing to reset returns no error",
	},
	{
		name: "a shared debt goes unnoticed by Reset of a rule", file: "internal/engine/keys.go",
		old: "if shard.Find(h) == nil {",
		new: "if shard.Find(h) == nil && now < 0 {",
		by:  "^TestResetsOfRequests$", why: "the key stays denied",
	},
	{
		name: "a shared debt goes unnoticed by Reset of a limiter", file: "internal/engine/limiter.go",
		old: "if shard.Find(h) == nil {",
		new: "if shard.Find(h) == nil && now < 0 {",
		by:  "^TestResetsOfRequests$", why: "the key stays denied",
	},
	{
		name: "a limiter is not told its rate", file: "change.go",
		old: "if c.rates.Plan(old.Name, old, old.Limiter, old.Rate, r) {",
		new: "if true {",
		by:  "^TestHooksOfChanges$", why: "it goes on with the rate before",
	},
	{
		name: "a rate that was told is not taken back", file: "change.go",
		old: "return Rate{}, false",
		new: "return Rate{}, true",
		by:  "^TestHooksOfChanges$", why: "the change has failed",
	},
	{
		name: "a limiter that was told is told again", file: "change.go",
		old: "c.rates.Commit()",
		new: "_ = c.rates.Commit",
		by:  "^TestHooksOfChanges$", why: "the change is made",
	},
	{
		name: "a required rule is dropped", file: "change.go",
		old: "return c.next.missing(l.settings.required)",
		new: "return c.set.missing(l.settings.required)",
		by:  "^TestHooksOfChanges$", why: "code names it",
	},
	{
		name: "configs are compared with the types of their numbers", file: "internal/confmap/equal.go",
		old: "if x, ok := number(a); ok {",
		new: "if x, ok := number(a); ok && a.Kind() == b.Kind() {",
		by:  "^TestHooksOfChanges$", why: "a decoder makes another type of the same number",
	},
	{
		name: "a limiter that is dropped stays open", file: "change.go",
		old: "built.Use(-1)",
		new: "built.Use(0)",
		by:  "^TestHooksOfChanges$", why: "nobody else can close it",
	},
	{
		name: "a limiter that is used is closed", file: "change.go",
		old: "r.built().Use(1)",
		new: "r.built().Use(0)",
		by:  "^TestHooksOfChanges$", why: "rules decide by it",
	},
	{
		name: "hooks are called under the lock", file: "internal/hooks/hooks.go",
		old: "if c.Missing() {\n\t\t\treturn false, nil",
		new: "if c.Missing() {\n\t\t\tc.run()\n\t\t\treturn false, nil",
		by:  "^TestHooksInsideHooks$", why: "a hook that changes the rules waits for itself", timeout: "10s",
	},
	{
		name: "the rate of a rule is not set again in its limiter", file: "internal/hooks/teller.go",
		old: "limiter: l, before: before}",
		new: "limiter: l}",
		by:  "^TestHooksOfChanges$", why: "the limiter has no method Rate, so only the rule knows it",
	},
}
