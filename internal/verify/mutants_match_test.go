package verify

// matchMutants are faults in which rules apply to a request, and in the keys that it takes
// from.
var matchMutants = []mutant{
	{
		name: "a shadow rule is the best match", file: "internal/match/match.go",
		old: "return !p.Shadow && !p.Additional",
		new: "return !p.Additional",
		by:  "^TestMatchingAgainstAModel$", why: "it would switch a limit off",
	},
	{
		name: "an additional rule is the best match", file: "internal/match/match.go",
		old: "return !p.Shadow && !p.Additional",
		new: "return !p.Shadow",
		by:  "^TestMatchingAgainstAModel$", why: "it applies beside the best match, not in its place",
	},
	{
		name: "wider rules apply as well", file: "internal/match/match.go",
		old: "best = best || chain[i].enforces",
		new: "best = best && chain[i].enforces",
		by:  "^TestMatchingAgainstAModel$", why: "only the best match applies",
	},
	{
		name: "a shadow rule at the best match does not apply", file: "internal/match/match.go",
		old: "case !best:\n\t\t\t\trules = append(rules, r)",
		new: "case !best && (chain[i].enforces == r.Place().enforces() || i == 0):\n\t\t\t\trules = append(rules, r)",
		by:  "^TestMatchingAgainstAModel$", why: "it would be the best match as well",
	},
	{
		name: "additional rules give way to names", file: "decision.go",
		old: "d.named = append(d.named, set.Additional(d.request.Endpoint)...)",
		new: "d.named = append(d.named, set.Additional(d.request.Endpoint)[:0]...)",
		by:  "^TestMatchingAgainstAModel$", why: "a request could escape the global limit",
	},
	{
		name: "the shortest prefix first", file: "internal/match/tree.go",
		old: "\t\tif n.prefix != nil {\n\t\t\tbest = n.prefix\n\t\t}\n",
		new: "\t\tif n.prefix != nil && best.text == \"\" {\n\t\t\tbest = n.prefix\n\t\t}\n",
		by:  "^TestMatchingAgainstAModel$", why: "the longest prefix is the one that applies",
	},
	{
		name: "a prefix is compared by its first byte", file: "internal/match/tree.go",
		old: "if text[0] != n.label[0] || len(n.label) > 1 && !strings.HasPrefix(text, n.label) {",
		new: "if text[0] != n.label[0] || len(n.label) > len(text) {",
		by:  "^TestMatchingAgainstAModel$", why: "the endpoint does not begin with it",
	},
	{
		name: "a prefix is taken without its first byte", file: "internal/match/tree.go",
		old: "if text[0] != n.label[0] || len(n.label) > 1 && !strings.HasPrefix(text, n.label) {",
		new: "if len(n.label) > 1 && !strings.HasPrefix(text, n.label) {",
		by:  "^TestMatchingAgainstAModel$", why: "another child is at the place of a byte that no child begins with",
	},
	{
		name: "groups below stay as they were", file: "internal/match/tree.go",
		old: "\tif !r.all && (n.open == 0 ||",
		new: "\tif n != nil || !r.all && (n.open == 0 ||",
		by:  "^TestMatchingAgainstAModel$", why: "the rule of a wider pattern has changed",
	},
	{
		name: "additional rules matter to open groups only", file: "internal/match/match.go",
		old: "all: isAdditional(from) || isAdditional(to)}",
		new: "all: isAdditional(from) && isAdditional(to)}",
		by:  "^TestMatchingAgainstAModel$", why: "they apply below their pattern wherever something enforces",
	},
	{
		name: "an additional rule is missed when it goes", file: "internal/match/match.go",
		old: "all: isAdditional(from) || isAdditional(to)}",
		new: "all: isAdditional(to)}",
		by:  "^TestMatchingAgainstAModel$", why: "it would apply for ever",
	},
	{
		name: "a removed endpoint is still found", file: "internal/match/match.go",
		old: "s.Exact = s.Exact.Without(text)\n",
		new: "\n",
		by:  "^TestMatchingAgainstAModel$", why: "its rules are gone",
	},
	{
		name: "an added rule comes last", file: "internal/match/list.go",
		old: "return slices.Concat(l[:named], List[R]{to}, l[named:]), index",
		new: "return append(slices.Clone(l), to), index",
		by:  "^TestMatchingAgainstAModel$", why: "the default rule is the last one",
	},
	{
		name: "parts are joined", file: "internal/keyspec/maker.go",
		old: "h = h.With(uint64(i), keytable.HashOf(req.part(part)))",
		new: "h = keytable.HashOf(req.part(m.parts[i]) + req.part(part))",
		by:  "^TestKeysOfParts$", why: "different requests share a budget",
	},
	{
		name: "an attribute is not read", file: "internal/keyspec/maker.go",
		old: "return req.Attrs[part.Name]",
		new: "return part.Name",
		by:  "^TestKeysOfParts$", why: "all tenants share one budget",
	},
	{
		name: "a stored key without lengths", file: "internal/keyspec/maker.go",
		old: "text = append(strconv.AppendInt(text, int64(len(value)), 10), ':')",
		new: "text = append(text, ':')",
		by:  "^TestKeysOfParts$", why: "different requests share a budget in a store",
	},
	{
		name: "a shadow rule has a say", file: "decision.go",
		old: "r.key.hash(&d.request), !r.enforces(), r.holds()",
		new: "r.key.hash(&d.request), false, r.holds()",
		by:  "^TestMatchingAgainstAModel$", why: "it denies nothing and has no part in the Result",
	},
}
