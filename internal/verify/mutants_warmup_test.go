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
		name: "a cost is rounded for the client", file: "internal/exact/bucket.go",
		old: "	if rest > 0 {\n		frac++\n	}\n	if frac == b.Unit {\n		return Level{int64(whole) + 1", new: "	if frac == b.Unit {\n		return Level{int64(whole) + 1",
		by: "^TestWarmupWeights$", why: "the bound would break",
	},
	{
		name: "the last unit of a large weight does not fit", file: "internal/exact/bucket.go",
		old: "next.Whole == room.Whole && next.Frac <= room.Frac", new: "next.Whole == room.Whole && next.Frac < room.Frac",
		by: "^TestWarmupWeights$", why: "what fits exactly, fits",
	},
	{
		name: "a young bucket charges for one", file: "internal/exact/bucket.go",
		old: "cost = b.Cost(p, n); cost.Whole", new: "cost = b.Cost(p, 1); cost.Whole",
		by: "^TestWarmupModel$", why: "n at once cost about n times as much",
	},
	{
		name: "a young bucket rounds the cost of each unit", file: "internal/exact/bucket.go",
		old: "cost = b.Cost(p, n); cost.Whole", new: "cost = b.Times(b.Cost(p, 1), n); cost.Whole",
		by: "^TestWarmupModel$", why: "the cost is rounded up once for all units",
	},
	{
		name: "a young bucket has left what it had but for the units", file: "internal/exact/bucket.go",
		old: "return cost, b.Fit(sum, p, burst), true", new: "return cost, b.Fit(debt, p, burst) - n, true",
		by: "^TestWarmupModel$", why: "the next request is rounded up, too",
	},
	{
		name: "a receipt pays back the rounding of the units that stay", file: "internal/engine/receipts.go",
		old: "b.Minus(e.cost(b, e.n), e.cost(b, e.n-back.N))", new: "e.cost(b, back.N)",
		by: "^TestWarmupSettles$", why: "a key is as if the units that stay had been charged",
	},
	{
		name: "units of a young queue take no more room", file: "leakybucket.go",
		old: "pace.Plus(debt, cost), pace.Plus(queue, cost)", new: "pace.Plus(debt, cost), pace.Plus(queue, exact.Level{Whole: n})",
		by: "^TestWarmupModel$", why: "they leave as slowly as they came",
	},
	{
		name: "a young window has the full limit", file: "fixedwindow.go",
		old: "case n > p.Units-used:", new: "case n > p.Of-used:",
		by: "^TestWarmupModel$", why: "the limit is lower",
	},
	{
		name: "a whole token comes back for a unit", file: "internal/engine/held.go",
		old: "			e.portion = p.ages.Portion(&s.state)\n", new: "",
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
		old: "			ps.moveTo(s, to, old, successors)\n", new: "			ps.moveTo(s, to, old, successors)\n			any(to.config).(aging[S]).Forget(&s.state, k.time.Now())\n",
		by: "^TestALookWithAnotherWarmup$", why: "a key that is as new by this Warmup may not be so by that of the next charge",
	},
	{
		name: "a grown key that owes is new in an outage", file: "internal/engine/warmup.go",
		old: "case rest > c.over && known != nil && !c.Unused(known, now):", new: "case false:",
		by: "^TestAGrownKeyStaysSoInAnOutage$", why: "it rests for what it owes, not because it is young",
	},
}
