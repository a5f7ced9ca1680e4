package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestHistories plays the same random history on limiters over a MemoryStore and over Redis, and requires the same answers
// from both, to the microsecond. In a history the rates of the keys change in all ways that there are: by tiers, by Resolve,
// by UpdateRate, and by a second limiter with other rates for the same keys, as during an update of the processes. The
// buckets fill, and the server forgets their keys.
func TestHistories(t *testing.T) {
	t.Run("standalone", func(t *testing.T) {
		c := startReal(t).client(t)
		compareHistories(t, c, []*redis.Client{c})
	})
	t.Run("cluster", func(t *testing.T) {
		servers, c := startCluster(t)
		nodes := make([]*redis.Client, len(servers))
		for i, s := range servers {
			nodes[i] = s.client(t)
		}
		compareHistories(t, c, nodes)
	})
}

// compareHistories plays as many histories as make up 3,000 operations, or 400,000 with RATELIMIT_SOAK=1.
func compareHistories(t *testing.T, client redis.UniversalClient, nodes []*redis.Client) {
	h := &comparison{t: t, client: client, nodes: nodes}
	histories, different, least := 0, 0, soaked(3000, 400_000)
	for ; h.ops < least && different < 3; histories++ {
		if !h.play(uint64(histories)) {
			different++
			t.Errorf("history %d:\n%s\n%s", histories, h.limits, strings.Join(h.log[max(len(h.log)-20, 0):], "\n"))
		}
	}
	t.Logf("%d histories, %d operations, %d keys forgotten by the server, %d histories differ", histories, h.ops, h.forgotten, different)
	require.Positive(t, h.forgotten)
}

// A comparison is a history: a sequence of random operations, each of which is made on two limiters.
type comparison struct {
	*rand.Rand
	t      *testing.T
	client redis.UniversalClient
	nodes  []*redis.Client // the servers of client
	clock  *ratelimit.FakeClock
	lives  map[string]lifetime // when the server forgets its keys
	before int64               // the server's time in milliseconds before the last operation, of the slowest server

	pairs     []pairing
	rules     []ratelimit.Rule
	open      []reserved
	waits     []time.Duration // waits that answers have told, which are instants worth trying
	limits    string          // the rules of the limiters
	log       []string        // the operations and their answers
	ops       int
	forgotten int
}

// A pairing is a limiter over a MemoryStore and one with the same rules over Redis.
type pairing struct{ memory, redis *ratelimit.RateLimiter }

// A reserved is a reservation of n units that was granted by both limiters.
type reserved struct {
	memory, redis *ratelimit.Reservation
	n             int
}

// A lifetime says until when a key of the server lives.
type lifetime struct {
	expires int64     // the same by the clock of the server, in milliseconds
	digest  string    // of the value of the key
	ends    time.Time // by the clock of the history
}

// anyOf returns one of the values.
func anyOf[T any](h *comparison, values ...T) T { return values[h.IntN(len(values))] }

// rate draws a rate for the algorithm a. If per is not 0, it is the Per of a rate that is counted in windows.
func (h *comparison) rate(a ratelimit.Algorithm, per time.Duration) ratelimit.Rate {
	const day = 24 * time.Hour
	bucket := !a.Windowed()
	if per == 0 || bucket {
		per = anyOf(h, time.Millisecond, 10*time.Millisecond, 333*time.Millisecond, time.Second, 7*time.Second,
			61*time.Second+13*time.Microsecond, time.Hour, day, 366*day)
	}
	r := ratelimit.Rate{Requests: anyOf(h, 1, 2, 3, 5, 7, 10, 16, 60, 100, 1000), Per: per}
	if h.IntN(20) == 0 && a != ratelimit.AlgorithmSlidingWindowLog {
		r.Requests = anyOf(h, 1<<31-1, 1_000_000_007, 1_000_000)
	}
	if bucket && h.IntN(2) == 0 {
		r.Burst = anyOf(h, 1, 2, 5, 10, 17, 100)
	}
	return r
}

