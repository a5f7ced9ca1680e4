package verify

// bucketMutants are faults in the arithmetic of token and leaky bucket.
var bucketMutants = []mutant{
	{
		name: "truncated emission interval", file: "level.go",
		old: "gain: requests / d, unit: per / d}",
		new: "gain: d / d, unit: max(per/requests, 1)}",
		by:  "^TestDrift$", why: "a rate that is not one per so many whole nanoseconds drifts",
	},
	{
		name: "missing cap", file: "level.go",
		old: "if debt.whole < 0 {",
		new: "if debt.whole < -b.burst {",
		by:  "^TestProperties$/TokenBucket", why: "an idle bucket fills beyond its burst",
	},
	{
		name: "waits rounded down", file: "level.go",
		old: "bits.Add64(lo, uint64(b.gain-1), 0)",
		new: "bits.Add64(lo, 0, 0)",
		by:  "^TestProperties$/TokenBucket", why: "RetryAfter is a nanosecond short",
	},
	{
		name: "remaining rounded up", file: "level.go",
		old: "return b.burst - debt.whole - 1",
		new: "return b.burst - debt.whole",
		by:  "^TestProperties$/TokenBucket", why: "a part of a token is granted as a whole one",
	},
	{
		name: "Never forgotten", file: "level.go",
		old: "if n > burst {",
		new: "if n < 0 {",
		by:  "^TestProperties$/TokenBucket", why: "what never fits is told to wait",
	},
	{
		name: "an overflowing wait wraps", file: "level.go",
		old: "if hi > 0 || lo > math.MaxInt64 {",
		new: "if lo > math.MaxInt64 {",
		by:  "^TestPropertiesOfExtremes$/TokenBucket", why: "a wait beyond 292 years is Never",
	},
	{
		name: "additive change of the burst", file: "level.go",
		old: "debt.whole += b.burst - from.burst",
		new: "debt.whole += min(b.burst-from.burst, 0)",
		by:  "^TestProperties$/TokenBucket", why: "a raise of the burst grants its difference at once",
	},
	{
		name: "a change of the rate rounds for the client", file: "level.go",
		old: "if rest > 0 {\n\t\tfrac++\n\t}\n\tif frac == uint64(b.unit)",
		new: "_ = rest\n\tif frac == uint64(b.unit)",
		by:  "^TestProperties$/TokenBucket", why: "a change of the rate grants a part of a token",
	},
	{
		name: "a denial moves the time", file: "tokenbucket.go",
		old: "v.retryAfter = pace.timeToFit(debt, n, c.burst)",
		new: "v.retryAfter = pace.timeToFit(debt, n, c.burst)\n\t\tif charge && n <= c.burst {\n\t\t\ts.last, s.frac, s.whole = now, debt.frac, uint32(debt.whole)\n\t\t}",
		by:  "^TestProperties$/TokenBucket", why: "after a step back, the denied ask would have changed the answer",
	},
	{
		name: "a denial consumes", file: "tokenbucket.go",
		old: "v.retryAfter = pace.timeToFit(debt, n, c.burst)",
		new: "v.retryAfter = pace.timeToFit(debt, n, c.burst)\n\t\tif charge && n <= c.burst {\n\t\t\ts.last, s.frac, s.whole = now, debt.frac, uint32(debt.whole+c.left(debt))\n\t\t}",
		by:  "^TestProperties$/TokenBucket", why: "a denied ask costs what there was",
	},
	{
		name: "remainder dropped on consumption", file: "tokenbucket.go",
		old: "debt.whole += n\n",
		new: "debt.whole += n\n\t\tif debt.frac > 0 {\n\t\t\tdebt = level{debt.whole + 1, 0}\n\t\t}\n",
		by:  "^TestDrift$", why: "each grant loses a part of a token",
	},
	{
		name: "last rewinds", file: "tokenbucket.go",
		old: "charge bool) (v verdict, delay time.Duration) {\n\tnow = max(now, s.last)",
		new: "charge bool) (v verdict, delay time.Duration) {\n\ts.last = min(s.last, now)",
		by:  "^TestProperties$/TokenBucket", why: "the time stepped over is earned twice",
	},
	{
		name: "refill only at zero", file: "tokenbucket.go",
		old: "debt := pace.less(s.debt(), hi, lo)\n\tv.left",
		new: "debt := s.debt()\n\tif c.left(debt) == 0 {\n\t\tdebt = pace.less(debt, hi, lo)\n\t}\n\tv.left",
		by:  "^TestProperties$/TokenBucket", why: "nothing is earned before the bucket is empty",
	},
	{
		name: "a bucket is full when less than a token is missing", file: "tokenbucket.go",
		old: "return now >= s.last && c.drained(s.debt(), now.Since(s.last)) == level{}",
		new: "return now >= s.last && c.drained(s.debt(), now.Since(s.last)).whole == 0",
		by:  "^TestPropertiesOfEviction$/TokenBucket", why: "forgetting the key forgives what is missing",
	},
	{
		name: "a change of the burst moves the queue", file: "leakybucket.go",
		old: "if s.queue != s.debt {",
		new: "if s.queue != s.queue {",
		by:  "^TestProperties$/LeakyBucket", why: "a raise of the burst delays what comes next",
	},
	{
		name: "Delay counts the ask itself", file: "leakybucket.go",
		old: "delay = pace.toDrain(pace.parts(queue))",
		new: "delay = pace.toDrain(pace.parts(level{queue.whole + n, queue.frac}))",
		by:  "^TestProperties$/LeakyBucket", why: "the first one would wait for itself",
	},
}

