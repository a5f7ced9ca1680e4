package verify

// rulesMutants are faults in how several rules decide together.
var rulesMutants = []mutant{
	{
		name: "locks not deduplicated", file: "decision.go",
		old: "d.rules = slices.Compact(d.rules)",
		new: "d.rules = slices.Clip(d.rules)",
		by:  "^TestRulesNamedOften$", why: "a rule that is named twice waits for itself", timeout: "10s",
	},
	{
		name: "locks in the order of the request", file: "decision.go",
		old: "sortBySerial(d.rules)\n\t\td.rules = slices.Compact(d.rules)",
		new: "seen := make(map[*activeRule]bool)\n\t\td.rules = slices.DeleteFunc(d.rules, func(r *activeRule) bool { was := seen[r]; seen[r] = true; return was })",
		by:  "^TestRulesHammer$", why: "two requests wait for each other", timeout: "20s",
	},
	{
		name: "two readings of the clock", file: "decision.go",
		old: "a.states.step(a.shard, a.hash, &a.wish, d.now, d.n, intent)",
		new: "a.states.step(a.shard, a.hash, &a.wish, t.now(), d.n, intent)",
		by:  "^TestLinearizableRules$", why: "two rules answer for two instants",
	},
	{
		name: "two readings of the clock, by the short way", file: "shortway.go",
		old: "r.here.step(p.shard, p.hash, nil, now, n, do)",
		new: "r.here.step(p.shard, p.hash, nil, t.now(), n, do)",
		by:  "^TestLinearizableRules$", why: "two rules answer for two instants",
	},
	{
		name: "decided, unlocked, charged", file: "shortway.go",
		old: "\tfor i, r := range g.rules {\n\t\tp := &s.parts[i]\n\t\tif passes && i != last {",
		new: "\ts.Unlock()\n\tt.now()\n\tfor i, r := range g.rules {\n\t\ts.parts[i].shard, _ = r.here.lock(s.parts[i].hash, 0)\n\t}\n" +
			"\tfor i, r := range g.rules {\n\t\tp := &s.parts[i]\n\t\tif passes && i != last {",
		by: "^TestLinearizableRules$", why: "others see one rule charged and the other not",
	},
	{
		name: "charged although denied", file: "decision.go",
		old: "case a.verdict.retryAfter == 0 && d.passes:",
		new: "case a.verdict.retryAfter == 0:",
		by:  "^TestPropertiesOfRules$", why: "a denial takes nothing",
	},
	{
		name: "charged before the second denies", file: "shortway.go",
		old: "p, do := &s.parts[i], toAsk",
		new: "p, do := &s.parts[i], toTake",
		by:  "^TestPropertiesOfRules$", why: "a denial takes nothing",
	},
	{
		name: "ties broken by the order of locks", file: "decision.go",
		old: "return a.rule.index < b.rule.index",
		new: "return a.rule.serial < b.rule.serial",
		by:  "^TestPropertiesOfChanges$", why: "rules may have been listed in another order since",
	},
	{
		name: "ties broken by the order of locks, by the short way", file: "shortway.go",
		old: "g.rules[i].index < g.rules[b].index",
		new: "g.rules[i].serial < g.rules[b].serial",
		by:  "^TestPropertiesOfChanges$", why: "rules may have been listed in another order since",
	},
	{
		name: "the shortest wait binds", file: "decision.go",
		old: "return a.verdict.retryAfter > b.verdict.retryAfter",
		new: "return a.verdict.retryAfter < b.verdict.retryAfter",
		by:  "^TestPropertiesOfRules$", why: "after it the other rule still denies",
	},
	{
		name: "Remaining of the binding rule", file: "decision.go",
		old: "if a.verdict.left >= 0 && (res.Remaining < 0 || int(a.verdict.left) < res.Remaining) {",
		new: "if a == binding {",
		by:  "^TestPropertiesOfRules$", why: "of a denied request another rule may have less left",
	},
	{
		name: "Delay of the binding rule", file: "decision.go",
		old: "res.Delay = max(res.Delay, a.delay)",
		new: "if a == binding {\n\t\t\tres.Delay = a.delay\n\t\t}",
		by:  "^TestPropertiesOfRules$", why: "another rule's queue may be longer",
	},
	{
		name: "a shadow rule denies", file: "decision.go",
		old: "if a.rule.enforces() && a != d.custom {",
		new: "if a != d.custom {",
		by:  "^TestPropertiesOfRules$", why: "it only watches",
	},
	{
		name: "a shadow rule is charged on denial", file: "decision.go",
		old: "case a.verdict.retryAfter == 0 && d.passes:",
		new: "case a.verdict.retryAfter == 0 && (d.passes || !a.rule.enforces()):",
		by:  "^TestPropertiesOfRules$", why: "it would count what did not pass",
	},
	{
		name: "a shadow rule binds", file: "decision.go",
		old: "if !a.rule.enforces() || a.source == \"\" {",
		new: "if a.source == \"\" {",
		by:  "^TestPropertiesOfRules$", why: "it has no part in the Result",
	},
	{
		name: "the shortest prefix first", file: "ruleset.go",
		old: "\t\t\treturn s.prefixes[i].group\n",
		new: "\t\t\tfor s.prefixes[i].parent >= 0 {\n\t\t\t\ti = s.prefixes[i].parent\n\t\t\t}\n\t\t\treturn s.prefixes[i].group\n",
		by:  "^TestPropertiesOfRules$", why: "the longest prefix is the one that applies",
	},
	{
		name: "prefixes do not nest", file: "ruleset.go",
		old: "s.prefixes[i].parent = open[len(open)-1]",
		new: "s.prefixes[i].parent = -1",
		by:  "^TestPropertiesOfRules$", why: "a shorter prefix applies where the longer one does not",
	},
	{
		name: "client and endpoint joined", file: "ruleset.go",
		old: "return keytable.HashOfPair(client, endpoint)",
		new: "return keytable.HashOf(client + endpoint)",
		by:  "^TestPropertiesOfRules$", why: "two pairs share one key",
	},
	{
		name: "what others denied is counted", file: "shortway.go",
		old: "if passes || p.verdict.retryAfter != 0 {",
		new: "if p.shard != nil {",
		by:  "^TestPropertiesOfRules$", why: "a rule that would have allowed denied nothing",
	},
	{
		name: "granted requests are not counted", file: "decision.go",
		old: "a.shard.Count(true)",
		new: "_ = a.shard",
		by:  "^TestPropertiesOfRules$", why: "the totals are of all decisions",
	},
}

