package verify

// mutantsOfTime change how clocks are read that are set late or step back.
var mutantsOfTime = []mutant{
	{
		name: "the origin is never taken anew", file: "internal/engine/origin.go",
		old: "if !usual(now) {",
		new: "if usual(now) {",
		by:  "^TestClockSetLater$", why: "a clock that is set late is 292 years from its start for ever",
	},
	{
		name: "the states outlive the origin", file: "internal/keytable/table.go",
		old: "\t\ts.fill(nil)\n",
		new: "",
		by:  "^TestClockSetLater$", why: "keys that were used before the clock was set are not as new",
	},
	{
		name: "the shared debt outlives the origin", file: "internal/keytable/table.go",
		old: "s.Algorithm, s.overflow, s.shared, s.floor, s.latest = alg, unused, false, 0, 0",
		new: "_, s.Algorithm, s.floor, s.latest = unused, alg, 0, 0",
		by:  "^TestClockSetLater$", why: "a key without a state is not as new",
	},
	{
		name: "windows keep their old phase", file: "limiter.go",
		old: "k.configure(*k.rate.Load(), k.engine.Time())",
		new: "k.configure(*k.rate.Load(), new(engine.Timeline))",
		by:  "^TestClockSetLater$", why: "windows are not aligned to multiples of Per",
	},
	{
		name: "RetryAfter forgets that the clock has stepped back", file: "internal/engine/engine.go",
		old: "\tv.await(last, now)\n",
		new: "",
		by:  "^TestRetryAfterWhenTheClockHasSteppedBack$", why: "a client that waits RetryAfter is denied",
	},
	{
		name: "RetryAfter forgets the floor", file: "internal/engine/limiter.go",
		old: "\t\tv.await(seen, now)\n",
		new: "",
		by:  "^TestRetryAfterBelowTheFloor$", why: "a key without a state, denied by the shared debt, waits too short",
	},
	{
		name: "rules keep their states when the origin moves", file: "ratelimit.go",
		old: "\t\t\tr.local.Restart()\n",
		new: "",
		by:  "^TestRulesOnAClockSetLater$", why: "keys that were used before the clock was set are not as new",
	},
	{
		name: "the RetryAfter of a rule forgets the floor", file: "internal/engine/rated.go",
		old: "\t\tv.await(seen, now)\n",
		new: "",
		by:  "^TestRetryAfterBelowTheFloor$", why: "a key without a state, denied by the shared debt, waits too short",
	},
	{
		name: "BlockUntil counts callers that have left", file: "internal/handclock/handclock.go",
		old: "c.waiting += change",
		new: "c.waiting += max(change, 0)",
		by:  "^TestBlockUntil$", why: "it returns although fewer callers wait",
	},
	{
		name: "BlockUntil counts channels that have received the time", file: "internal/handclock/handclock.go",
		old: "\t\t\t\tc.waiting--\n",
		new: "\t\t\t\t_ = c\n",
		by:  "^TestBlockUntil$", why: "it returns although nobody waits for such a channel",
	},
	{
		name: "BlockUntil counts channels that need not wait", file: "internal/handclock/handclock.go",
		old: "if c.alarmLocked(a); !a.rung {",
		new: "if c.alarmLocked(a); true {",
		by:  "^TestBlockUntil$", why: "it returns although nobody waits for such a channel",
	},
}