// windowMutants are faults in the three algorithms that count in windows.
var windowMutants = []mutant{
	{
		name: "boundary inclusive in a fixed window", file: "fixedwindow.go",
		old: "if now.Since(s.last) > offset {",
		new: "if now.Since(s.last) >= offset {",
		by:  "^TestProperties$/FixedWindow", why: "a unit at the first instant of a window is forgotten",
	},
	{
		name: "fixed window ends late", file: "fixedwindow.go",
		old: "case n > c.requests-used:\n\t\tv.retryAfter = time.Duration(c.per - offset)",
		new: "case n > c.requests-used:\n\t\tv.retryAfter = time.Duration(c.per - offset + 1)",
		by:  "^TestProperties$/FixedWindow", why: "RetryAfter is a nanosecond long",
	},
	{
		name: "windows before the epoch", file: "window.go",
		old: "if sec < 0 {",
		new: "if sec < -1<<62 {",
		by:  "^TestProperties$/FixedWindow", why: "a division that rounds to zero is not one that rounds down",
	},
	{
		name: "boundary inclusive in a log", file: "slidingwindowlog.go",
		old: "if now.Since(s.last) >= c.per {",
		new: "if now.Since(s.last) > c.per {",
		by:  "^TestProperties$/SlidingWindowLog", why: "a unit exactly Per old counts",
	},
	{
		name: "boundary inclusive for older entries of a log", file: "slidingwindowlog.go",
		old: "return now.Since(s.entry(uint32(i)).at) < c.per",
		new: "return now.Since(s.entry(uint32(i)).at) <= c.per",
		by:  "^TestProperties$/SlidingWindowLog", why: "a unit exactly Per old counts",
	},
	{
		name: "a longer Per brings entries back", file: "slidingwindowlog.go",
		old: "gone, used := from.used(s, s.clock)",
		new: "gone, used := uint32(0), int64(s.total-s.base)",
		by:  "^TestProperties$/SlidingWindowLog", why: "what has left counts again",
	},
	{
		name: "a log leaves nothing to inherit", file: "slidingwindowlog.go",
		old: "_, used := c.used(s, max(now, s.clock))",
		new: "_, used := c.used(s, s.clock+1<<62)",
		by:  "^TestOverflowIsInherited$", why: "a key gets the limit twice",
	},
	{
		name: "estimate in float64", file: "slidingwindowcounter.go",
		old: "hi, lo := bits.Mul64(uint64(prev), c.per-offset)\n\tq, rest := bits.Div64(hi, lo, c.per) // fits: at most prev\n\tif rest > 0 {\n\t\tq++\n\t}\n\treturn int64(q)",
		new: "return int64(math.Ceil(float64(prev) * (float64(c.per-offset) / float64(c.per))))",
		by:  "^TestProperties(OfExtremes)?$/SlidingWindowCounter", why: "the quotient of two whole numbers is not exact in 53 bits",
	},
	{
		name: "estimate rounded down", file: "slidingwindowcounter.go",
		old: "if rest > 0 {\n\t\tq++\n\t}",
		new: "_ = rest",
		by:  "^TestProperties$/SlidingWindowCounter", why: "a part of a unit is granted as a whole one",
	},
	{
		name: "previous count kept for ever", file: "slidingwindowcounter.go",
		old: "case ago-offset <= c.per:\n\t\treturn s.cur, 0\n\t}\n\treturn 0, 0",
		new: "}\n\treturn s.cur, 0",
		by:  "^TestProperties$/SlidingWindowCounter", why: "two windows later nothing may count",
	},
	{
		name: "only the current count is as good as new", file: "slidingwindowcounter.go",
		old: "return prev == 0 && cur == 0",
		new: "return cur == 0 && prev >= 0",
		by:  "^TestPropertiesOfEviction$/SlidingWindowCounter", why: "forgetting the key forgets its previous window",
	},
}