// ratesMutants are faults in how a rule keeps several rates, and changes them.
var ratesMutants = []mutant{
	{
		name: "converted at the faster of two rates", file: "planned.go",
		old: "if to.config.slower(from.config) {",
		new: "if from.config.slower(to.config) {",
		by:  "^TestPropertiesOfChangingTiers$", why: "nobody knows since when the faster one holds",
	},
	{
		name: "not converted", file: "planned.go",
		old: "\t\tps.adopt(s, from, p, now)\n",
		new: "",
		by:  "^TestPropertiesOfChangingTiers$", why: "what is owed is measured in other parts of a token",
	},
	{
		name: "not resized", file: "planned.go",
		old: "to.config.resize(&s.state, from.config)\n\ts.plan = to.id",
		new: "s.plan = to.id",
		by:  "^TestPropertiesOfChangingTiers$", why: "a better tier would grant its whole burst at once",
	},
	{
		name: "not resized by a change of the rule", file: "planned.go",
		old: "if !shared || single {",
		new: "if shared && single {",
		by:  "^TestPropertiesOfChanges$", why: "a raise of the burst would be granted at once",
	},
	{
		name: "a look converts", file: "engine.go",
		old: "ps.step(shard, state, p, now, n, do == toTake, do != toLook)",
		new: "ps.step(shard, state, p, now, n, do == toTake, true)",
		by:  "^TestPropertiesOfChangingTiers$", why: "a look changes nothing",
	},
	{
		name: "a denial does not convert", file: "engine.go",
		old: "ps.step(shard, state, p, now, n, do == toTake, do != toLook)",
		new: "ps.step(shard, state, p, now, n, do == toTake, do == toTake)",
		by:  "^TestPropertiesOfChangingTiers$", why: "the first ask under another rate says when that began to hold",
	},
	{
		name: "shared debt drained at the fastest pace", file: "planned.go",
		old: "case p.config.slower(from.config):",
		new: "case from.config.slower(p.config):",
		by:  "^TestPropertiesOfMixedOverflow", why: "a slow client would earn what a fast one does",
	},
	{
		name: "a newcomer ignores what it shared under another rate", file: "engine.go",
		old: "p.config.carry(&state.state, from.config, seen)",
		new: "*state = planned[S]{}",
		by:  "^TestPropertiesOfMixedOverflow$", why: "it gets its limit twice",
	},
	{
		name: "a newcomer inherits at its own pace", file: "engine.go",
		old: "p.config.carry(&state.state, from.config, seen)",
		new: "p.config.carry(&state.state, from.config, 0)",
		by:  "^TestPropertiesOfMixedOverflow", why: "it would earn more of what it shared than others did",
	},
	{
		name: "a newcomer waits at its own pace", file: "planned.go",
		old: "v.retryAfter = min(v.retryAfter, others.resetAfter)",
		new: "",
		by:  "^TestPropertiesOfMixedOverflow$", why: "it is admitted as soon as the others owe nothing",
	},
	{
		name: "what is shared follows one rate through a change", file: "planned.go",
		old: "if shared && !single {",
		new: "if shared && single {",
		by:  "^TestPropertiesOfMixedOverflowWithChanges$", why: "another rate may have become slower",
	},
	{
		name: "a change of the rules drops states", file: "change.go",
		old: "case keeps:",
		new: "case keeps && l == nil:",
		by:  "^TestPropertiesOfChanges$", why: "everybody would get the limit again",
	},
	{
		name: "a rule that counts differently keeps states", file: "change.go",
		old: "keeps := old != nil && old.Key == r.Key &&",
		new: "keeps := old != nil &&",
		by:  "^TestPropertiesOfChanges$", why: "other keys have used nothing yet",
	},
	{
		name: "an invalid resolved rate goes unnoticed", file: "plan.go",
		old: "return ps.base, err",
		new: "return ps.base, nil",
		by:  "^TestInvalidResolvedRates$", why: "who has made the mistake must hear of it",
	},
	{
		name: "a window of another length is resolved", file: "plan.go",
		old: "if err == nil && ps.rates.samePer && rate.Per != ps.rates.base.Per {",
		new: "if ps.rates.samePer && rate.Per < 0 {",
		by:  "^TestInvalidResolvedRates$", why: "a window has one length",
	},
	{
		name: "one rate too many", file: "plan.go",
		old: "case p == nil && len(byID) >= maxPlans,",
		new: "case p == nil && len(byID) > maxPlans,",
		by:  "^TestManyResolvedRates$", why: "the bound on rates is exact",
	},
}
