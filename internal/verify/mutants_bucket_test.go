package verify

// tokenMutants are faults in how a token bucket keeps its tokens when its burst changes.
var tokenMutants = []mutant{
	{
		name: "a full bucket does not stay full", file: "internal/exact/bucket.go",
		old: "if debt == (Level{}) && minDebt == debt {",
		new: "if from == nil {",
		by:  "^TestProperties$/TokenBucket", why: "a full bucket is like one that was never used",
	},
	{
		name: "a bucket short of a part of a token stays full", file: "internal/exact/bucket.go",
		old: "if debt == (Level{}) && minDebt == debt {",
		new: "if debt.Whole == 0 && minDebt == (Level{}) {",
		by:  "^TestProperties$/TokenBucket", why: "a raise of the burst would be granted at once",
	},
	{
		name: "a cut takes tokens that fit", file: "tokenbucket.go",
		old: "debt, lost := c.Converted(s.debt(), exact.Level{}, &from.Bucket, ahead)",
		new: "debt, lost := c.Converted(s.debt(), s.debt(), &from.Bucket, ahead)",
		by:  "^TestProperties$/TokenBucket", why: "30 of 100 stays 30 of 50",
	},
	{
		name: "a denial under a smaller burst changes the key", file: "tokenbucket.go",
		old: "return c.Burst < from.Burst",
		new: "return c.Burst > 1<<40",
		by:  "^TestDenialAtAnotherRate$", why: "requests that cost nothing would fill a key up",
	},
	{
		name: "the wait under a smaller burst counts at its own rate", file: "internal/engine/rated.go",
		old: "v, delay = p.config.Step(&to.state, slow.config, now, n, false)",
		new: "v, delay = p.config.Step(&to.state, p.config, now, n, false)",
		by:  "^TestPropertiesOfChangingTiers$", why: "until the key is charged, it earns at the slower rate",
	},
	{
		name: "a drained queue does not stay drained", file: "leakybucket.go",
		old: "s.debt, lost = c.Converted(s.debt, s.queue, &from.Bucket, ahead)",
		new: "s.debt, lost = c.Converted(s.debt, s.queue, &from.Bucket, ahead)\n\ts.debt.Whole = max(s.debt.Whole, c.Burst-from.Burst)",
		by:  "^TestDrainedBucketsAreAsNew$", why: "a key that was forgotten would have more than one that was kept",
	},
	{
		name: "a used queue whose debt is zero stays as it is", file: "internal/exact/bucket.go",
		old: "if debt == (Level{}) && minDebt == debt {",
		new: "if debt == (Level{}) {",
		by:  "^TestQueueWithoutDebtIsUsed$", why: "a key with a queue is not as new",
	},
	{
		name: "a queue that is cut comes back", file: "internal/exact/bucket.go",
		old: "minDebt, lost = top, minDebt != top",
		new: "minDebt = top",
		by:  "^TestSettleAfterSmallerBurst$", why: "a settlement would return more than is owed",
	},
	{
		name: "a queue longer than the burst is waited for no longer than the burst", file: "internal/exact/bucket.go",
		old: "!ahead && minDebt.Whole >= b.Burst {",
		new: "minDebt.Whole >= b.Burst {",
		by:  "^TestPropertiesOfChangingTiers$", why: "RetryAfter would be too short, as the key changes only when it is charged",
	},
	{
		name: "the Delay under a smaller burst counts at the slower rate", file: "internal/engine/rated.go",
		old: "if slow != p && (delay > 0 || p.ages != nil) {",
		new: "if slow != p && p.ages != nil {",
		by:  "^TestPropertiesOfChangingTiers$", why: "a charge sets the rate of the request",
	},
	{
		name: "a denial under a smaller burst changes a leaky bucket", file: "leakybucket.go",
		old: "return c.Burst < from.Burst",
		new: "return c.Burst > 1<<40",
		by:  "^TestPropertiesOfChangingTiers$", why: "a denied request would take the room of others",
	},
}