// drawRules draws up to four rules.
func (h *comparison) drawRules() (rules []ratelimit.Rule) {
	for i := range 1 + h.IntN(4) {
		a := all[h.IntN(len(all))]
		if h.IntN(2) == 0 {
			a = anyOf(h, ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket)
		}
		rule := ratelimit.Rule{Name: fmt.Sprint("r", i), Endpoint: anyOf(h, "/a", "/a", "/b", "/a*", "*"), Algorithm: a, Rate: h.rate(a, 0),
			Key: anyOf(h, ratelimit.KeyUser, ratelimit.KeyUser, ratelimit.KeyIP, ratelimit.KeyGlobal, ratelimit.KeyUserEndpoint),
		}
		rule.Additional = h.IntN(4) == 0
		if h.IntN(6) == 0 {
			rule.Mode = ratelimit.ModeShadow
		}
		if h.IntN(12) == 0 {
			rule.Penalty = ratelimit.Penalty{After: 3, Within: time.Minute, For: time.Second}
		}
		switch h.IntN(4) {
		case 0:
			rule.Tiers = map[string]ratelimit.Rate{"free": h.rate(a, rule.Rate.Per), "paid": h.rate(a, rule.Rate.Per)}
		case 1:
			rates := map[string]ratelimit.Rate{"1.1.1.1": h.rate(a, rule.Rate.Per), "": h.rate(a, rule.Rate.Per)}
			rule.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
				r, ok := rates[req.IP]
				return r, ok
			}
		case 2:
			burst := rule.Rate.Burst
			if burst == 0 {
				burst = rule.Rate.Requests
			}
			least := (rule.Rate.Requests-1)/burst + 1
			rule.Warmup = ratelimit.Warmup{From: least + h.IntN(max(1, min(rule.Rate.Requests-least, 50))),
				Over: anyOf(h, time.Millisecond, time.Second, time.Minute, time.Hour)}
		}
		rules = append(rules, rule)
	}
	return rules
}

// pair adds a pairing with the rules of h, if they are valid.
func (h *comparison) pair(rules []ratelimit.Rule, memory, redis ratelimit.Store) bool {
	opts := []ratelimit.Option{ratelimit.WithClock(h.clock), ratelimit.WithName("x"), ratelimit.WithRequestIDs(10 * time.Second),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed)}
	a, errA := ratelimit.New(rules, nil, append(opts, ratelimit.WithStore(memory))...)
	b, errB := ratelimit.New(rules, nil, append(opts, ratelimit.WithStore(redis))...)
	if errA != nil || errB != nil {
		return false
	}
	h.pairs = append(h.pairs, pairing{a, b})
	return true
}

// play plays the history with this number, and reports whether all answers were the same.
func (h *comparison) play(number uint64) bool {
	h.Rand = rand.New(rand.NewPCG(number, 21))
	for _, n := range h.nodes {
		require.NoError(h.t, n.FlushAll(h.t.Context()).Err())
	}
	h.clock = ratelimit.NewFakeClock(time.UnixMicro(1_772_323_200_000_000 + h.Int64N(1e12)))
	h.lives, h.before, h.pairs, h.open, h.waits, h.log, h.limits = make(map[string]lifetime), h.serverTime(), nil, nil, nil, nil, ""
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(h.clock))
	require.NoError(h.t, err)
	store := newStore(h.t, h.client, redisstore.WithClock(h.clock), redisstore.WithDenialCache(0))
	if h.rules = h.drawRules(); !h.pair(h.rules, memory, store) {
		return true
	}
	if h.IntN(3) == 0 {
		rules := append([]ratelimit.Rule(nil), h.rules...)
		for i := range rules {
			per := time.Duration(0)
			if rules[i].Tiers != nil {
				per = rules[i].Rate.Per
			}
			rules[i].Rate = h.rate(rules[i].Algorithm, per)
			rules[i].Rate.Requests = max(rules[i].Rate.Requests, rules[i].Warmup.From)
		}
		h.pair(rules, memory, store)
	}
	for i, p := range h.pairs {
		rules, _ := p.memory.Rules()
		for _, r := range rules {
			h.limits += fmt.Sprintf("limiter %d: %s %s %s %s %v tiers=%v %+v %s additional=%v penalty=%v resolve=%v\n",
				i, r.Name, r.Endpoint, r.Key, r.Algorithm, r.Rate, r.Tiers, r.Warmup, r.Mode, r.Additional, r.Penalty, r.Resolve != nil)
		}
	}
	for range 60 + h.IntN(200) {
		h.ops++
		h.advance()
		same := h.operate()
		h.track()
		if !same {
			return false
		}
	}
	return true
}

// serverTime returns the time of the slowest server, in milliseconds.
func (h *comparison) serverTime() int64 {
	least := int64(1 << 62)
	for _, n := range h.nodes {
		now, err := n.Time(h.t.Context()).Result()
		require.NoError(h.t, err)
		least = min(least, now.UnixMilli())
	}
	return least
}

