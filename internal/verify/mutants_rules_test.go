package verify

// rulesMutants are faults in how several rules decide together.
var rulesMutants = []mutant{
	{
		name: "locks not deduplicated", file: "decision.go",
		old: "d.named = slices.Compact(d.named)",
		new: "d.named = slices.Clip(d.named)",
		by:  "^TestRulesNamedOften$", why: "a rule that is named twice waits for itself", timeout: "10s",
	},
	{
		name: "locks in the order of the request", file: "decision.go",
		old: "inLockOrder(d.named)\n\td.named = slices.Compact(d.named)",
		new: "seen := make(map[*activeRule]bool)\n\td.named = slices.DeleteFunc(d.named, func(r *activeRule) bool { was := seen[r]; seen[r] = true; return was })",
		by:  "^TestRulesHammer$", why: "two requests wait for each other", timeout: "20s",
	},
	{
		name: "two readings of the clock", file: "internal/engine/settle.go",
		old: "p.shard.step(p.Hash, p.Want, now, order.N, do)",
		new: "p.shard.step(p.Hash, p.Want, t.Now(), order.N, do)",
		by:  "^TestLinearizableRules$", why: "two rules answer for two instants",
	},
	{
		name: "a later reading of the clock to charge by", file: "internal/engine/settle.go",
		old: "p.shard.step(p.Hash, p.Want, now, order.N, take)",
		new: "p.shard.step(p.Hash, p.Want, t.Now()+1, order.N, take)",
		by:  "^TestPropertiesOfRules$", why: "a rule is charged for another instant than it answered for",
	},
	{
		name: "decided, unlocked, charged", file: "internal/engine/settle.go",
		old: "charge := order.Take && passes && !late",
		new: "for i := range parts {\n\t\tif p := &parts[i]; p.Keys != nil {\n\t\t\tp.shard.finish(latest, keytable.Uncounted)\n\t\t}\n\t}\n\tt.Now()\n\tfor i := range parts {\n\t\tif p := &parts[i]; p.Keys != nil {\n\t\t\tp.shard, _, _ = p.Keys.lock(p.Hash, 0)\n\t\t}\n\t}\n\tcharge := order.Take && passes && !late",
		by:  "^TestLinearizableRules$", why: "others see one rule charged and the other not",
	},
	{
		name: "charged although denied", file: "internal/engine/settle.go",
		old: "charge := order.Take && passes && !late",
		new: "charge := order.Take && !late",
		by:  "^TestPropertiesOfRules$", why: "a denial takes nothing",
	},
	{
		name: "charged before the second denies", file: "internal/engine/settle.go",
		old: "do := ask\n",
		new: "do := ask\n\t\t\tif order.Take {\n\t\t\t\tdo = Take\n\t\t\t}\n",
		by:  "^TestPropertiesOfRules$", why: "a denial takes nothing",
	},
	{
		name: "the last one takes although another denies", file: "internal/engine/settle.go",
		old: "if i == last && passes && order.Take",
		new: "if i == last && order.Take",
		by:  "^TestPropertiesOfRules$", why: "a denial takes nothing",
	},
	{
		name: "ties broken by the order of locks", file: "result.go",
		old: "rules[i].index < rules[binding].index",
		new: "rules[i].serial < rules[binding].serial",
		by:  "^TestPropertiesOfChanges$", why: "rules may have been listed in another order since",
	},
	{
		name: "the shortest wait binds", file: "result.go",
		old: "return a.RetryAfter > b.RetryAfter",
		new: "return a.RetryAfter < b.RetryAfter",
		by:  "^TestPropertiesOfRules$", why: "after it the other rule still denies",
	},
	{
		name: "the most left binds", file: "result.go",
		old: "return uint64(a.Left) < uint64(b.Left)",
		new: "return uint64(a.Left) > uint64(b.Left)",
		by:  "^TestPropertiesOfRules$", why: "the other rule will deny first",
	},
	{
		name: "Remaining of the binding rule", file: "result.go",
		old: "left, delay = min(left, uint64(max(p.Left, -1))), max(delay, p.Delay)",
		new: "left, delay = uint64(parts[binding].Left), max(delay, p.Delay)",
		by:  "^TestPropertiesOfRules$", why: "of a denied request another rule may have less left",
	},
	{
		name: "Delay of the binding rule", file: "result.go",
		old: "left, delay = min(left, uint64(max(p.Left, -1))), max(delay, p.Delay)",
		new: "left, delay = min(left, uint64(max(p.Left, -1))), parts[binding].Delay",
		by:  "^TestPropertiesOfRules$", why: "another rule's queue may be longer",
	},
	{
		name: "a shadow rule denies", file: "internal/engine/settle.go",
		old: "if p.Shadow {\n\t\t\tcontinue\n\t\t}\n\t\tif p.shard != nil {\n\t\t\tdo",
		new: "if p.shard != nil {\n\t\t\tdo",
		by:  "^TestPropertiesOfRules$", why: "it only watches",
	},
	{
		name: "a shadow rule is charged on denial", file: "internal/engine/settle.go",
		old: "p.shard.step(p.Hash, p.Want, now, order.N, ask)",
		new: "p.shard.step(p.Hash, p.Want, now, order.N, 2*ask)",
		by:  "^TestPropertiesOfRules$", why: "it would count what did not pass",
	},
	{
		name: "a shadow rule binds", file: "result.go",
		old: "if p.Shadow {\n\t\t\tcontinue\n\t\t}\n\t\tif binding",
		new: "if binding",
		by:  "^TestPropertiesOfRules$", why: "it has no part in the Result",
	},
	{
		name: "a shadow rule's denial is counted as one", file: "internal/engine/settle.go",
		old: "return keytable.Shadowed",
		new: "return keytable.Denied",
		by:  "^TestPropertiesOfRules$", why: "it denied nobody",
	},
	{
		name: "client and endpoint joined", file: "internal/keyspec/maker.go",
		old: "return keytable.HashOfPair(req.Client, req.Endpoint)",
		new: "return keytable.HashOf(req.Client + req.Endpoint)",
		by:  "^TestPropertiesOfRules$", why: "two pairs share one key",
	},
	{
		name: "what others denied is counted", file: "internal/engine/settle.go",
		old: "case !counted || granted && !passes:",
		new: "case !counted:",
		by:  "^TestPropertiesOfRules$", why: "a rule that would have allowed denied nothing",
	},
	{
		name: "granted requests are not counted", file: "internal/engine/settle.go",
		old: "return keytable.Allowed",
		new: "return keytable.Uncounted",
		by:  "^TestPropertiesOfRules$", why: "the totals are of all decisions",
	},
	{
		name: "a key at another rate is stepped at that", file: "internal/engine/keys.go",
		old: "if state != nil && state.plan == p.id {",
		new: "if state != nil {",
		by:  "^TestPropertiesOfChangingTiers$", why: "what is owed is measured in other parts of a token",
	},
	{
		name: "a key at another rate is stepped at that, among several rules", file: "internal/engine/rated.go",
		old: "if state != nil && state.plan == p.id && do != Hold {",
		new: "if state != nil && do != Hold {",
		by:  "^TestPropertiesOf(Rules|ChangingTiers|Changes)$", why: "what is owed is measured in other parts of a token",
	},
	{
		name: "one rule forgets the tier", file: "plain.go",
		old: "r.local.Decide(hash, req.Tier,",
		new: "r.local.Decide(hash, \"\",",
		by:  "^TestPropertiesOfChangingTiers$", why: "a client of a tier has that tier's rate",
	},
	{
		name: "several rules forget the tier", file: "plain.go",
		old: "p.Want.Tier = req.Tier",
		new: "p.Want.Tier = \"\"",
		by:  "^TestPropertiesOf", why: "a client of a tier has that tier's rate",
	},
}

