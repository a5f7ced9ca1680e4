package verify

// settleMutants are faults in how a store in memory gives back what it has charged, and in when it
// is asked to.
var settleMutants = []mutant{
	{
		name: "the term is over early", file: "internal/engine/ledger.go",
		old: "if open.until < now && !l.holds {",
		new: "if open.until <= now && !l.holds {",
		by:  "^TestLedger$", why: "at the end of its term a charge can be given back",
	},
	{
		name: "the term is never over", file: "internal/engine/ledger.go",
		old: "if open.until < now && !l.holds {",
		new: "if false {",
		by:  "^TestLedger$", why: "after its term a charge is final",
	},
	{
		name: "a key has one receipt too many", file: "internal/engine/ledger.go",
		old: "of.Len() == l.most",
		new: "of.Len() == l.most+1",
		by:  "^TestLedger$", why: "a key has 1,024 open charges at most",
	},
	{
		name: "a rule has any number of receipts", file: "internal/engine/ledger.go",
		old: "l.all.Len() >= l.max ||",
		new: "false ||",
		by:  "^TestLedger$", why: "a rule has as many open charges as keys",
	},
	{
		name: "a number is used twice", file: "internal/engine/ledger.go",
		old: "	if e := l.named[name]; e != nil {\n		l.final(e)\n	}\n",
		new: "",
		by:  "^TestLedger$", why: "the earlier charge is final",
	},
	{
		name: "all of a charge comes back", file: "internal/engine/ledger.go",
		old: "l.Settle(closed.hash, closed.receipt, actual, 0)",
		new: "l.Settle(closed.hash, closed.receipt, 0*actual, 0)",
		by:  "^TestLedger$", why: "a part stays charged",
	},
	{
		name: "a denial of a custom limiter stays in the store", file: "custom.go",
		old: "failed := l.remote.giveBack(ctx, d);",
		new: "failed := error(nil);",
		by:  "^TestSettleBesideACustomLimiter$", why: "the store's units come back",
	},
	{
		name: "a rule that was not charged is settled", file: "remote.go",
		old: "if d.origins[i].by == byStore && d.parts[i].Granted() {",
		new: "if d.origins[i].by == byStore {",
		by:  "^TestSettleBesideACustomLimiter$", why: "nothing was charged there",
	},
	{
		name: "what a policy has granted is settled", file: "remote.go",
		old: "if d.origins[i].by == byStore && d.parts[i].Granted() {",
		new: "if d.parts[i].Granted() {",
		by:  "^TestSettleBesideACustomLimiter$", why: "the store has charged nothing",
	},
	{
		name: "an answer keeps what came back", file: "remote.go",
		old: "p.Left = min(p.Left+p.N, p.Limit) //",
		new: "_ = p //",
		by:  "^TestSettleBesideACustomLimiter$", why: "each rule answers as if it had been asked alone",
	},
	{
		name: "the share gets back what others may have taken", file: "remote.go",
		old: "p.Left = min(p.Left+p.N, p.Limit) //",
		new: "p.Left = min(p.Left+p.N, p.Limit); r.remember(p) //",
		by:  "^TestSettleBesideACustomLimiter$", why: "the store has said later that less is left",
	},
	{
		name: "a settlement that fails is not counted", file: "remote.go",
		old: "r.totals.Add(counters.Errors, 1)\n\t\tdefault:",
		new: "_ = r\n\t\tdefault:",
		by:  "^TestSettleBesideACustomLimiter$", why: "it leaves no trace",
	},
	{
		name: "a settlement that fails is no error", file: "remote.go",
		old: "		d.failed = err\n",
		new: "",
		by:  "^TestSettleBesideACustomLimiter$", why: "the caller can log it",
	},
	{
		name: "a charge without a receipt", file: "remote.go",
		old: "if charge && receipt.Receipt != 0 {",
		new: "if charge && receipt.Receipt > 9 {",
		by:  "^TestSettleBesideACustomLimiter$", why: "only a charge with a receipt can be given back",
	},
	{
		name: "a store that takes no receipts, at the start", file: "rule.go",
		old: "c.revocable = c.revocable || r.Limiter != nil",
		new: "_, c.revocable = r, false",
		by:  "^TestNoReceiptsNoCustomLimiter$", why: "its units would not come back",
	},
	{
		name: "a store that takes no receipts, afterwards", file: "change.go",
		old: "check.revocable = r.Limiter != nil || c.set.custom > 0",
		new: "check.revocable = false",
		by:  "^TestNoReceiptsNoCustomLimiter$", why: "its units would not come back",
	},
	{
		name: "a custom limiter beside rules that were there", file: "change.go",
		old: "!isCustom && (!firstCustom || other == named)",
		new: "!isCustom && (!firstCustom || other != named)",
		by:  "^TestNoReceiptsNoCustomLimiter$", why: "the units of those rules would not come back",
	},
}