// lifetimes returns the time of the server in milliseconds, and then the name of each key, when it expires, and a digest of its value.
const lifetimes = `
local now, out = redis.call('TIME'), {}
out[1] = now[1] * 1000 + math.floor(now[2] / 1000)
for _, key in ipairs(redis.call('KEYS', '*')) do
  out[#out + 1], out[#out + 2], out[#out + 3] = key, redis.call('PEXPIRETIME', key), redis.sha1hex(redis.call('DUMP', key))
end
return out`

// track notes until when the server keeps its keys. By the clock of the history, this is a millisecond after the key is not
// needed any more. The server itself keeps a key for an hour longer, by a clock of its own, see WithClock. It may have set the
// expiry at any time since before the operation, so the noted end may be later than it should be, but never earlier.
func (h *comparison) track() {
	now, earlier := h.clock.Now(), h.before
	h.before = 1 << 62
	for _, n := range h.nodes {
		found, err := n.Eval(h.t.Context(), lifetimes, nil).Slice()
		require.NoError(h.t, err)
		at := found[0].(int64)
		h.before = min(h.before, at)
		for i := 1; i < len(found); i += 3 {
			key, expires, digest := found[i].(string), found[i+1].(int64), found[i+2].(string)
			require.Positive(h.t, expires, "the key %s never expires", key)
			known := h.lives[key]
			if known.expires == expires && known.digest == digest {
				continue
			}
			needed := min(expires-earlier-time.Hour.Milliseconds(), 1<<42) // at most 139 years, so that it fits a Duration
			life := lifetime{expires, digest, now.Add(time.Duration(needed+1) * time.Millisecond)}
			if known.expires == expires && known.ends.After(life.ends) { // either the expiry was kept, or it is the same by chance
				life.ends = known.ends
			}
			h.lives[key] = life
		}
	}
}

// advance moves the clock, often not at all, often by as much as an answer has told, or to the end of a key's life. It then makes
// the server forget the keys whose lives are over.
func (h *comparison) advance() {
	by := time.Duration(0)
	wait := func() time.Duration {
		if len(h.waits) == 0 {
			return 0
		}
		return h.waits[h.IntN(len(h.waits))]
	}
	switch h.IntN(8) {
	case 0:
		by = time.Duration(h.IntN(5)) * time.Microsecond
	case 1:
		by = time.Duration(h.Int64N(h.rules[h.IntN(len(h.rules))].Rate.Per.Microseconds()+1)) * time.Microsecond
	case 2, 3:
		by = wait() + time.Duration(h.IntN(3)-1)*time.Microsecond
	case 4:
		by = wait() + time.Duration(h.IntN(2_000_000))*time.Microsecond
	}
	if by > 0 && by < 400*24*time.Hour {
		h.clock.Advance(by.Truncate(time.Microsecond))
	}
	for key, life := range h.lives {
		if h.clock.Now().After(life.ends) {
			h.forgotten += int(h.client.Del(h.t.Context(), key).Val())
			delete(h.lives, key)
		}
	}
}

// toMicros rounds the durations of an answer of the MemoryStore up to microseconds, in which Redis counts. For a key that warms
// up, the scripts compute no wait above 142 years, see warmup.lua.
func toMicros(r ratelimit.Result) ratelimit.Result {
	if r.RetryAfter > 142*365*24*time.Hour {
		r.RetryAfter = ratelimit.Never
	}
	for _, d := range []*time.Duration{&r.RetryAfter, &r.ResetAfter, &r.Delay} {
		if *d != ratelimit.Never {
			*d = (*d + 999) / 1000 * 1000
		}
	}
	return r
}

// compare logs the two answers to an operation, and reports whether they are the same. A call of a store must not fail.
func (h *comparison) compare(what string, memory, redis any, errs ...error) bool {
	a, b := fmt.Sprintf("%+v %v", memory, errs[0]), fmt.Sprintf("%+v %v", redis, errs[1])
	h.log = append(h.log, fmt.Sprintf("%s %s: %s", h.clock.Now().Format("2006-01-02 15:04:05.000000"), what, b))
	if a != b || errors.Is(errs[1], ratelimit.ErrStore) {
		h.log = append(h.log, "in memory: "+a)
		return false
	}
	return true
}

// request draws a request.
func (h *comparison) request() ratelimit.Request {
	req := ratelimit.Request{Client: anyOf(h, "alice", "alice", "bob", ""), Endpoint: anyOf(h, "/a", "/a", "/a/x", "/b"),
		IP: anyOf(h, "1.1.1.1", "::1", ""), Tier: anyOf(h, "", "free", "paid"), Cost: anyOf(h, 0, 1, 1, 1, 2, 3, 10, 100)}
	if h.IntN(30) == 0 {
		req.Cost = anyOf(h, 1<<31-1, 70_000)
	}
	return req
}

