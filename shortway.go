package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// maxShort is how many rules a decision of the short way has at most.
const maxShort = 4

// A short is a decision of the short way. It decides as a [decision] does, and is
// there because it costs half as much: it lies on the stack.
type short struct {
	n     int
	parts [maxShort]struct {
		hash    keytable.Hash
		shard   lockedShard
		verdict verdict
		delay   time.Duration
	}
}

// Unlock unlocks all shards.
func (s *short) Unlock() {
	for i := range s.n {
		s.parts[i].shard.Unlock()
	}
}

// nowLocked reads the clock while all shards are locked. A clock that panics leaves
// them unlocked.
func (s *short) nowLocked(t *timeline) instant {
	panicked := true
	defer func() {
		if panicked {
			s.Unlock()
		}
	}()
	now := t.now()
	panicked = false
	return now
}

// takeShort takes n units from each rule of the group g, which is plain, if all have
// them.
func (l *RateLimiter) takeShort(g *ruleGroup, client, endpoint, ip string, n int64, res *Result) {
	if r := g.alone; r != nil {
		v, delay := r.here.decide(r.hash(client, endpoint, ip), n)
		v.fill(res)
		res.Delay, res.Rule = delay, r.Name
	} else {
		g.take(&l.time, client, endpoint, ip, n, res)
	}
	res.Degraded = l.settings.store != nil
}

// take takes n units from each rule of the group, which is plain, if all have them.
func (g *ruleGroup) take(t *timeline, client, endpoint, ip string, n int64, res *Result) {
	s := short{n: len(g.rules)}
	var now instant
	if t.clock == nil {
		now = keytable.InstantAt(time.Since(t.start))
	}
	for i, r := range g.rules {
		p := &s.parts[i]
		p.hash = r.hash(client, endpoint, ip)
		p.shard, now = r.here.lock(p.hash, now)
	}
	if t.clock != nil {
		now = s.nowLocked(t)
	} else {
		for i := range s.n - 1 { // the last one knows
			s.parts[i].shard.Latest(now)
		}
	}
	// The last one may take at once: it does so if it is the only one left to
	// deny, and if it denies nobody has taken anything.
	passes, last := true, s.n-1
	for i, r := range g.rules {
		p, do := &s.parts[i], toAsk
		if i == last && passes {
			do = toTake
		}
		p.verdict, p.delay, _ = r.here.step(p.shard, p.hash, nil, now, n, do)
		passes = passes && p.verdict.retryAfter == 0
	}
	for i, r := range g.rules {
		p := &s.parts[i]
		if passes && i != last {
			p.verdict, p.delay, _ = r.here.step(p.shard, p.hash, nil, now, n, toTake)
		}
		if passes || p.verdict.retryAfter != 0 {
			p.shard.Count(passes)
		}
	}
	s.Unlock()
	s.answer(g, passes, res)
}

// answer makes res the answer of the binding rule, as decision.result does.
func (s *short) answer(g *ruleGroup, passes bool, res *Result) {
	b, left, delay := 0, s.parts[0].verdict.left, s.parts[0].delay
	for i := 1; i < s.n; i++ {
		v, w := &s.parts[i].verdict, &s.parts[b].verdict
		left, delay = min(left, v.left), max(delay, s.parts[i].delay)
		by, than := v.retryAfter, w.retryAfter
		if passes {
			by, than = time.Duration(w.left), time.Duration(v.left)
		}
		if by > than || by == than && g.rules[i].index < g.rules[b].index {
			b = i
		}
	}
	s.parts[b].verdict.fill(res)
	res.Remaining, res.Rule = int(left), g.rules[b].Name
	if passes {
		res.Delay = delay
	}
}
