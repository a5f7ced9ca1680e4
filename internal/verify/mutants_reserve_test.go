package verify

// reserveMutants are faults in reservations: in what they charge, and in what is given back.
var reserveMutants = []mutant{
	{
		name: "units beyond are forgotten", file: "reserve.go",
		old: "if actual > r.n {",
		new: "if actual < 0 {",
		by:  "^TestReservationsEnd$", why: "what was used is charged",
	},
	{
		name: "units beyond are all charged again", file: "reserve.go",
		old: "r.exceed(now, actual-r.n)",
		new: "r.exceed(now, actual)",
		by:  "^TestReservationsEnd$", why: "the reserved units are charged already",
	},
	{
		name: "settled twice", file: "reserve.go",
		old: "r == nil || !r.state.CompareAndSwap(unsettled, settling)",
		new: "r == nil",
		by:  "^TestReservationsEnd$", why: "a reservation is settled once",
	},
	{
		name: "what comes back is not counted", file: "reserve.go",
		old: "p.rule.totals.givenBack.Add(uint64(back))",
		new: "_ = back",
		by:  "^TestReservationsEnd$", why: "RuleStats.GivenBack counts it",
	},
	{
		name: "a denied reservation gives back", file: "reserve.go",
		old: "case !d.Passes || d.Replayed || !p.Granted():",
		new: "case !d.Passes || d.Replayed:",
		by:  "^TestReservationsOfOtherRules$", why: "a shadow rule that denies has charged nothing",
	},
	{
		name: "a denied reservation by plain rules gives back", file: "plain.go",
		old: "if p := &parts[i]; outcome.Passes && p.Granted() {",
		new: "if p := &parts[i]; outcome.Passes {",
		by:  "^TestReservationsOfOtherRules$", why: "a shadow rule that denies has charged nothing",
	},
	{
		name: "no term", file: "reserve.go",
		old: "p.Keys.Keep(p.Receipt, now.Add(term), now)",
		new: "_ = term",
		by:  "^TestReservationsOfTwoRulesEnd$", why: "after its term nothing comes back",
	},
	{
		name: "no term for a single rule", file: "internal/engine/held.go",
		old: "k.Keep(id, now.Add(term), now)",
		new: "_ = term",
		by:  "^TestReservationsEnd$", why: "after its term nothing comes back",
	},
	{
		name: "a reservation overtakes", file: "internal/engine/held.go",
		old: "if shard.Marked(h) {",
		new: "if shard.Marked(h) && n < 0 {",
		by:  "^TestReservationsQueue$", why: "others wait for the key",
	},
	{
		name: "a reservation is not counted", file: "internal/engine/held.go",
		old: "	shard.Count(v.RetryAfter == 0)\n",
		new: "",
		by:  "^TestReservationsQueue$", why: "it is a decision",
	},
	{
		name: "the first settlement ends all", file: "internal/engine/held.go",
		old: "	if last {\n", new: "	if last || found {\n",
		by: "^TestReservationsEnd$", why: "the key has other reservations",
	},
	{
		name: "a reservation ends early", file: "internal/engine/receipts.go",
		old: "if e.kept && e.until < now {",
		new: "if e.kept && e.until <= now {",
		by:  "^TestReservationsEnd$", why: "the last instant of the term counts",
	},
	{
		name: "a key has one reservation too many", file: "internal/engine/receipts.go",
		old: "c.kept >= MaxOpen;",
		new: "c.kept > MaxOpen;",
		by:  "^TestReservationsEnd$", why: "1,024 are open at most",
	},
	{
		name: "a rule has any number of reservations", file: "internal/engine/receipts.go",
		old: "(r.kept >= most ||",
		new: "(r.kept >= 1<<30 ||",
		by:  "^TestReservationsEnd$", why: "their memory is bounded",
	},
	{
		name: "the youngest becomes final", file: "internal/engine/receipts.go",
		old: "r.final(&r.all[r.oldest])",
		new: "r.final(&r.all[r.newest])",
		by:  "^TestReservationsEnd$", why: "the oldest does",
	},
	{
		name: "a final one is not merged", file: "internal/engine/receipts.go",
		old: "r.remove(e, e.low, true)",
		new: "r.remove(e, exact.Level{Whole: 1 << 40}, true)",
		by:  "^TestFinalReservationsAreMerged$", why: "the one before it knows no longer how low the debt was",
	},
	{
		name: "a chain of another key", file: "internal/engine/receipts.go",
		old: " || r.chains[index].key != h {",
		new: " {",
		by:  "^TestChainsOfOtherKeys$", why: "a state may lead to a chain that has ended, and is one of another key now",
	},
	{
		name: "units beyond do not lower the least debt", file: "internal/engine/held.go",
		old: "ps.lower(s, h, ps.debt(s, p, now))",
		new: "_ = h",
		by:  "^TestBeyondTheLimit$", why: "what has drained before would be given back",
	},
	{
		name: "units beyond are not in the queue", file: "leakybucket.go",
		old: "c.Beyond(queue, more)",
		new: "queue",
		by:  "^TestBeyondTheLimit$", why: "they leave before those who come later",
	},
	{
		name: "units beyond do not hold their place", file: "internal/engine/held.go",
		old: "ps.held.get().follow(s.chain, h, p.config.Charged(&s.state))",
		new: "_ = h",
		by:  "^TestBeyondTheLimitKeepsItsPlace$", why: "who was told a Delay keeps it, and so do they",
	},
	{
		name: "units beyond do not drain first", file: "tokenbucket.go",
		old: "debt := c.Beyond(c.Debt(s, now), more)",
		new: "debt := c.Beyond(s.debt(), more)",
		by:  "^TestPropertiesOfReservations$/TokenBucket", why: "the time until then counts",
	},
	{
		name: "units beyond in a window that is over", file: "fixedwindow.go",
		old: "exact.Beyond(c.used(s, now, c.Offset(now)), n,",
		new: "exact.Beyond(s.used, n,",
		by:  "^TestPropertiesOfReservations$/FixedWindow", why: "a count is that of its window",
	},
	{
		name: "units beyond a burst show", file: "tokenbucket.go",
		old: "		v.Left = max(v.Left, 0) // negative after units beyond the burst\n",
		new: "",
		by:  "^TestPropertiesOfReservations$/TokenBucket", why: "Remaining is never negative",
	},
	{
		name: "a change of the burst forgives units beyond", file: "internal/exact/bucket.go",
		old: "		return least\n	}\n	return debt\n",
		new: "		return least\n	}\n	if debt.Whole >= b.Burst {\n		return Level{b.Burst, 0}\n	}\n	return debt\n",
		by:  "^TestBeyondTheLimit$", why: "a change of the rate grants nothing",
	},
	{
		name: "the shared debt forgets units beyond", file: "internal/engine/held.go",
		old: "		ps.planOf(owed).config.Exceed(&owed.state, now, n)\n",
		new: "",
		by:  "^TestReservationsEnd$", why: "they are charged to the budget that keys share",
	},
}
