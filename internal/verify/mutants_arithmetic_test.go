package verify

// bucketMutants are faults in the arithmetic of token and leaky bucket.
var bucketMutants = []mutant{
	{
		name: "truncated emission interval", file: "internal/exact/bucket.go",
		old: "Gain: requests / d, Unit: per / d}",
		new: "Gain: d / d, Unit: max(per/requests, 1)}",
		by:  "^TestDrift$", why: "a rate that is not one per so many whole nanoseconds drifts",
	},
	{
		name: "missing cap", file: "internal/exact/bucket.go",
		old: "if debt.Whole < 0 {",
		new: "if debt.Whole < -b.Burst {",
		by:  "^TestProperties$/TokenBucket", why: "an idle bucket fills beyond its burst",
	},
	{
		name: "waits rounded down", file: "internal/exact/bucket.go",
		old: "bits.Add64(lo, uint64(b.Gain-1), 0)",
		new: "bits.Add64(lo, 0, 0)",
		by:  "^TestProperties$/TokenBucket", why: "RetryAfter is a nanosecond short",
	},
	{
		name: "remaining rounded up", file: "internal/exact/bucket.go",
		old: "return b.Burst - debt.Whole - 1",
		new: "return b.Burst - debt.Whole",
		by:  "^TestProperties$/TokenBucket", why: "a part of a token is granted as a whole one",
	},
	{
		name: "Never forgotten", file: "internal/exact/bucket.go",
		old: "if n > burst {",
		new: "if n < 0 {",
		by:  "^TestProperties$/TokenBucket", why: "what never fits is told to wait",
	},
	{
		name: "an overflowing wait wraps", file: "internal/exact/bucket.go",
		old: "if hi > 0 || lo > math.MaxInt64 {",
		new: "if lo > math.MaxInt64 {",
		by:  "^TestPropertiesOfExtremes$/TokenBucket", why: "a wait beyond 292 years is Never",
	},
	{
		name: "additive change of the burst", file: "internal/exact/bucket.go",
		old: "debt.Whole += b.Burst - from.Burst",
		new: "debt.Whole += min(b.Burst-from.Burst, 0)",
		by:  "^TestProperties$/TokenBucket", why: "a raise of the burst grants its difference at once",
	},
	{
		name: "a change of the rate rounds for the client", file: "internal/exact/bucket.go",
		old: "if rest > 0 {\n\t\tfrac++\n\t}\n\tif frac == uint64(b.Unit)",
		new: "_ = rest\n\tif frac == uint64(b.Unit)",
		by:  "^TestProperties$/TokenBucket", why: "a change of the rate grants a part of a token",
	},
	{
		name: "a denial moves the time", file: "tokenbucket.go",
		old: "v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)",
		new: "v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)\n\t\tif charge && n <= c.Burst {\n\t\t\ts.last, s.frac, s.whole = now, debt.Frac, debt.Whole\n\t\t}",
		by:  "^TestProperties$/TokenBucket", why: "after a step back, the denied ask would have changed the answer",
	},
	{
		name: "a denial consumes", file: "tokenbucket.go",
		old: "v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)",
		new: "v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)\n\t\tif charge && n <= c.Burst {\n\t\t\ts.last, s.frac, s.whole = now, debt.Frac, debt.Whole+c.Left(debt)\n\t\t}",
		by:  "^TestProperties$/TokenBucket", why: "a denied ask costs what there was",
	},
	{
		name: "remainder dropped on consumption", file: "tokenbucket.go",
		old: "debt.Whole += n\n",
		new: "debt.Whole += n\n\t\tif debt.Frac > 0 {\n\t\t\tdebt = exact.Level{Whole: debt.Whole + 1}\n\t\t}\n",
		by:  "^TestDrift$", why: "each grant loses a part of a token",
	},
	{
		name: "last rewinds", file: "tokenbucket.go",
		old: "charge bool,\n) (v engine.Verdict, delay time.Duration) {\n\tif now < s.last {",
		new: "charge bool,\n) (v engine.Verdict, delay time.Duration) {\n\ts.last = min(s.last, now)\n\tif now < s.last {",
		by:  "^TestProperties$/TokenBucket", why: "the time stepped over is earned twice",
	},
	{
		name: "refill only at zero", file: "tokenbucket.go",
		old: "debt := pace.Less(s.debt(), hi, lo)\n\tv.Left",
		new: "debt := s.debt()\n\tif c.Left(debt) == 0 {\n\t\tdebt = pace.Less(debt, hi, lo)\n\t}\n\tv.Left",
		by:  "^TestProperties$/TokenBucket", why: "nothing is earned before the bucket is empty",
	},
	{
		name: "a bucket is full when less than a token is missing", file: "tokenbucket.go",
		old: "return now >= s.last && c.Drained(s.debt(), now.Since(s.last)) == exact.Level{}",
		new: "return now >= s.last && c.Drained(s.debt(), now.Since(s.last)).Whole == 0",
		by:  "^TestPropertiesOfEviction$/TokenBucket", why: "forgetting the key forgives what is missing",
	},
	{
		name: "a change of the burst moves the queue", file: "leakybucket.go",
		old: "apart := s.queue != s.debt",
		new: "apart := s.queue != s.queue",
		by:  "^TestProperties$/LeakyBucket", why: "a raise of the burst delays what comes next",
	},
	{
		name: "Delay counts the ask itself", file: "leakybucket.go",
		old: "} else {\n		delay = pace.ToDrain(pace.Parts(queue))\n		if charge {\n			v.Left -= n\n			debt",
		new: "} else {\n		delay = pace.ToDrain(pace.Parts(exact.Level{Whole: queue.Whole + n, Frac: queue.Frac}))\n		if charge {\n			v.Left -= n\n			debt",
		by:  "^TestProperties$/LeakyBucket", why: "the first one would wait for itself",
	},
}

