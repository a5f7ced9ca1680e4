package verify

// partsMutants are faults in how the parts of a store are told apart.
var partsMutants = []mutant{
	{
		name: "a refused call keeps its probe", file: "breakers.go",
		old: "bs.abandoned(p) // else",
		new: "// else",
		by:  "^TestPropertiesOfParts$", why: "nobody would find out any more whether that part is back",
	},
	{
		name: "a probe of a part that is not blamed is lost", file: "breakers.go",
		old: "bs.abandoned(passages{p.parts &^ bad, p.probes &^ bad})",
		new: "",
		by:  "^TestPropertiesOfParts$", why: "nobody would find out any more whether that part is back",
	},
	{
		name: "a part that is not blamed has answered", file: "breakers.go",
		old: "bs.abandoned(passages{p.parts &^ bad, p.probes &^ bad})",
		new: "bs.succeeded(passages{p.parts &^ bad, p.probes &^ bad})",
		by:  "^TestPropertiesOfParts$", why: "the store may have given up before it asked that part",
	},
	{
		name: "all parts are blamed", file: "breakers.go",
		old: "bad = blamed",
		new: "bad |= blamed",
		by:  "^TestPropertiesOfParts$", why: "a dead part would have live ones left alone",
	},
	{
		name: "nobody is blamed", file: "breakers.go",
		old: "blamed := p.parts & partsOf(err); blamed != 0",
		new: "blamed := p.parts & partsOf(err); blamed != p.parts",
		by:  "^TestPropertiesOfParts$", why: "a dead store that does not say of which parts would be asked for ever",
	},
	{
		name: "the last part stands for all", file: "breakers.go",
		old: "parts |= bit(bs.store.Part(a.rule.ask(&d.request, a.rate)))",
		new: "parts = bit(bs.store.Part(a.rule.ask(&d.request, a.rate)))",
		by:  "^TestPropertiesOfParts$", why: "a part would be asked while it is to be left alone",
	},
	{
		name: "the last part of a reset stands for all", file: "breakers.go",
		old: "parts |= bit(bs.store.Part(asks[i]))",
		new: "parts = bit(bs.store.Part(asks[i]))",
		by:  "^TestPropertiesOfParts$", why: "a part would be asked while it is to be left alone",
	},
	{
		name: "one part that pauses is all, by the short way", file: "breakers.go",
		old: "if bs.list[uint(part)%maxParts].pauses(t) {",
		new: "if part >= 0 {",
		by:  "^TestPropertiesOfParts$", why: "the keys of live parts would not be decided by the store",
	},
}
