package verify

// decisionMutants are faults on the way of a decision from a call to the arithmetic.
var decisionMutants = []mutant{
	{
		name: "clock read before the lock, not clamped", file: "internal/engine/limiter.go",
		old: "shard, state := l.table.Open(h)\n\tif shard.Marked(h) {\n\t\tshard.Unlock()\n\t\treturn v, 0, true\n\t}\n\tif l.time.clock == nil {\n\t\tnow = shard.Latest(now)\n\t} else {\n\t\tnow = l.time.nowLocked(shard)\n\t}",
		new: "if l.time.clock != nil {\n\t\tnow = l.time.Now()\n\t}\n\tshard, state := l.table.Open(h)\n\tif shard.Marked(h) {\n\t\tshard.Unlock()\n\t\treturn v, 0, true\n\t}\n\tif l.time.clock == nil {\n\t\tnow = shard.Latest(now)\n\t}",
		by:  "^TestLinearizable$", why: "an answer is for an instant before one already answered for",
	},
	{
		name: "check, unlock, act", file: "internal/engine/limiter.go",
		old: "v, delay = shard.Algorithm.Step(state, shard.Algorithm, now, n, charge)\n\t} else {",
		new: "v, delay = shard.Algorithm.Step(state, shard.Algorithm, now, n, false)\n" +
			"\t\tif charge && v.RetryAfter == 0 {\n\t\t\tshard.Unlock()\n\t\t\tl.time.Now()\n\t\t\tshard = l.table.Lock(h)\n" +
			"\t\t\tv, delay = shard.Algorithm.Step(shard.Find(h), shard.Algorithm, now, n, true)\n\t\t\tv.RetryAfter = 0\n\t\t}\n\t} else {",
		by: "^TestLinearizable$", why: "two get the same unit",
	},
	{
		name: "a look charges", file: "limiter.go",
		old: "k.decide(key, int64(max(n, 1)), n > 0, &res)",
		new: "k.decide(key, int64(max(n, 1)), true, &res)",
		by:  "^TestProperties$/TokenBucket", why: "a look takes nothing",
	},
	{
		name: "a look creates a key", file: "internal/engine/limiter.go",
		old: "if v.RetryAfter == 0 && charge {\n\t\t\tv, delay = admit",
		new: "if v.RetryAfter == 0 {\n\t\t\tv, delay = admit",
		by:  "^TestLooksLeaveNoTrace$", why: "looks would fill the table",
	},
	{
		name: "a negative count is taken", file: "limiter.go",
		old: "case n < 0:",
		new: "case false:",
		by:  "^TestProperties$/TokenBucket", why: "it must be refused",
	},
	{
		name: "an ended context is served", file: "limiter.go",
		old: "return ctx.Err()",
		new: "return nil",
		by:  "^TestProperties$/TokenBucket", why: "a caller who has given up takes nothing",
	},
	{
		name: "the same rate is a change", file: "internal/engine/limiter.go",
		old: "if reflect.DeepEqual(config, from) {",
		new: "if reflect.DeepEqual(config, nil) {",
		by:  "^TestProperties$/TokenBucket", why: "after a step back, it would have changed the answer",
	},
	{
		name: "a change of the rate leaves states as they are", file: "internal/engine/limiter.go",
		old: "config.Carry(s, from, now)\n\t\tconfig.Resize(s, from, false)",
		new: "_, _, _ = s, from, now",
		by:  "^TestProperties$/TokenBucket", why: "what is owed is measured in other parts of a token",
	},
}