// windowMutants are faults in the three algorithms that count in windows.
var windowMutants = []mutant{
	{
		name: "boundary inclusive in a fixed window", file: "internal/engine/windows.go",
		old: "if now.Since(last) <= offset {",
		new: "if now.Since(last) < offset {",
		by:  "^TestProperties$/FixedWindow", why: "a unit at the first instant of a window is forgotten",
	},
	{
		name: "fixed window ends late", file: "fixedwindow.go",
		old: "case n > c.Requests-used:\n\t\tv.RetryAfter = left",
		new: "case n > c.Requests-used:\n\t\tv.RetryAfter = left + 1",
		by:  "^TestProperties$/FixedWindow", why: "RetryAfter is a nanosecond long",
	},
	{
		name: "windows before the epoch", file: "internal/exact/window.go",
		old: "if sec < 0 {",
		new: "if sec < -1<<62 {",
		by:  "^TestProperties$/FixedWindow", why: "a division that rounds to zero is not one that rounds down",
	},
	{
		name: "boundary inclusive in a log", file: "internal/exact/log.go",
		old: "if now.Since(l.last) >= per {",
		new: "if now.Since(l.last) > per {",
		by:  "^TestProperties$/SlidingWindowLog", why: "a unit exactly Per old counts",
	},
	{
		name: "the base stays when a log gives back", file: "internal/exact/holes.go",
		old: "			l.base += back\n			l.shift()\n",
		new: "			l.shift()\n",
		by:  "^TestPropertiesOfReservations$/SlidingWindowLog", why: "the totals before an entry grow by what it loses",
	},
	{
		name: "boundary inclusive for older entries of a log", file: "internal/exact/log.go",
		old: "return now.Since(l.entry(uint32(i)).at) < per",
		new: "return now.Since(l.entry(uint32(i)).at) <= per",
		by:  "^TestProperties$/SlidingWindowLog", why: "a unit exactly Per old counts",
	},
	{
		name: "a longer Per brings entries back", file: "slidingwindowlog.go",
		old: "s.Trim(s.Recent(s.clock, from.per))",
		new: "s.Trim(s.Recent(s.clock, c.per))",
		by:  "^TestProperties$/SlidingWindowLog", why: "what has left counts again",
	},
	{
		name: "a log leaves nothing to inherit", file: "slidingwindowlog.go",
		old: "recent := s.Recent(max(now, s.clock), c.per)",
		new: "recent := s.Recent(s.clock+1<<62, c.per)",
		by:  "^TestOverflowIsInherited$", why: "a key gets the limit twice",
	},
	{
		name: "estimate in float64", file: "internal/exact/window.go",
		old: "hi, lo := bits.Mul64(uint64(count), w.Per-offset)\n\tvar quotient, rest uint64",
		new: "if f := float64(count) * (float64(w.Per-offset) / float64(w.Per)); float64(int64(f)) < f {\n\t\treturn int64(f) + 1\n\t} else if count > 0 {\n\t\treturn int64(f)\n\t}\n" +
			"\thi, lo := bits.Mul64(uint64(count), w.Per-offset)\n\tvar quotient, rest uint64",
		by: "^TestProperties(OfExtremes)?$/SlidingWindowCounter", why: "the quotient of two whole numbers is not exact in 53 bits",
	},
	{
		name: "estimate rounded down", file: "internal/exact/window.go",
		old: "if rest > 0 {\n\t\tquotient++\n\t}",
		new: "_ = rest",
		by:  "^TestProperties$/SlidingWindowCounter", why: "a part of a unit is granted as a whole one",
	},
	{
		name: "fades a nanosecond early", file: "internal/exact/window.go",
		old: "return before\n",
		new: "return before + 1\n",
		by:  "^TestProperties$/SlidingWindowCounter", why: "RetryAfter is a nanosecond short",
	},
	{
		name: "a quotient that is 1 too small stays so", file: "internal/exact/divisor.go",
		old: "if rest = n - quotient*d.by; rest >= d.by {",
		new: "if rest = n - quotient*d.by; rest > 2*d.by {",
		by:  "^TestProperties$/FixedWindow", why: "an instant would lie behind the end of its window",
	},
	{
		name: "previous count kept for ever", file: "internal/exact/window.go",
		old: "case ago-offset <= w.Per:\n\t\treturn units, 0\n\t}\n\treturn 0, 0",
		new: "}\n\treturn units, 0",
		by:  "^TestProperties$/SlidingWindowCounter", why: "two windows later nothing may count",
	},
	{
		name: "only the current count is as good as new", file: "slidingwindowcounter.go",
		old: "return prev == 0 && cur == 0",
		new: "return cur == 0 && prev >= 0",
		by:  "^TestPropertiesOfEviction$/SlidingWindowCounter", why: "forgetting the key forgets its previous window",
	},
}
