package verify

// databaseMutants are faults in what package engine writes to rows and reads from them, and in package dbstore.
var databaseMutants = []mutant{
	{
		name: "row without the slowest rate", file: "internal/engine/row.go",
		old: "slows := slow != p\n",
		new: "slows := slow != p && f.Reading()\n",
		by:  "^TestRowsHaveEverything$/TokenBucket", why: "a key that was charged at a slower rate is new too early",
	},
	{
		name: "row dropped before a warm-up is forgotten", file: "internal/engine/row.go",
		old: ".Add(ps.rates.Warmup.length())",
		new: "",
		by:  "^TestRowsHaveEverything$", why: "a key that has warmed up begins again",
	},
	{
		name: "strikes dropped with the block", file: "internal/penalty/penalty.go",
		old: "end = s.until.Add(r.Most)",
		new: "_ = r.Most",
		by:  "^TestRowsHaveEverything$", why: "the next block is not longer",
	},
	{
		name: "all receipts name one layer", file: "internal/engine/rowreceipts.go",
		old: "e.above, e.layer, under = at != under, r.layers.all[at].size, at",
		new: "e.above, e.layer, under = under == 0, r.layers.all[at].size, at",
		by:  "^TestRowsHaveEverything$/(TokenBucket|LeakyBucket)", why: "less is given back than is owed",
	},
	{
		name: "cost of a young key forgotten", file: "internal/engine/rowreceipts.go",
		old: "e.whole, e.scaled = e.portion == Portion{Units: 1, Of: 1}, e.portion == Portion{}",
		new: "e.whole, e.scaled = e.portion != Portion{}, e.portion == Portion{}",
		by:  "^TestRowsHaveEverything$/(TokenBucket|LeakyBucket)", why: "a young key gets back less than it has paid",
	},
	{
		name: "charge after a receipt forgotten", file: "internal/engine/rowreceipts.go",
		old: "if e.followed {\n\t\tpacked.Instant(f, &e.then)\n\t}",
		new: "if e.followed {\n\t\tpacked.Instant(f, &e.then)\n\t\te.followed = false\n\t}",
		by:  "^TestRowsHaveEverything$", why: "the age of a key, or the queue of a leaky bucket, follows from it",
	},
	{
		name: "two charges of one number", file: "internal/engine/rowreceipts.go",
		old: "case l.named[name] != nil:\n\t\tf.Fail()\n",
		new: "",
		by:  "^TestTwoChargesOfOneNumber$", why: "a row with the same number twice is broken",
	},
	{
		name: "units given back in a log come back", file: "internal/exact/pack.go",
		old: "units[l.older] = l.total - before",
		new: "units[l.older] = l.total - before + l.first>>31",
		by:  "^TestRowsHaveEverything$/SlidingWindowLog", why: "the key has used a unit more",
	},
	{
		name: "instants follow from another section", file: "internal/packed/packed.go",
		old: "f.last = start",
		new: "f.last = max(f.last, start)",
		by:  "^TestHealAfterAStrike$", why: "a state that is moved to now is read from its section alone",
	},
	{
		name: "state far ahead stays", file: "internal/engine/row.go",
		old: "reached.Since(now) < uint64(v.ResetAfter)",
		new: "reached.Since(now) > uint64(v.ResetAfter)",
		by:  "^TestHeal$", why: "a key waits for a clock that was once wrong",
	},
	{
		name: "each call loads the row again", file: "dbstore/decider.go",
		old: "if r.used {\n\t\treturn r.broken\n\t}\n",
		new: "d.book.Forget()\n",
		by:  "^TestDatabaseIsExact$", why: "the second call of a transaction does not see what the first has charged",
	},
	{
		name: "lost answer counts as not done", file: "dbstore/errors.go",
		old: "notDone: wasNotDone(err)}",
		new: "notDone: true}",
		by:  "^TestDatabaseIsExact$", why: "what was charged is more than what was granted or may have been charged",
	},
	{
		name: "value of a row that was not written", file: "dbstore/store.go",
		old: "if v.bytes = c.Value; decided",
		new: "if v.bytes = c.New; decided",
		by:  "^TestDatabaseGoesOn$", why: "the next decision is made on a value that the row never had",
	},
	{
		name: "call that joins gets no turn", file: "dbstore/line.go",
		old: "parent[max(a, b)] = min(a, b)",
		new: "_, _ = a, b",
		by:  "^TestDatabaseIsExact$", why: "calls that share a row must be in one group",
	},
	{
		name: "decision ahead of the database", file: "dbstore/known.go",
		old: "return r.db.Add(now.Sub(r.received))",
		new: "return r.db.Add(now.Sub(r.sent) + 1)",
		by:  "^TestDatabaseGoesOn$", why: "no decision is done",
	},
	{
		name: "retry charged again", file: "dbstore/once.go",
		old: "ttl: c.once.TTL}",
		new: "ttl: min(c.once.TTL, 0)}",
		by:  "^TestDatabaseStore$/once", why: "a grant must be recorded",
	},
	{
		name: "row of another key", file: "dbstore/row.go",
		old: "return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value)",
		new: "_ = key\n\treturn crc32.Checksum(value, castagnoli)",
		by:  "^TestDatabaseRowOfAnotherKey$", why: "a value under another key is broken",
	},
}