// tableMutants are faults in the table of states.
var tableMutants = []mutant{
	{
		name: "eviction of keys in use", file: "internal/keytable/shard.go",
		old: "s.Algorithm.Idle(&s.slots[at].state, now)",
		new: "at >= 0",
		by:  "^TestPropertiesOfOverflow$", why: "who is forgotten gets the whole limit again",
	},
	{
		name: "eviction by the last rate of a key", file: "internal/engine/tworates.go",
		old: "if !idle || s.tag.slow() == 0 {",
		new: "if true {",
		by:  "^TestSlowerRateKeepsKey$", why: "at its slower rate, the key still owes units",
	},
	{
		name: "a key has two rates for ever", file: "internal/engine/tworates.go",
		old: "return s.tag.slow() != 0 && ps.isNew(s, p, now)",
		new: "return false",
		by:  "^TestNewKeyHasOneRate$", why: "once the key is new, the slower rate counts no more",
	},
	{
		name: "a charge at a faster rate forgets the slowest", file: "internal/engine/rated.go",
		old: "keepSlowest(s, p, ps.slowestAfter(before, from, p, now))",
		new: "keepSlowest(s, p, p)",
		by:  "^TestSlowerRateKeepsKey$", why: "a request at the slower rate would find a new key",
	},
	{
		name: "a key is not new because of the charge itself", file: "internal/engine/rated.go",
		old: "keepSlowest(s, p, ps.slowestAfter(before, from, p, now))",
		new: "keepSlowest(s, p, ps.slowestAfter(s, from, p, now))",
		by:  "^TestNewKeyHasOneRate$", why: "whether the key counts as new is decided before the charge",
	},
	{
		name: "a denial ends the slowest rate of a new key", file: "internal/engine/rated.go",
		old: "\tif v, delay, id = ps.charge(s, h, p, now, n, do, 0); v.RetryAfter == 0 {\n\t\ts.tag = s.tag.withPlan(p.id)\n\t\tif renewed {\n",
		new: "\tif renewed {\n\t\tkeepSlowest(s, p, p)\n\t}\n" +
			"\tif v, delay, id = ps.charge(s, h, p, now, n, do, 0); v.RetryAfter == 0 {\n\t\ts.tag = s.tag.withPlan(p.id)\n\t\tif renewed {\n",
		by: "^TestDenialsAndLooksChangeNothing$", why: "if the clock steps back, the key owes something at this rate again",
	},
	{
		name: "a new key keeps its slowest rate", file: "internal/engine/tworates.go",
		old: "slow.config.Slower(p.config) && !ps.isNew(s, from, now) {",
		new: "slow.config.Slower(p.config) {",
		by:  "^TestNewKeyHasOneRate$", why: "a key that counts as new was charged at no other rate",
	},
	{
		name: "a larger burst needs no copy to wait", file: "internal/engine/rated.go",
		old: "|| from.config.Fills(p.config) {",
		new: "{",
		by:  "^TestRetryAfterAtOtherRates$", why: "a key that owes nothing has the whole burst",
	},
	{
		name: "a faster rate needs no copy to wait", file: "internal/engine/rated.go",
		old: "if slow != p || p.ages != nil ||",
		new: "if slow == nil || p.ages != nil ||",
		by:  "^TestRetryAfterAtOtherRates$", why: "until a charge, the debt drains at the slower rate",
	},
	{
		name: "a new key drains at a slower rate", file: "internal/engine/rated.go",
		old: "slows := p.config.Slower(from.config) && !ps.isNew(s, from, now)",
		new: "slows := p.config.Slower(from.config)",
		by:  "^TestNewKeyHasOneRate$", why: "a key that counts as new owes nothing at any rate",
	},
	{
		name: "a key waits until its debt has drained at a slower rate", file: "internal/engine/tworates.go",
		old: "v.RetryAfter = min(v.RetryAfter, rest)",
		new: "",
		by:  "^TestRetryAfterAtOtherRates$", why: "the request is granted as soon as the key counts as new",
	},
	{
		name: "a newcomer starts as new", file: "internal/keytable/shard.go",
		old: "s.newcomer = s.Algorithm.Inherit(&s.overflow, now)",
		new: "s.newcomer = *new(S)",
		by:  "^TestOverflowIsInherited$", why: "a key gets the limit twice, from the shared debt and from its slot",
	},
	{
		name: "a shared debt is not charged", file: "internal/engine/limiter.go",
		old: "return shard.Algorithm.Step(owed, shard.Algorithm, now, n, true)",
		new: "return shard.Algorithm.Step(owed, shard.Algorithm, now, n, false)",
		by:  "^TestOverflowIsInherited$", why: "the first key without a slot owes nothing",
	},
	{
		name: "what is reset inherits", file: "internal/keytable/shard.go",
		old: "case s.shared, s.Marked(h):",
		new: "case s.shared && s.count < 0:",
		by:  "^TestOverflowIsInherited$", why: "a reset key would owe what others share",
	},
	{
		name: "floor not raised", file: "internal/keytable/shard.go",
		old: "s.floor = max(s.floor, now)",
		new: "",
		by:  "^TestForgottenTimeIsNotGivenBack$", why: "a forgotten key would earn the same time twice",
	},
	{
		name: "floor not handed on", file: "internal/keytable/split.go",
		old: "floor:     s.floor,",
		new: "",
		by:  "^TestForgottenTimeIsNotGivenBack$", why: "a key whose shard has split would earn the same time twice",
	},
	{
		name: "order of time not handed on", file: "internal/keytable/split.go",
		old: "latest:    s.latest,",
		new: "",
		by:  "^TestReadingsFollowTheLock$", why: "a reading from before the split would come after a later one",
	},
	{
		name: "one key too many", file: "internal/keytable/table.go",
		old: "if n >= t.maxKeys {",
		new: "if n > t.maxKeys {",
		by:  "^TestPropertiesOfOverflow$", why: "the bound on keys is exact",
	},
	{
		name: "time does not follow the lock", file: "internal/keytable/shard.go",
		old: "s.latest = max(s.latest, now)\n\treturn",
		new: "s.latest = now\n\treturn",
		by:  "^TestReadingsFollowTheLock$", why: "a reading that was overtaken decides",
	},
	{
		name: "a hash without a seed", file: "internal/keytable/hash.go",
		old: "return hash(maphash.Comparable(seedHi, key), maphash.Comparable(seedLo, key))",
		new: "h := uint64(14695981039346656037)\n\tfor i := range len(key) {\n\t\th = (h ^ uint64(key[i])) * 1099511628211\n\t}\n\treturn hash(h, ^h)",
		by:  "^TestKeysSpread$", why: "keys can be made that all lie in one shard",
	},
	{
		name: "half of the identity", file: "internal/keytable/hash.go",
		old: "maphash.Comparable(seedLo, key))",
		new: "maphash.Comparable(seedLo, \"\"))",
		by:  "^TestKeysSpread$", why: "keys would share a budget far sooner",
	},
}