// receiptMutants are faults in giving back the charge of a denied request.
var receiptMutants = []mutant{
	{
		name: "the least debt is not lowered", file: "internal/engine/receipts.go",
		old: "r.layers.lower(c, debt)",
		new: "_, _ = c, debt",
		by:  "^TestPropertiesOfReceipts$/TokenBucket", why: "what has drained would be given back a second time",
	},
	{
		name: "later receipts do not count", file: "internal/engine/layers.go",
		old: "		l.empty(c, c.top, b.Minus(c.debt, debt))\n",
		new: "		_ = b\n",
		by:  "^TestReceiptsEndInAnyOrder$", why: "the charge may have drained after the next one",
	},
	{
		name: "its own least debt does not count", file: "internal/engine/receipts.go",
		old: "back.Debt = r.layers.take(c, e.layer, back.Paid)",
		new: "back.Debt = back.Paid",
		by:  "^TestPropertiesOfReceipts$/TokenBucket", why: "the charge may have drained before the next one",
	},
	{
		name: "what was given back stays in the later receipts", file: "internal/engine/layers.go",
		old: "e.size = b.Minus(e.size, rest)",
		new: "_ = e",
		by:  "^TestReceiptsEndInAnyOrder$", why: "two receipts would give the same debt back",
	},
	{
		name: "the debt of a receipt that ends is forgotten", file: "internal/engine/layers.go",
		old: "l.all[e.above].size = b.Plus(l.all[e.above].size, e.size)",
		new: "_ = b",
		by:  "^TestPropertiesOfReservationsInAStore$/LeakyBucket", why: "the one after it gives back what the key still owes",
	},
	{
		name: "the debt of the newest receipt stays when it ends", file: "internal/engine/layers.go",
		old: "			c.debt = b.Minus(c.debt, e.size)\n",
		new: "",
		by:  "^TestPropertiesOfReceipts$/TokenBucket", why: "the layer of the next charge would be too small",
	},
	{
		name: "a layer is left without its receipts", file: "internal/engine/layers.go",
		old: "	for l.all[i].merged {",
		new: "	for l.all[i].merged && i == 0 {",
		by:  "^TestPropertiesOfReceipts$/TokenBucket", why: "a receipt must find the layer that has taken in its own", timeout: "10s",
	},
	{
		name: "a receipt is found wherever it is", file: "internal/engine/receipts.go",
		old: "if c == nil || e.chain != link {",
		new: "if c == nil {",
		by:  "^TestReceiptsEndInAnyOrder$", why: "a key that was reset and charged anew has not this charge",
	},
	{
		name: "the queue shrinks before those who came later", file: "internal/engine/receipts.go",
		old: "Last: e.next == 0 && !e.followed}",
		new: "Last: true}",
		by:  "^TestTwoNeverLeaveAtOnce$", why: "two would leave at one instant",
	},
	{
		name: "a look converts receipts", file: "internal/engine/rated.go",
		old: "s = before\n\t\ts.forgetReceipts()",
		new: "s = before",
		by:  "^TestStoreLearnsFromDenials$", why: "a look at another rate changes nothing",
	},
	{
		name: "the short way does not see receipts", file: "internal/engine/held.go",
		old: "s.tag = s.tag.withChain(link)",
		new: "_ = link",
		by:  "^TestPropertiesOfReceipts$/TokenBucket", why: "a charge by one rule alone lowers the debt too",
	},
	{
		name: "a longer window keeps its receipts", file: "internal/engine/held.go",
		old: "!to.rate.sameWindows(from.rate) {",
		new: "to.rate.Per < 0 {",
		by:  "^TestAnotherPerEndsReceipts$", why: "which units of the carried count are whose is not known",
	},
	{
		name: "what a store remembers is counted as overflow", file: "internal/engine/keys.go",
		old: "shard.Offer(h, s, now)",
		new: "shard.Insert(h, s, now)",
		by:  "^TestRememberedIsNotOverflow$", why: "nothing was charged to the shared budget",
	},
}
