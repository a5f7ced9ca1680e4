package verify

// configMutants are faults in what config maps mean, and in what a Factory gives to a limiter.
var configMutants = []mutant{
	{
		name: "the first spelling that comes is taken", file: "internal/confmap/schema.go",
		old: "!twice || s.name == s.field || first != s.field && s.name < first",
		new: "!twice || s.name != s.field && (first == s.field || s.name > first)",
		by:  "^TestConfigMeans$", why: "the error would name another field each time, and its own name would not come first",
	},
	{
		name: "a second spelling is dropped", file: "internal/confmap/schema.go",
		old: "if twice {",
		new: "if false {",
		by:  "^TestConfigMeans$", why: "of two values of a field, one would be ignored",
	},
	{
		name: "flat fields beside an algoConfig are read", file: "internal/ruleconfig/ruleconfig.go",
		old: `n.Has("algoConfig") || a.Custom`,
		new: "a.Custom",
		by:  "^TestConfigMeans$", why: "a field would have no effect, or another one",
	},
	{
		name: "a custom algorithm has flat fields", file: "internal/ruleconfig/ruleconfig.go",
		old: `n.Has("algoConfig") || a.Custom`,
		new: `n.Has("algoConfig") || a.Custom && a.Windowed`,
		by:  "^TestConfigMeans$", why: "its fields are not known here",
	},
	{
		name: "a misspelt field is missing too", file: "internal/ruleconfig/rate.go",
		old: "r.Found() > before || config.Misspelt(rateSchema.Fields...)",
		new: "r.Found() > before",
		by:  "^TestConfigMeans$", why: "an error would name a field that nobody has written",
	},
	{
		name: "a rule may be unlimited", file: "internal/ruleconfig/rate.go",
		old: "rule == nil && read.rate == ratetext.Unlimited",
		new: "read.rate == ratetext.Unlimited",
		by:  "^TestConfigMeans$", why: "a rule without a limit is a mistake",
	},
	{
		name: "a count beside a numeric rate is dropped", file: "internal/ruleconfig/rate.go",
		old: "if given {\n\t\tr.Reject(",
		new: "if given {\n\t\t_ = r.Reject\n\t\tfunc(string, string, string) {}(",
		by:  "^TestConfigMeans$", why: "of two counts, one would be ignored",
	},
	{
		name: "units a millisecond are units a second", file: "internal/ruleconfig/refill.go",
		old: `unit, shift = "millisecond", 3`,
		new: `unit, shift = "millisecond", 0`,
		by:  "^TestConfigMeans$", why: "the limit would be a thousandth",
	},
	{
		name: "an unknown field of a custom algorithm is ignored", file: "internal/ruleconfig/fields.go",
		old: `f.reader.Unknown(f.node, f.known, func(string, any) (string, []string) { return "", nil })`,
		new: "",
		by:  "^TestConfigMeans$", why: "a misspelt field would have no effect",
	},
	{
		name: "the options of a Factory are dropped", file: "options.go",
		old: "s = s.factory.settings()",
		new: "s = settings{}",
		by:  "^TestFactoryOptionsCount$", why: "the rules would run by another clock",
	},
	{
		name: "the bad options of a Factory are dropped", file: "options.go",
		old: `slices.Concat(own.problems, atPath("factory", errors.Join(s.problems...)), s.conflicts(&own))`,
		new: "slices.Concat(own.problems, s.conflicts(&own))",
		by:  "^TestFactoryOptionsCount$", why: "they would have no effect",
	},
	{
		name: "a limiter overrules its Factory", file: "options.go",
		old: `slices.Concat(own.problems, atPath("factory", errors.Join(s.problems...)), s.conflicts(&own))`,
		new: `slices.Concat(own.problems, atPath("factory", errors.Join(s.problems...)))`,
		by:  "^TestFactoryOptionsCount$", why: "one of two options would be ignored",
	},
}
