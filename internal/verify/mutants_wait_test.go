package verify

// waitMutants are faults in the lines of those who wait. The tests that find them run in a
// synctest bubble and wait until all goroutines are idle after each step, so that chance has no
// part in them.
var waitMutants = []mutant{
	{
		name: "a key that is waited for is not marked", file: "internal/waitline/line.go",
		old: "s.Mark(true)", new: "s.Mark(false)",
		by: "^TestWaitModel$", why: "a newcomer takes the unit of the first", timeout: "60s",
	},
	{
		name: "a split forgets who waits", file: "internal/keytable/split.go",
		old: "upper.Mark(h, true)", new: "",
		by: "^TestMarksSurviveSplits$", why: "a newcomer takes the unit of the first", timeout: "60s",
	},
	{
		name: "a key that is waited for is evicted", file: "internal/keytable/shard.go",
		old: "!s.Marked(s.slots[at].hash) && ", new: "",
		by: "^TestAWaitedForKeyKeepsItsSlot$", why: "the waiter shares the debt of others", timeout: "60s",
	},
	{
		name: "charged when it wakes up", file: "internal/waitline/waitline.go",
		old: "l, at := q.first(), q.due", new: "l, at := q.first(), now",
		by: "^TestWaitModel$", why: "a late wake-up costs throughput", timeout: "60s",
	},
	{
		name: "a newcomer does not count those ahead", file: "internal/waitline/foretell.go",
		old: "t.behind, t.from = &l.future, l.need", new: "t.from = l.need",
		by: "^TestWaitModel$", why: "RetryAfter counts those ahead", timeout: "60s",
	},
	{
		name: "who has left counts for ever", file: "internal/waitline/copies.go",
		old: "if c.wrong > 0 && stale*c.wrong >= c.size ||", new: "if c.wrong < 0 ||",
		by: "^TestWaitModel$", why: "up to 64 in line, the time foretold is exact", timeout: "60s",
	},
	{
		name: "a reset key serves nobody", file: "internal/waitline/change.go",
		old: "if len(q.lines) > 0 && q.first().inWork == 0 {", new: "if false {",
		by: "^TestResetOfSeveralRulesIsOne$", why: "its units are there, and somebody waits for them", timeout: "60s",
	},
	{
		name: "the Delay is that of another instant", file: "internal/waitline/foretell.go",
		old: "case at == t.at && at != t.from:", new: "case true:",
		by: "^TestDelayIsTakenAtTheGrant$", why: "the request is refused although it would be in time", timeout: "60s",
	},
	{
		name: "a denial behind others has a Delay", file: "internal/waitline/foretell.go",
		old: "if s.Delay = t.delay; s.RetryAfter > 0 {", new: "if s.Delay = t.delay; false {",
		by: "^TestDenialBehindWaitersHasNoDelay$", why: "only a granted request has one", timeout: "60s",
	},
	{
		name: "the next does not follow one that leaves", file: "internal/waitline/waitline.go",
		old: "if head {\n\t\tls.decideNext(l)", new: "if false {\n\t\tls.decideNext(l)",
		by: "^TestWaitModel$", why: "the next one is forgotten", timeout: "60s",
	},
	{
		name: "who waits keeps the old rules", file: "internal/waitline/change.go",
		old: "if rules {\n\t\t\tls.rematch(w)", new: "if false {\n\t\t\tls.rematch(w)",
		by: "^TestWaitMachine$", why: "a rule that was added is not charged", timeout: "60s",
	},
	{
		name: "rates change under who waits", file: "internal/waitline/change.go",
		old: "for _, w := range ls.remove(touched) {", new: "for _, w := range ls.remove(func(*line) bool { return false }) {",
		by: "^TestWaitModel$", why: "whom the new limit cannot serve must be refused", timeout: "60s",
	},
	{
		name: "the last to come is the first in a queue", file: "internal/waitline/line.go",
		old: "return l.first.arrival < other.first.arrival", new: "return l.first.arrival > other.first.arrival",
		by: "^TestQueueOfAKey$", why: "lines that share a key are served by arrival", timeout: "60s",
	},
	{
		name: "nobody holds a place", file: "internal/waitline/serve.go",
		old: "hold = l.headDue && ", new: "hold = l.headDue && false && ",
		by: "^TestNobodyStarves$", why: "who needs two busy keys is never served", timeout: "60s",
	},
	{
		name: "the next sets its alarm when it is woken", file: "internal/waitline/serve.go",
		old: "f.at.Since(now) <= uint64(alarmLead)", new: "false",
		by: "^TestAlarmsAreSetAhead$", why: "a fast line stalls", timeout: "60s",
	},
	{
		name: "what a custom limiter decides lines up when it is due", file: "rulewait.go",
		old: "Stands: l.remote == nil && d.custom >= 0 && ",
		new: "Stands: false && ",
		by:  "^TestACustomLimiterHasAPlaceInLine$", why: "those who came later go before it", timeout: "60s",
	},
	{
		name: "beside a store, a custom limiter is asked alone", file: "rulewait.go",
		old: "case l.remote == nil && slices.ContainsFunc",
		new: "case slices.ContainsFunc",
		by:  "^TestACustomLimiterBesideAStoreInLine$", why: "the limit of the store does not hold", timeout: "60s",
	},
	{
		name: "beside a store, it is asked before it is due", file: "rulewait.go",
		old: "Stands: l.remote == nil && d.custom >= 0 && ",
		new: "Stands: d.custom >= 0 && ",
		by:  "^TestACustomLimiterBesideAStoreInLine$", why: "the store is asked in a busy loop", timeout: "5s",
	},
	{
		name: "over a store, each client asks by itself", file: "rulewait.go",
		old: "d.origins[d.binding].by != byStore || d.custom >= 0,", new: "true,",
		by: "^TestWaitersOfASharedKeyAskAsOne$", why: "the calls must not grow with the clients", timeout: "60s",
	},
	{
		name: "over a store, one asks after the other", file: "internal/waitline/retryqueue.go",
		old: "return q.asking < max(q.grants, 1) && q.isDue(now)", new: "return q.asking < 1 && q.isDue(now)",
		by: "^TestWaitersOfASharedKeyAskAsOne$", why: "a slow store must not slow down those who wait", timeout: "60s",
	},
	{
		name: "over a store, the first stays although it lacks another key", file: "internal/waitline/retryqueue.go",
		old: "	l.lacks = d.Index\n	if d.Alone {", new: "	l.lacks = d.Index\n	if l.queue != nil {\n		key = l.queue.key\n	} else if d.Alone {",
		by: "^TestNobodyIsStoppedAtAKeyInAStore$", why: "the next asks at once", timeout: "60s",
	},
	{
		name: "over a store, a newcomer takes less than the first waits for", file: "internal/waitline/retries.go",
		old: " || r.need(i) < other.lines[0].wants())", new: ")",
		by: "^TestOrderAtASharedKeyInAStore$", why: "the first would never have enough", timeout: "60s",
	},
	{
		name: "over a store, a caller that wants less stays behind one that wants more", file: "internal/waitline/retries.go",
		old: "q.ready = q.ready || len(q.lines) > 0 &&", new: "q.ready = q.ready || false &&",
		by: "^TestOrderAtASharedKeyInAStore$", why: "the first has left", timeout: "60s",
	},
	{
		name: "over a store, only the first at a key sees new rules", file: "internal/waitline/retries.go",
		old: "case (p.head || p.answered) && changed():", new: "case (p.asks || p.answered) && changed():",
		by: "^TestWakingThoseAtAKeyInAStore$", why: "a request without a rule is served at once", timeout: "60s",
	},
	{
		name: "in an outage, one asks after the other", file: "internal/waitline/retries.go",
		old: "		q.grants = q.asking + len(q.lines)\n", new: "",
		by: "^TestOutageOfAStoreThatManyWaitFor$", why: "each would wait for the timeouts of all before it", timeout: "60s",
	},
	{
		name: "who waits is one too many", file: "rulewait.go",
		old: "err == nil && newcomer && ", new: "err == nil && ",
		by: "^TestWhoWaitsIsNotOneTooMany$", why: "there is room for him", timeout: "60s",
	},
	{
		name: "a custom limiter that denies keeps the units", file: "internal/waitline/serve.go",
		old: "Take(at, w.Reserves, w.Hold)", new: "Take(at, w.Reserves, false)",
		by: "^TestACustomLimiterThatDeniesGivesItsTurnBack$", why: "the other rules must get them back", timeout: "60s",
	},
	{
		name: "what a custom limiter decides keeps the old rules", file: "wait.go",
		old: "calls && d.waiting.Set != line",
		new: "false && d.waiting.Set != line",
		by:  "^TestACustomLimiterInLineMeetsOtherRules$", why: "a new rule of its own decides too", timeout: "60s",
	},
	{
		name: "any change of the rules concerns all who wait", file: "internal/waitline/change.go",
		old: "w != nil && !touched(w)", new: "w != nil && false",
		by: "^TestChangesOfOtherRules$", why: "those whose rules stay keep what was foretold", timeout: "60s",
	},
	{
		name: "a change of the rules goes by the first in line", file: "internal/waitline/change.go",
		old: "\t\t\tw = w.after\n\t\t}\n\t\treturn w != nil", new: "\t\t\tw = nil\n\t\t}\n\t\treturn w != nil",
		by: "^TestChangesOfOtherRules$", why: "another in the line may have got another rule", timeout: "60s",
	},
	{
		name: "the Delay of a custom limiter counts from before it was asked", file: "rulewait.go",
		old: "d.custom >= 0 && d.parts[d.custom].Delay > 0", new: "false && d.parts[d.custom].Delay > 0",
		by: "^TestACustomLimiterInLineMisbehaves$", why: "the request would leave too early", timeout: "60s",
	},
}
