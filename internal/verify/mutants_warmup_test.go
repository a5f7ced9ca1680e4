package verify

// warmupMutants are faults in how the limit of a new key grows.
var warmupMutants = []mutant{
	{
		name: "a limit grows by one unit too many", file: "internal/engine/warmup.go",
		old: "c.from + int64(grown)", new: "min(c.from + int64(grown) + 1, c.limit)",
		by: "^TestWarmupModel$", why: "it grows by whole units",
	},
	{
		name: "a denial ages a key", file: "internal/engine/warmup.go",
		old: "case charge && v.RetryAfter == 0:", new: "case charge:",
		by: "^TestWarmupModel$", why: "a key ages from its first grant",
	},
	{
		name: "a look ages a key", file: "internal/engine/warmup.go",
		old: "case charge && v.RetryAfter == 0:", new: "case v.RetryAfter == 0:",
		by: "^TestWarmupModel$", why: "a look changes nothing",
	},
	{
		name: "a key is grown for ever", file: "internal/engine/warmup.go",
		old: "(now.Since(last) < uint64(c.over) || !c.forgotten(s, now))", new: "true",
		by: "^TestWarmupModel$", why: "a key that was idle for Over is new",
	},
	{
		name: "a key is new too early", file: "internal/engine/warmup.go",
		old: "c.full.Idle(&s.state, now-keytable.Instant(c.over))", new: "c.full.Idle(&s.state, now)",
		by: "^TestWarmupModel$", why: "it must have been as good as new for Over",
	},
	{
		name: "a wait is not the shortest", file: "internal/engine/warmup.go",
		old: "for longest-denied > 1 {", new: "for longest-denied > 2 {",
		by: "^TestWarmupModel$", why: "RetryAfter is exact",
	},
	{
		name: "a new key ages by waiting", file: "internal/engine/warmup.go",
		old: "		p := c.portion(age)\n		if known {", new: "		p := c.portion(age)\n		if true {",
		by: "^TestWarmup(Model|Overflow)$", why: "it ages from its first grant",
	},
	{
		name: "a key is as good as new before it has grown", file: "internal/engine/warmup.go",
		old: "reset = max(v.ResetAfter, c.over-age)", new: "reset = max(v.ResetAfter, 0)",
		by: "^TestWarmupModel$", why: "ResetAfter includes the growth",
	},
	{
		name: "a shared debt ages", file: "internal/engine/rated.go",
		old: "			p.ages.Renew(&owed.state)\n", new: "",
		by: "^TestWarmupOverflow$", why: "keys without a state of their own are new",
	},
	{
		name: "a change of Over keeps who is new", file: "internal/engine/rated.go",
		old: "			from.ages.Forget(&s.state, now) // the Warmup may have another duration from now on\n", new: "",
		by: "^TestWarmupChange$", why: "a key that could have been evicted is new",
	},
	{
		name: "a weight is rounded for the client", file: "internal/exact/bucket.go",
		old: "	if left > 0 {\n		parts++\n	}\n", new: "	_ = left\n",
		by: "^TestWarmupWeights$", why: "the bound would break",
	},
	{
		name: "the last unit of a large weight does not fit", file: "internal/exact/bucket.go",
		old: "nextHi == hi && nextLo <= lo", new: "nextHi == hi && nextLo < lo",
		by: "^TestWarmupWeights$", why: "what fits exactly, fits",
	},
	{
		name: "a young bucket charges for one", file: "tokenbucket.go",
		old: "pace.Plus(debt, pace.Times(weight, n))", new: "pace.Plus(debt, pace.Times(weight, 1))",
		by: "^TestWarmupModel$", why: "n at once cost n times as much",
	},
	{
		name: "units of a young queue take no more room", file: "leakybucket.go",
		old: "pace.Plus(debt, room), pace.Plus(queue, room)", new: "pace.Plus(debt, room), pace.Plus(queue, exact.Level{Whole: n})",
		by: "^TestWarmupModel$", why: "they leave as slowly as they came",
	},
	{
		name: "a young window has the full limit", file: "fixedwindow.go",
		old: "case n > p.Units-used:", new: "case n > p.Of-used:",
		by: "^TestWarmupModel$", why: "the limit is lower",
	},
	{
		name: "a whole token comes back for a unit", file: "internal/engine/held.go",
		old: "			e.each = p.ages.Cost(&s.state)\n", new: "",
		by: "^TestWarmupReceipts$", why: "a young key had paid more",
	},
	{
		name: "a charge that came back has aged the key", file: "internal/engine/receipts.go",
		old: "back.First = e.first && actual == 0; back.First", new: "back.First = false; back.First",
		by: "^TestWarmupReceipts$", why: "the key is as if it had never been charged",
	},
	{
		name: "the second charge did not follow the first", file: "internal/engine/receipts.go",
		old: "		back.Next = e.then\n", new: "",
		by: "^TestWarmupReceipts$", why: "the key is as old as its next charge",
	},
	{
		name: "the next receipt is not the first", file: "internal/engine/receipts.go",
		old: "after.first, back.Next = true, after.at", new: "back.Next = after.at",
		by: "^TestWarmupReceipts$", why: "it made the key when the one before it came back",
	},
	{
		name: "an overshoot ages the debt that keys share", file: "internal/engine/held.go",
		old: "p.ages.Renew(&owed.state) // a debt", new: "_ = p // a debt",
		by: "^TestASharedDebtDoesNotAge$", why: "unseen keys would be granted more than From",
	},
	{
		name: "another Warmup makes keys new", file: "internal/engine/forget.go",
		old: "			s.setPlan(to.id)\n", new: "			s.setPlan(to.id)\n			any(to.config).(aging[S]).Forget(&s.state, k.time.Now())\n",
		by: "^TestALookWithAnotherWarmup$", why: "a key that is as new by this Warmup may not be so by that of the next charge",
	},
	{
		name: "a grown key that owes is new in an outage", file: "internal/engine/warmup.go",
		old: "case rest > c.over && known != nil && !c.Unused(known, now):", new: "case false:",
		by: "^TestAGrownKeyStaysSoInAnOutage$", why: "it rests for what it owes, not because it is young",
	},
}
