package verify

// bytesMutants are faults in how bytes are limited that are read and written.
var bytesMutants = []mutant{
	{
		name: "a piece is not halved", file: "iolimit/iolimit.go",
		old: "p.size, p.granted = granted/2, 0",
		new: "p.size, p.granted = max(granted-1, 1), 0",
		by:  "^TestLimitedBytesFollowTheLimit$", why: "a small limit would be found after thousands of calls",
	},
	{
		name: "pieces stay small", file: "iolimit/iolimit.go",
		old: "min(2*p.size, largest), 0",
		new: "p.size, 0",
		by:  "^TestLimitedBytesFollowTheLimit$", why: "after a raise, each piece would still be short",
	},
	{
		name: "pieces grow beyond the largest", file: "iolimit/iolimit.go",
		old: "min(2*p.size, largest), 0",
		new: "2*p.size, 0",
		by:  "^TestPropertiesOfLimitedBytes$|^TestLimitedBytesFollowTheLimit$", why: "a piece has at most 64 KiB",
	},
	{
		name: "bytes that were read are charged in part", file: "iolimit/iolimit.go",
		old: "\t\tn -= granted\n\t}\n\treturn nil",
		new: "\t\tn = 0\n\t\t_ = granted\n\t}\n\treturn nil",
		by:  "^TestPropertiesOfLimitedBytes$", why: "after a halving, the other half would pass for nothing",
	},
	{
		name: "a denied piece is written", file: "iolimit/iolimit.go",
		old: "\t\tgranted, err := w.piece(len(p) - n)\n\t\tif err != nil {",
		new: "\t\tgranted, err := w.piece(len(p) - n)\n\t\tif granted = max(granted, 1); err != nil && n > 1<<62 {",
		by:  "^TestPropertiesOfLimitedBytes$", why: "what is written was granted",
	},
	{
		name: "an ended context is read on", file: "iolimit/iolimit.go",
		old: "if err := r.ctx.Err(); err != nil {",
		new: "if err := r.ctx.Err(); err != nil && r.size < 0 {",
		by:  "^TestLimitedBytesOfEndedWork$", why: "bytes would be taken from a reader whose work is over",
	},
	{
		name: "bytes before the end are lost", file: "iolimit/iolimit.go",
		old: "\tif r.failed != nil {\n\t\treturn 0, r.failed",
		new: "\tif r.failed = nil; r.failed != nil {\n\t\treturn 0, r.failed",
		by:  "^TestErrorsOfReadersStay$", why: "a reader that has failed once must not be read again",
	},
}