// ratesMutants are faults in how a rule keeps several rates, and changes them.
var ratesMutants = []mutant{
	{
		name: "converted at the faster of two rates", file: "internal/engine/rated.go",
		old: "slow := from\n\tif p.config.Slower(from.config) {",
		new: "slow := from\n\tif from.config.Slower(p.config) {",
		by:  "^TestPropertiesOfChangingTiers$", why: "nobody knows since when the faster one holds",
	},
	{
		name: "not converted", file: "internal/engine/rated.go",
		old: "\t\tif slow := ps.slower(s, from, p, now); slow != p {\n\t\t\tp.config.Carry(&s.state, from.config, now)\n\t\t}\n\t\tps.resize",
		new: "\t\tps.resize",
		by:  "^TestPropertiesOfChangingTiers$", why: "what is owed is measured in other parts of a token",
	},
	{
		name: "not resized", file: "internal/engine/rated.go",
		old: "ps.resize(s, from, p)\n\t\ts.under(p.id)",
		new: "s.under(p.id)",
		by:  "^TestPropertiesOfChangingTiers$", why: "a better tier would grant its whole burst at once",
	},
	{
		name: "not resized by a change of the rule", file: "internal/engine/rated.go",
		old: "if !shared || oneRate {",
		new: "if shared && oneRate {",
		by:  "^TestPropertiesOfChanges$", why: "a raise of the burst would be granted at once",
	},
	{
		name: "a look converts", file: "internal/engine/rated.go",
		old: "if do == Look {",
		new: "if do > Take {",
		by:  "^TestPropertiesOfChangingTiers$", why: "a look changes nothing",
	},
	{
		name: "a denial does not convert", file: "internal/engine/rated.go",
		old: "if do == Look {",
		new: "if do != Take {",
		by:  "^TestPropertiesOfChangingTiers$", why: "the first ask under another rate says when that began to hold",
	},
	{
		name: "shared debt drained at the fastest pace", file: "internal/engine/rated.go",
		old: "case p.config.Slower(from.config):",
		new: "case from.config.Slower(p.config):",
		by:  "^TestPropertiesOfMixedOverflow", why: "a slow client would earn what a fast one does",
	},
	{
		name: "a newcomer ignores what it shared under another rate", file: "internal/engine/rated.go",
		old: "p.config.Carry(&state.state, from.config, seen)",
		new: "*state = ratedState[S]{}",
		by:  "^TestPropertiesOfMixedOverflow$", why: "it gets its limit twice",
	},
	{
		name: "a newcomer inherits at its own pace", file: "internal/engine/rated.go",
		old: "p.config.Carry(&state.state, from.config, seen)",
		new: "p.config.Carry(&state.state, from.config, 0)",
		by:  "^TestPropertiesOfMixedOverflow", why: "it would earn more of what it shared than others did",
	},
	{
		name: "a newcomer waits at its own pace", file: "internal/engine/rated.go",
		old: "v.RetryAfter = min(v.RetryAfter, others.ResetAfter)",
		new: "",
		by:  "^TestPropertiesOfMixedOverflow$", why: "it is admitted as soon as the others owe nothing",
	},
	{
		name: "what is shared follows one rate through a change", file: "internal/engine/rated.go",
		old: "if shared && !oneRate {",
		new: "if shared && oneRate {",
		by:  "^TestPropertiesOfMixedOverflowWithChanges$", why: "another rate may have become slower",
	},
	{
		name: "a change of the rules drops states", file: "ruleset.go",
		old: "case keeps:",
		new: "case keeps && l == nil:",
		by:  "^TestPropertiesOfChanges$", why: "everybody would get the limit again",
	},
	{
		name: "a rule that counts differently keeps states", file: "ruleset.go",
		old: "keeps := old != nil && old.Key == r.Key &&",
		new: "keeps := old != nil &&",
		by:  "^TestPropertiesOfChanges$", why: "other keys have used nothing yet",
	},
	{
		name: "an invalid resolved rate goes unnoticed", file: "internal/engine/rates.go",
		old: "return ps.base, err",
		new: "return ps.base, nil",
		by:  "^TestInvalidResolvedRates$", why: "who has made the mistake must hear of it",
	},
	{
		name: "a window of another length is resolved", file: "internal/engine/rates.go",
		old: "if err == nil && ps.rates.SamePer && rate.Per != ps.rates.Base.Per {",
		new: "if ps.rates.SamePer && rate.Per < 0 {",
		by:  "^TestInvalidResolvedRates$", why: "a window has one length",
	},
	{
		name: "one rate too many", file: "internal/engine/rates.go",
		old: "case p == nil && len(byID) >= maxPlans,",
		new: "case p == nil && len(byID) > maxPlans,",
		by:  "^TestManyResolvedRates$", why: "the bound on rates is exact",
	},
}
