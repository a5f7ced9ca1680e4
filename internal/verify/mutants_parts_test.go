package verify

// partsMutants are faults in how the parts of a store are told apart.
var partsMutants = []mutant{
	{
		name: "a refused call keeps its probe", file: "internal/breaker/set.go",
		old: "s.Abandoned(p) // otherwise",
		new: "// otherwise",
		by:  "^TestPropertiesOfParts$", why: "nobody would find out any more whether that part is back",
	},
	{
		name: "a probe of a part that is not blamed is lost", file: "internal/breaker/set.go",
		old: "s.Abandoned(Pass{p.parts &^ failing, p.probes &^ failing})",
		new: "",
		by:  "^TestPropertiesOfParts$", why: "nobody would find out any more whether that part is back",
	},
	{
		name: "a part that is not blamed has answered", file: "internal/breaker/set.go",
		old: "s.Abandoned(Pass{p.parts &^ failing, p.probes &^ failing})",
		new: "s.Succeeded(Pass{p.parts &^ failing, p.probes &^ failing})",
		by:  "^TestPropertiesOfParts$", why: "the store may have given up before it asked that part",
	},
	{
		name: "all parts are blamed", file: "internal/breaker/set.go",
		old: "failing = blamed",
		new: "failing |= blamed",
		by:  "^TestPropertiesOfParts$", why: "a dead part would have live ones left alone",
	},
	{
		name: "nobody is blamed", file: "internal/breaker/set.go",
		old: "blamed &= p.parts; blamed != 0",
		new: "blamed &= p.parts; blamed != p.parts",
		by:  "^TestPropertiesOfParts$", why: "a dead store that does not say of which parts would be asked for ever",
	},
	{
		name: "the last part stands for all", file: "remote.go",
		old: "parts |= c.partOf(r, &d.request, d.origins[i].rate)",
		new: "parts = c.partOf(r, &d.request, d.origins[i].rate)",
		by:  "^TestPropertiesOfParts$", why: "a part would be asked while it is to be left alone",
	},
	{
		name: "the last part of a reset stands for all", file: "storecall.go",
		old: "parts |= breaker.Bit(c.partitioned.Part(asks[i]))",
		new: "parts = breaker.Bit(c.partitioned.Part(asks[i]))",
		by:  "^TestPropertiesOfParts$", why: "a part would be asked while it is to be left alone",
	},
	{
		name: "one part that pauses is all, for plain rules", file: "remote.go",
		old: "Refusal(c.partOf(r, req, r.Rate), ",
		new: "Refusal(^uint64(0), ",
		by:  "^TestPropertiesOfParts$", why: "the keys of live parts would not be decided by the store",
	},
	{
		name: "an outage has a line for each client", file: "internal/sample/log.go",
		old: "case kind.Cause == CauseStore:",
		new: "case kind.Cause == CauseStore && d.Cost > 1:",
		by:  "^TestOutageInTheLog$", why: "the log would have a line for each decision without the store",
	},
	{
		name: "the log does not say that the store is back", file: "internal/sample/log.go",
		old: "case d.FromStore && l.outage.Lasts():",
		new: "case d.Source == \"memory\" && l.outage.Lasts():",
		by:  "^TestOutageInTheLog$", why: "an outage would have no end",
	},
	{
		name: "an answer of the store makes FailLocal forget", file: "internal/engine/fallback.go",
		old: "granted, other, id = s.granted.step(h, want, now, n, do)",
		new: "granted, other, id = s.granted.step(h, want, now, n, min(do, Probe))",
		by:  "^TestPropertiesOfFailLocal$", why: "each outage would grant the limit again",
	},
	{
		name: "FailLocal charges one of two states", file: "internal/engine/fallback.go",
		old: "if granted.RetryAfter != 0 {\n\t\task = Look",
		new: "if granted.RetryAfter < 0 {\n\t\task = Look",
		by:  "^TestPropertiesOfFailLocal$", why: "a denial would be charged",
	},
	{
		name: "FailLocal gives back to what the store has said alone", file: "internal/engine/fallback.go",
		old: "f.granted.Settle(h, id, actual, now))",
		new: "f.granted.Settle(h, id, actual|1<<40, now))",
		by:  "^TestPropertiesOfFailLocal$", why: "units that were not used would count",
	},
	{
		name: "FailLocal gives back to what it has granted alone", file: "internal/engine/fallback.go",
		old: "said := f.Keys.Settle(h, f.twin(id), actual, now)",
		new: "said := f.Keys.Settle(h, 0, actual, now)",
		by:  "^TestPropertiesOfFailLocal$", why: "units that were not used would count until the store answers",
	},
	{
		name: "FailLocal does not count what was used beyond a reservation", file: "internal/engine/fallback.go",
		old: "return f.granted.Exceed(h, want, now, n)",
		new: "return 0",
		by:  "^TestPropertiesOfFailLocal$", why: "the next answer of the store would forget these units",
	},
	{
		name: "FailLocal keeps what a custom limiter has denied", file: "internal/engine/fallback.go",
		old: "granted, other := f.granted.Revoke(h, id, want, then, n)",
		new: "granted, other := f.granted.Revoke(h, 0, want, then, n)",
		by:  "^TestPropertiesOfFailLocal$", why: "nothing was granted",
	},
	{
		name: "FailLocal keeps its grants after a reset", file: "internal/engine/fallback.go",
		old: "granted := f.granted.Reset(h, want)",
		new: "granted := h == h",
		by:  "^TestPropertiesOfFailLocal$", why: "the key is as if it had never been used",
	},
	{
		name: "FailLocal keeps its old rate", file: "internal/engine/fallback.go",
		old: "		granted(now)\n",
		new: "		_ = granted\n",
		by:  "^TestPropertiesOfFailLocal$", why: "the rule has another rate",
	},
}
