package verify

// explainMutants are faults in what is said of a limit and of a request: MaxIn and Explain.
var explainMutants = []mutant{
	{
		name: "a bucket loses nothing", file: "internal/exact/max.go",
		old: "if hi > 0 || uint64(b.Gain) <= limit {",
		new: "if hi == 0 || hi > 0 {",
		by:  "^TestMaxIn$", why: "with a burst of 1, what drains between two instants is lost",
	},
	{
		name: "a bucket loses an instant too late", file: "internal/exact/max.go",
		old: "length/ratioUp(unit, 1, lost))",
		new: "length/ratio(unit+lost, 1, lost))",
		by:  "^TestMaxIn$", why: "where the unit is a multiple of what is lost, the debt is gone an instant earlier",
	},
	{
		name: "windows without an edge", file: "internal/exact/max.go",
		old: "add(1, ratioUp(length, 1, per))",
		new: "add(1, length/per)",
		by:  "^TestMaxIn$", why: "the shortest interval may touch two windows",
	},
	{
		name: "a log is open at the end", file: "internal/exact/max.go",
		old: "1+length/per)",
		new: "max(1, ratioUp(length, 1, per)))",
		by:  "^TestMaxIn$", why: "a unit counts no more exactly Per after it was granted",
	},
	{
		name: "a counter's windows weigh the same", file: "internal/exact/max.go",
		old: "next := requests - ratioUp(count, 1, per)",
		new: "next := requests - ratioUp(requests, 1, per)",
		by:  "^TestMaxIn$", why: "the weight is that of what the window before has granted",
	},
	{
		name: "a counter's last window is whole", file: "internal/exact/max.go",
		old: "requests-ratioUp(count, per-rest, per))",
		new: "requests-ratioUp(count, 1+0*rest, per))",
		by:  "^TestMaxIn$", why: "at the end of the interval, more of the window before may weigh",
	},
	{
		name: "a counter's alternation ends wrong", file: "internal/exact/max.go",
		old: "if left%2 == 1 {",
		new: "if left%2 == 0 {",
		by:  "^TestMaxIn$|^TestMaxInOfExtremes$", why: "what weighs at the end is the count of the last window",
	},
	{
		name: "the most wraps", file: "internal/exact/max.go",
		old: "	if hi > 0 {\n\t\treturn math.MaxUint64\n\t}\n\treturn lo",
		new: "	if hi > 1<<62 {\n\t\treturn math.MaxUint64\n\t}\n\treturn lo",
		by:  "^TestMaxInOfExtremes$", why: "a product beyond 64 bits is not its lowest 64",
	},
	{
		name: "a rehearsal charges", file: "internal/engine/dryrun.go",
		old: "charged = ps.copyOf(s)",
		new: "charged = s",
		by:  "^TestExplain$", why: "Explain takes nothing",
	},
	{
		name: "a rehearsal's copy shares the log", file: "internal/engine/dryrun.go",
		old: "state: p.config.Clone(&s.state)",
		new: "state: s.state",
		by:  "^TestExplain$", why: "what is charged to a copy is not in the log of the key",
	},
	{
		name: "a rehearsal finds room", file: "internal/engine/dryrun.go",
		old: "if own = shard.HasRoom(seen); own {",
		new: "if own = true; own {",
		by:  "^TestExplain$", why: "a charge of a debt that keys share is not given back",
	},
	{
		name: "a rehearsal keeps what is given back", file: "internal/engine/dryrun.go",
		old: "p.config.GiveBack(&state.state, back)",
		new: "_ = back",
		by:  "^TestExplain$", why: "when a custom limiter denies, the others get their units back",
	},
	{
		name: "a rehearsal is counted", file: "internal/engine/decide.go",
		old: "counted := order.Mode.Charges() && (",
		new: "counted := (",
		by:  "^TestExplain$", why: "Stats count no explanation",
	},
	{
		name: "an explanation is observed", file: "decision.go",
		old: "if l.settings.observer != nil && d.decided() {",
		new: "if l.settings.observer != nil && (d.decided() || d.order.Mode == engine.ModeDryRun) {",
		by:  "^TestExplain$", why: "the observer sees no explanation",
	},
	{
		name: "an explanation's look at a custom limiter is counted", file: "custom.go",
		old: "if d.order.Mode != engine.ModeDryRun && (failed != nil ||",
		new: "if (failed != nil ||",
		by:  "^TestExplain$", why: "Stats count no explanation",
	},
	{
		name: "a custom limiter's denial is explained as charged", file: "custom.go",
		old: "p.Verdict, p.Delay = d.order.Found[i].Verdict, d.order.Found[i].Delay",
		new: "_ = p",
		by:  "^TestExplain$", why: "the other rules get their units back",
	},
	{
		name: "breakers admit explanations", file: "internal/storecall/storecall.go",
		old: "err = c.Breakers.Refusal(parts, now); err != nil {",
		new: "_, err = c.Breakers.Admit(parts, now); err != nil {",
		by:  "^TestExplain$", why: "a probe that never ends keeps the breaker open",
	},
	{
		name: "explanations are remembered", file: "remote.go",
		old: "!d.Replayed && d.order.Mode != engine.ModeDryRun {\n\t\t\tr.remember",
		new: "!d.Replayed {\n\t\t\tr.remember",
		by:  "^TestExplain$", why: "the share of this process gets a key",
	},
	{
		name: "the source of a rate", file: "observer.go",
		old: "return \"tier\"",
		new: "return \"rule\"",
		by:  "^TestExplain$", why: "the rate of a tier is said to be that of the rule",
	},
	{
		name: "a denial behind others is counted", file: "wait.go",
		old: "d.spots, d.order.Mode == engine.ModeTake && record",
		new: "d.spots, d.order.Mode.Takes() && d.order.Mode != engine.ModeRetry && record",
		by:  "^TestExplainBehindOthers$", why: "Stats count no explanation",
	},
	{
		name: "an explanation behind others asks for its record", file: "rulewait.go",
		old: "d.order.Mode != engine.ModeDryRun && l.recorded(ctx, d)",
		new: "l.recorded(ctx, d)",
		by:  "^TestExplanationsOpenNoBreaker$", why: "its failures would open the breaker",
	},
	{
		name: "a tier's rate in place of an invalid one", file: "remote.go",
		old: "case p.Err != nil: // an earlier call", new: "case false: // an earlier call",
		by: "^TestExplainAnInvalidRateWithAnID$", why: "the rule's own rate applies",
	},
	{
		name: "a request without the unit is said to be unheld", file: "explain.go",
		old: "_, asked := d.request.cost(r.Unit); asked {\n\t\t\t\tx.AnsweredBy",
		new: "r.holds() {\n\t\t\t\tx.AnsweredBy",
		by:  "^TestInFlightExplained$", why: "a rule in flight that counts tokens does not apply to it",
	},
	{
		name: "the oldest hold is what is left of it", file: "internal/engine/inflight.go",
		old: "max(c.per-now.Until(live[first].until), 0)", new: "now.Until(live[first].until)",
		by: "^TestInFlightExplained$", why: "the age is 15 s, of a minute",
	},
	{
		name: "an ended hold is the oldest", file: "internal/engine/inflight.go",
		old: "func(e hold) bool { return e.n > 0 })", new: "func(hold) bool { return true })",
		by: "^TestInFlightExplained$", why: "one between others stays in the list",
	},
}
