package verify

// explainMutants are faults in what is said of a limit and of a request: MaxIn and Explain.
var explainMutants = []mutant{
	{
		name: "a bucket loses nothing", file: "internal/exact/most.go",
		old: "if hi > 0 || uint64(b.Gain) <= most {",
		new: "if hi == 0 || hi > 0 {",
		by:  "^TestMaxIn$", why: "with a burst of 1, what drains between two instants is lost",
	},
	{
		name: "a bucket loses an instant too late", file: "internal/exact/most.go",
		old: "length/ratioUp(unit, 1, lost))",
		new: "length/ratio(unit+lost, 1, lost))",
		by:  "^TestMaxIn$", why: "where the unit is a multiple of what is lost, the debt is gone an instant earlier",
	},
	{
		name: "windows without an edge", file: "internal/exact/most.go",
		old: "add(1, ratioUp(length, 1, per))",
		new: "add(1, length/per)",
		by:  "^TestMaxIn$", why: "the shortest interval may touch two windows",
	},
	{
		name: "a log is open at the end", file: "internal/exact/most.go",
		old: "1+length/per)",
		new: "max(1, ratioUp(length, 1, per)))",
		by:  "^TestMaxIn$", why: "a unit counts no more exactly Per after it was granted",
	},
	{
		name: "a counter's windows weigh the same", file: "internal/exact/most.go",
		old: "next := requests - ratioUp(count, 1, per)",
		new: "next := requests - ratioUp(requests, 1, per)",
		by:  "^TestMaxIn$", why: "the weight is that of what the window before has granted",
	},
	{
		name: "a counter's last window is whole", file: "internal/exact/most.go",
		old: "requests-ratioUp(count, per-rest, per))",
		new: "requests-ratioUp(count, 1+0*rest, per))",
		by:  "^TestMaxIn$", why: "at the end of the interval, more of the window before may weigh",
	},
	{
		name: "a counter's alternation ends wrong", file: "internal/exact/most.go",
		old: "if left%2 == 1 {",
		new: "if left%2 == 0 {",
		by:  "^TestMaxIn$|^TestMaxInOfExtremes$", why: "what weighs at the end is the count of the last window",
	},
	{
		name: "the most wraps", file: "internal/exact/most.go",
		old: "	if hi > 0 {\n\t\treturn math.MaxUint64\n\t}\n\treturn lo",
		new: "	if hi > 1<<62 {\n\t\treturn math.MaxUint64\n\t}\n\treturn lo",
		by:  "^TestMaxInOfExtremes$", why: "a product beyond 64 bits is not its lowest 64",
	},
}
