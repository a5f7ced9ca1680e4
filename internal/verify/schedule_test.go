package verify

import (
	"fmt"
	"math"
	"time"

	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// A call is one step of a schedule. It says where the clock goes, and what is asked,
// relative to the answers so far. Even a schedule that is shortened thus asks at the
// instants, and for the counts, at which something changes.
type call struct {
	Key   uint8
	Move  uint8 // one of the moves
	Size  uint16
	Verb  uint8 // one of the verbs
	Count uint8 // one of the counts
}

// keys are the keys that schedules ask for. Any bytes are a valid key.
var keys = []string{"a", "", "\xff\x00"}

// The verbs, by how often they occur.
const (
	take uint8 = iota
	allow
	peek
	reset
	setRate
	takeEnded
	verbs
)

// The moves of the clock.
const (
	stay       uint8 = iota
	nudge            // forward by 0 to 3 ns
	wander           // forward by up to two windows
	earn             // forward by what up to four units take to be earned
	toRetry          // to the instant that RetryAfter named, or a nanosecond before or after it
	toReset          // the same for ResetAfter
	toDelay          // the same for Delay
	toEdge           // to the next multiple of Per since the epoch, or a nanosecond before or after it
	nudgeBack        // back by 0 to 3 ns
	wanderBack       // back by up to two windows
	home             // to the instant at which the limiter was made
	jump             // by an hour to a century, forward or back
	leave            // beyond what the limiter can represent, forward or back
	moves
)

// The counts of units that are asked for.
const (
	one uint8 = iota
	look
	few
	remaining
	remainingAndOne
	half
	limit
	limitAndOne
	most
	negative
	counts
)

// callGen makes calls. Most of them come at the instant of the call before, or at an
// instant at which something changes.
var callGen = rapid.Custom(func(t *rapid.T) call {
	return call{
		Key:   rapid.SampledFrom([]uint8{0, 0, 0, 1, 2}).Draw(t, "key"),
		Move:  rapid.SampledFrom(oftenMoves).Draw(t, "move"),
		Size:  rapid.Uint16().Draw(t, "size"),
		Verb:  rapid.SampledFrom(oftenVerbs).Draw(t, "verb"),
		Count: rapid.SampledFrom(oftenCounts).Draw(t, "count"),
	}
})

var (
	oftenMoves = weighted(map[uint8]int{
		stay: 10, nudge: 4, wander: 4, earn: 4, toRetry: 8, toReset: 3, toDelay: 2, toEdge: 4,
		nudgeBack: 3, wanderBack: 2, home: 1, jump: 1, leave: 1,
	}, moves)
	oftenVerbs = weighted(map[uint8]int{
		take: 30, allow: 4, peek: 3, reset: 1, setRate: 2, takeEnded: 1,
	}, verbs)
	oftenCounts = weighted(map[uint8]int{
		one: 12, look: 3, few: 5, remaining: 3, remainingAndOne: 3, half: 2, limit: 1, limitAndOne: 1, most: 1, negative: 1,
	}, counts)
)

// weighted returns the values below n, each as many times as often says. Values that come
// earlier are simpler: a failing schedule shrinks towards them.
func weighted(often map[uint8]int, n uint8) (list []uint8) {
	for v := range n {
		for range often[v] {
			list = append(list, v)
		}
	}
	return list
}

// moved returns the time to which c moves the clock of p.
func (p *player) moved(c call) time.Time {
	s := p.seats[p.key(c)]
	size := time.Duration(c.Size)
	beside := size%3 - 1
	switch c.Move % moves {
	case nudge:
		return p.clock.now.Add(size % 4)
	case wander:
		return p.clock.now.Add(share(p.rate.Per, c.Size))
	case earn:
		unit := max(p.rate.Per/time.Duration(p.rate.Requests), 1)
		return p.clock.now.Add(share(later(unit, unit), c.Size))
	case toRetry:
		return s.asked.Add(s.last.RetryAfter).Add(beside)
	case toReset:
		return s.asked.Add(s.last.ResetAfter).Add(beside)
	case toDelay:
		return s.asked.Add(s.last.Delay).Add(beside)
	case toEdge:
		return p.edge().Add(beside)
	case nudgeBack:
		return p.clock.now.Add(-(size % 4))
	case wanderBack:
		return p.clock.now.Add(-share(p.rate.Per, c.Size))
	case home:
		return p.made
	case jump:
		far := []time.Duration{time.Hour, year, 10 * year, 100 * year}[size/2%4]
		if c.Size%2 == 1 {
			far = -far
		}
		return p.clock.now.Add(far)
	case leave:
		return p.made.AddDate([]int{-400, -293, 293, 400}[size%4], 0, 0)
	}
	return p.clock.now
}

// share returns up to twice d. The larger size is, the more it returns.
func share(d time.Duration, size uint16) time.Duration {
	return time.Duration(float64(min(d, math.MaxInt64/4)) * float64(size) / math.MaxUint16 * 2)
}

// later returns a + b, or the longest Duration if that does not fit.
func later(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// edge returns the next multiple of Per since the Unix epoch.
func (p *player) edge() time.Time {
	per := rat(p.rate.Per)
	now := epoch(p.clock.now)
	on := sub(mul(add(floor(div(now, per)), rat(1)), per), now)
	return p.clock.now.Add(time.Duration(on.Num().Int64()))
}

// counted returns how many units c asks for.
func (p *player) counted(c call) int {
	s := p.seats[p.key(c)]
	l := max(s.last.Limit, 1)
	switch c.Count % counts {
	case look:
		return 0
	case few:
		return 1 + int(c.Size)%min(l, 5)
	case remaining:
		return max(s.last.Remaining, 0)
	case remainingAndOne:
		return min(max(s.last.Remaining, 0), math.MaxInt-1) + 1
	case half:
		return l/2 + 1
	case limit:
		return l
	case limitAndOne:
		return min(l, math.MaxInt-1) + 1
	case most:
		return math.MaxInt
	case negative:
		return []int{-1, math.MinInt}[c.Size%2]
	}
	return 1
}

// nextRate returns the rate to which c changes: one of those that the player was given, the
// present one, or one near it.
func (p *player) nextRate(c call) ratelimit.Rate {
	r, size := p.rate, int(c.Size)
	switch size % 8 {
	case 0:
		return r
	case 1:
		r.Requests = r.Requests/2 + 1
	case 2:
		r.Requests = min(r.Requests, math.MaxInt/2) * 2
	case 3:
		r.Per = later(r.Per, r.Per)
	case 4:
		r.Per = r.Per/2 + 1
	case 5:
		r.Burst = r.Burst/2 + 1
	case 6:
		r.Burst = min(max(r.Burst, r.Requests), math.MaxInt/2) * 2
	default:
		return p.rates[size/8%len(p.rates)]
	}
	if r = p.algorithm.rate(r); !p.algorithm.accepts(r) {
		return p.rate
	}
	return r
}

func (c call) String() string {
	verb := []string{"Take", "Allow", "Peek", "Reset", "SetRate", "Take with an ended context"}[c.Verb%verbs]
	return fmt.Sprintf("%s %q", verb, keys[int(c.Key)%len(keys)])
}
