package verify

// tokenMutants are faults in how a token bucket keeps its tokens when its burst changes.
var tokenMutants = []mutant{
	{
		name: "a full bucket does not stay full", file: "tokenbucket.go",
		old: "if s.whole > 0 || s.frac > 0 {",
		new: "if s.last != 0 {",
		by:  "^TestProperties$/TokenBucket", why: "a full bucket is like one that was never used",
	},
	{
		name: "a bucket short of a part of a token stays full", file: "tokenbucket.go",
		old: "if s.whole > 0 || s.frac > 0 {",
		new: "if s.whole > 0 {",
		by:  "^TestProperties$/TokenBucket", why: "a raise of the burst would be granted at once",
	},
	{
		name: "a cut takes tokens that fit", file: "tokenbucket.go",
		old: "debt := c.Converted(s.debt(), exact.Level{}, &from.Bucket)",
		new: "debt := c.Converted(s.debt(), s.debt(), &from.Bucket)",
		by:  "^TestProperties$/TokenBucket", why: "30 of 100 stays 30 of 50",
	},
	{
		name: "a denial under a smaller burst changes the key", file: "tokenbucket.go",
		old: "return c.Burst < from.Burst",
		new: "return c.Burst > 1<<40",
		by:  "^TestBoundOfUnannouncedChanges$", why: "requests that cost nothing would fill a key up",
	},
	{
		name: "the wait under a smaller burst counts at its own rate", file: "internal/engine/rated.go",
		old: "v, _ = p.config.Step(&to.state, slow.config, now, n, false)",
		new: "v, _ = p.config.Step(&to.state, p.config, now, n, false)",
		by:  "^TestPropertiesOfChangingTiers$", why: "until the key is charged, it earns at the slower rate",
	},
}
