package redisstore_test

// outageMutants are faults in what the store says of calls that have failed.
var outageMutants = []mutant{
	{name: "oom-unanswered", file: "errors.go",
		old: " || e.Class == ClassOOM", new: "",
		by: "TestUsedUpKeyOutOfMemory", why: "a server without memory still denies"},
	{name: "foreign-unanswered", file: "errors.go",
		old: "e.Class == ClassWrongType || ", new: "",
		by: "TestPoisonedKey", why: "one poisoned key does not keep other requests from the server"},
	{name: "lost-call-unnumbered", file: "conn.go",
		old: "failed.call = o.call", new: "",
		by: "TestLostReplyCountsOnce", why: "callers who shared a call report one failure"},
	{name: "unsent-call-by-itself", file: "sender.go",
		old: "before = c.shared.keyQueue.calls[0].pipeline", new: "before = 0",
		by: "TestLostReplyCountsOnce", why: "what waited for a lost call was lost with it"},
	{name: "left-parts-untold", file: "parts.go",
		old: "return &leftParts{ctx.Err(), errs, items, parts}", new: "return ctx.Err()",
		by: "TestShortContextsOfParts", why: "the same holds for a decision in several slots", timeout: "15s"},
}