// operate makes one operation on the limiters of a pairing, and reports whether they answered the same.
func (h *comparison) operate() bool {
	ctx, p, req := h.t.Context(), h.pairs[h.IntN(len(h.pairs))], h.request()
	switch h.IntN(16) {
	case 0, 1:
		return h.checkAll(p, req)
	case 2:
		a, ea := p.memory.Peek(ctx, req)
		b, eb := p.redis.Peek(ctx, req)
		return h.compare(fmt.Sprintf("Peek %+v", req), toMicros(a), toMicros(b), ea, eb)
	case 3:
		a, ea := p.memory.Explain(ctx, req)
		b, eb := p.redis.Explain(ctx, req)
		return h.compare(fmt.Sprintf("Explain %+v", req), explained(a), explained(b), ea, eb)
	case 4, 5, 6:
		return h.reserve(ctx, p, req)
	case 7, 8:
		return h.settle()
	case 9:
		if h.IntN(4) == 0 {
			return h.compare(fmt.Sprintf("Reset %+v", req), "", "", p.memory.Reset(ctx, req), p.redis.Reset(ctx, req))
		}
	case 10:
		if h.IntN(2) == 0 {
			return h.updateRate(p)
		}
	case 11:
		req.ID = anyOf(h, "i1", "i2", "i3")
	}
	a, ea := p.memory.Check(ctx, req)
	b, eb := p.redis.Check(ctx, req)
	h.waits = append(h.waits, a.RetryAfter, a.ResetAfter)
	return h.compare(fmt.Sprintf("Check %+v", req), toMicros(a), toMicros(b), ea, eb)
}

func (h *comparison) checkAll(p pairing, req ratelimit.Request) bool {
	a, allA, ea := p.memory.CheckAll(h.t.Context(), req, nil)
	b, allB, eb := p.redis.CheckAll(h.t.Context(), req, nil)
	for i := range allA {
		allA[i] = toMicros(allA[i])
		h.waits = append(h.waits, allA[i].RetryAfter, allA[i].ResetAfter)
	}
	for i := range allB {
		allB[i] = toMicros(allB[i])
	}
	return h.compare(fmt.Sprintf("CheckAll %+v", req), append(allA, toMicros(a)), append(allB, toMicros(b)), ea, eb)
}

func (h *comparison) reserve(ctx context.Context, p pairing, req ratelimit.Request) bool {
	term := anyOf(h, time.Millisecond, time.Second, time.Minute, 24*time.Hour)
	a, ea := p.memory.Reserve(ctx, req, term)
	b, eb := p.redis.Reserve(ctx, req, term)
	if !h.compare(fmt.Sprintf("Reserve for %v %+v", term, req), toMicros(a.Result()), toMicros(b.Result()), ea, eb) {
		return false
	}
	if a.Result().Allowed {
		h.open = append(h.open, reserved{a, b, max(req.Cost, 1)})
	}
	return true
}

// settle settles a reservation, to fewer units or to more. What it has changed shows in later answers.
func (h *comparison) settle() bool {
	if len(h.open) == 0 {
		return true
	}
	i := h.IntN(len(h.open))
	o := h.open[i]
	h.open = append(h.open[:i], h.open[i+1:]...)
	n := anyOf(h, 0, o.n/2, o.n, o.n+1, o.n+10)
	return h.compare(fmt.Sprintf("Settle %d of %d", n, o.n), "", "", o.memory.Settle(n), o.redis.Settle(n))
}

// updateRate changes the rate of a rule.
func (h *comparison) updateRate(p pairing) bool {
	rule, per := h.rules[h.IntN(len(h.rules))], time.Duration(0)
	if rule.Tiers != nil {
		per = rule.Rate.Per
	}
	r := h.rate(rule.Algorithm, per)
	ea, eb := p.memory.UpdateRate(rule.Name, r), p.redis.UpdateRate(rule.Name, r)
	return h.compare(fmt.Sprintf("UpdateRate of %s to %v", rule.Name, r), ea == nil, eb == nil, nil, nil)
}

// explained returns what an Explanation says of the answers of the rules.
func explained(e ratelimit.Explanation) string {
	text := fmt.Sprint(toMicros(e.Result))
	for _, r := range e.Rules {
		text += fmt.Sprint(", ", r.Name, " ", r.Rate, " ", toMicros(r.Result))
	}
	return text
}
