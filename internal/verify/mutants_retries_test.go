package verify

// retryMutants are faults in how requests with an ID are charged once.
var retryMutants = []mutant{
	{
		name: "a grant answers one instant too long", file: "internal/replay/replay.go",
		old: "since >= r.ttl ||", new: "since > r.ttl ||",
		by: "^TestRetries$", why: "when its time has passed it does not answer",
	},
	{
		name: "a grant answers any number of times", file: "internal/replay/replay.go",
		old: "|| r.replays == MaxReplays", new: "|| r.replays == -MaxReplays",
		by: "^TestRetries$", why: "it answers 100 times",
	},
	{
		name: "a replay has the ResetAfter of the grant", file: "internal/replay/replay.go",
		old: "p.ResetAfter = max(p.ResetAfter-since, 0)", new: "p.ResetAfter = max(p.ResetAfter, since-since)",
		by: "^TestRetries$", why: "time has passed since",
	},
	{
		name: "a replay has the Delay of the grant", file: "internal/replay/replay.go",
		old: "max(a.delay-since, 0)", new: "a.delay",
		by: "^TestRetries$", why: "time has passed since",
	},
	{
		name: "a grant is forgotten with the one that it has replaced", file: "internal/replay/replay.go",
		old: "l.places[id] == l.first {", new: "id == id {",
		by: "^TestRetriesForgotten$", why: "the newer one is kept",
	},
	{
		name: "one grant too few is kept", file: "internal/replay/replay.go",
		old: "if l.size == l.limit {", new: "if l.size == l.limit-1 {",
		by: "^TestRetriesForgotten$", why: "as many are kept as there may be keys",
	},
	{
		name: "two decide on one request", file: "internal/replay/replay.go",
		old: "ended, running := l.pending[id]", new: "ended, running := l.pending[id], false",
		by: "^TestRetriesInFlight$", why: "the other waits",
	},
	{
		name: "nothing is recorded", file: "internal/engine/decide.go",
		old: "order.Record.Add(out.Now)", new: "_ = out.Now",
		by: "^TestRetries$", why: "a retry is charged once",
	},
	{
		name: "recorded before the last rule is charged", file: "internal/engine/decide.go",
		old: "recorded = len(parts) - 1 //", new: "recorded = 0 //",
		by: "^TestRetries$", why: "each rule has the answer that it gave",
	},
	{
		name: "the client does not matter", file: "request.go",
		old: "keytable.HashOfPair(req.Client, req.ID)", new: "keytable.HashOfPair(\"\", req.ID)",
		by: "^TestRetriesForgotten$", why: "an ID of one client is of no use to another, also at a shared key",
	},
	{
		name: "the cost does not matter", file: "ruleset.go",
		old: "id.Lo += uint64(n) //", new: "id.Lo += 0 //",
		by: "^TestRetriesOfOthers$", why: "the ID of a cheap request is of no use for an expensive one",
	},
	{
		name: "the rule does not matter", file: "ruleset.go",
		old: "uint64(len(modes))*r.serial", new: "0*r.serial",
		by: "^TestRetriesOfOthers$", why: "another rule is charged",
	},
	{
		name: "the mode does not matter", file: "ruleset.go",
		old: "+uint64(slices.Index(modes, string(r.Mode)))", new: "",
		by: "^TestRetriesOfOthers$", why: "what a shadow rule has answered is no grant",
	},
	{
		name: "the order of the asks matters", file: "internal/replay/record.go",
		old: "return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Algorithm, b.Algorithm))", new: "return 0*cmp.Compare(a.Rule, b.Rule)",
		by: "^TestRetriesInOtherOrders$", why: "processes may have the rules in different orders",
	},
	{
		name: "a policy's answer is recorded", file: "idempotency.go",
		old: "&& !d.Replayed && !res.Degraded {", new: "&& !d.Replayed {",
		by: "^TestRetriesInFlight$", why: "it says nothing of the limiter",
	},
	{
		name: "plain rules know no ID", file: "ratelimit.go",
		old: "if req.ID != \"\" {\n\t\treturn l.replayPlain",
		new: "if false {\n\t\treturn l.replayPlain",
		by:  "^TestRetries$", why: "most rules are plain",
	},
	{
		name: "the head of a line is charged in any case", file: "internal/waitline/serve.go",
		old: "if w.Record != nil && w.Record.Find(at) {", new: "if false {",
		by: "^TestGrantedWhileItJoinsTheLine$", why: "it was granted since its record was looked for",
	},
	{
		name: "who joins a line is not granted yet", file: "internal/waitline/serve.go",
		old: "if w.Record != nil && w.Record.Find(now) {", new: "if false {",
		by: "^TestGrantedWhileItJoinsTheLine$", why: "it was granted since its record was looked for",
	},
	{
		name: "a retry behind others is charged", file: "internal/waitline/sameid.go",
		old: "if f.follows = false; f.Record.Find(at) {", new: "if f.follows = false; false {",
		by: "^TestRetriesBehindOthers$", why: "it has the answer of the first attempt as soon as that is granted",
	},
	{
		name: "a retry leaves with its first attempt", file: "internal/waitline/sameid.go",
		old: "	if promoted {\n		next.follows = false\n", new: "	if promoted = false; promoted {\n",
		by: "^TestRetriesBehindOthers$", why: "it is served in its own turn",
	},
	{
		name: "a retry goes before those who came earlier", file: "internal/waitline/sameid.go",
		old: "for ahead.arrival > w.arrival {", new: "for ahead.ahead != nil {",
		by: "^TestRetriesBehindOthers$", why: "it came later",
	},
	{
		name: "a retry behind others asks the store in its own turn", file: "internal/waitline/retries.go",
		old: "	if served {\n		rs.release(a)\n	} else if", new: "	if",
		by: "^TestRetriesBehindOthers$", why: "it has the answer of the first attempt as soon as that is granted",
	},
	{
		name: "who has waited is not recorded", file: "internal/waitline/serve.go",
		old: "		w.Record.Add(at)\n", new: "",
		by: "^TestRetriesInLine$", why: "a retry of it is charged once",
	},
	{
		name: "the answer of who has waited is not recorded", file: "idempotency.go",
		old: "		waitline.Learn(d.parts, d.spots)\n", new: "		_ = waitline.Learn\n",
		by: "^TestRetriesInLine$", why: "a retry has its answer",
	},
	{
		name: "a retry waits for a store", file: "rulewait.go",
		old: "!denied || d.order.Mode != engine.ModeDryRun && l.recorded(ctx, d) {",
		new: "!denied {",
		by:  "^TestRetriesInLine$", why: "it was granted before",
	},
	{
		name: "a retry behind others asks the store by the rules of its arrival", file: "internal/waitline/retries.go",
		old: "case (p.head || p.answered) && changed():", new: "case p.head && changed():",
		by: "^TestRetriesUnderNewRules$", why: "its request is charged twice",
	},
}
