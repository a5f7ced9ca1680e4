package httplimit

import (
	"container/list"
	"context"
	"fmt"
	"math/bits"
	"net/http"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// An Adaptive lowers the rate at which a [Transport] sends requests to a server while the server denies some of them, and
// raises the rate afterwards. The rate falls by half, and rises in steps of a hundredth of Max. So the Transport finds a
// rate that the server accepts, without knowing the server's limit. Each target has a rate of its own, which begins at
// Max. A target is the origin of a server or, with [Transport.Scope], one scope of an origin.
//
// A response with the status 429 or 503 is a denial. The rate falls at most once for all requests that were sent before
// it fell. A response with a status below 500, other than 429, raises the rate, but at most once in a hundredth of Recover.
// Other responses and errors change nothing. So
//
//   - in any time of length d, the Transport sends at most Max.Burst + d·Max.Requests/Max.Per requests to a target;
//   - after n denials, each of a request that was sent after the previous denial, the rate is at most Max/2ⁿ or Min,
//     whichever is higher;
//   - during a time d without denials, the rate rises by at most Max·d/Recover and one step. It is Max again after 100
//     successes that are at least Recover/100 apart.
//
// A Transport keeps the rates of at most 1,024 targets. A further target takes the place of the one that was used least
// recently. If the dropped target is used again, it starts again with the rate Max, and with all of Max.Burst.
type Adaptive struct {
	// Max is the highest rate. Its Burst is how many requests may be sent at once; 0 means 1. Its Per is at most 24 hours.
	Max ratelimit.Rate

	// Min is the lowest rate. It must be at least a hundredth of Max. The zero Rate means a hundredth of Max.
	Min ratelimit.Rate

	// Recover is the time in which the rate can rise from 0 to Max. 0 means a minute.
	Recover time.Duration
}

// full is the level of the rate Max. A level is a rate in hundredths of Max.
const full = 100

// The limits of Adaptive.Max. They are so low that each multiple of a hundredth of Max is a valid rate.
const (
	maxAdaptivePer      = 24 * time.Hour
	maxAdaptiveRequests = 1 << 24
)

// problems returns an error for each invalid field of a.
func (a *Adaptive) problems() (problems []error) {
	switch err := a.Max.Validate(); {
	case err != nil:
		problems = append(problems, wrong("adaptive.max", a.Max, "must be a rate, such as PerSecond(100)"))
	case a.Max.Per <= 0 || a.Max.Per > maxAdaptivePer || a.Max.Requests > maxAdaptiveRequests:
		problems = append(problems, wrong("adaptive.max", a.Max, "must be for at most 24h, and at most 16777216 requests"))
	}
	if a.Min != (ratelimit.Rate{}) && len(problems) == 0 {
		if low := a.minLevel(); a.Min.Validate() != nil || a.Min.Per <= 0 || low < 1 || low > full {
			problems = append(problems, wrong("adaptive.min", a.Min, "must be from a hundredth of Max to Max, or the zero Rate for a hundredth"))
		}
	}
	if a.Recover < 0 {
		problems = append(problems, wrong("adaptive.recover", a.Recover, "must not be negative; 0 means a minute"))
	}
	return problems
}

// minLevel returns the level of the rate Min, rounded up. It returns 0 if Min is less than a hundredth of Max.
func (a *Adaptive) minLevel() int {
	if a.Min == (ratelimit.Rate{}) {
		return 1
	}
	for level := 1; level <= full; level++ {
		if compare(a.at(level), a.Min) >= 0 {
			if level == 1 && compare(a.at(1), a.Min) > 0 {
				return 0
			}
			return level
		}
	}
	return full + 1
}

// compare returns a number below, equal to or above 0 if the rate a is lower than, equal to or higher than the rate b.
func compare(a, b ratelimit.Rate) int {
	aHi, aLo := bits.Mul64(uint64(a.Requests), uint64(b.Per))
	bHi, bLo := bits.Mul64(uint64(b.Requests), uint64(a.Per))
	switch {
	case aHi == bHi && aLo == bLo:
		return 0
	case aHi > bHi || aHi == bHi && aLo > bLo:
		return 1
	}
	return -1
}

// at returns the rate of a level, which is a number of hundredths of Max.
func (a *Adaptive) at(level int) ratelimit.Rate {
	return ratelimit.Rate{Requests: a.Max.Requests * level, Per: a.Max.Per * full, Burst: max(a.Max.Burst, 1)}
}

// A pace is the rate at which requests are sent to one target.
type pace struct {
	key    string // the key of the target
	bucket *ratelimit.TokenBucket

	mu     sync.Mutex
	level  int              // hundredths of Max; guarded by mu
	falls  uint64           // how often the level has fallen; guarded by mu
	raised keytable.Instant // when the level last rose or fell, or when the pace was made if it never did; guarded by mu
}

// paces are the paces of a Transport.
type paces struct {
	mu    sync.Mutex
	byKey map[string]*list.Element // the elements of the list all, by the key of the target; at most maxHolds; guarded by mu
	all   list.List                // each *pace, in the order of their last use, the most recent at the end; guarded by mu
}

// pace returns the pace of the target, or nil if t.Adaptive is nil.
func (t *Transport) pace(to target) *pace {
	if t.Adaptive == nil {
		return nil
	}
	all := &t.paces
	all.mu.Lock()
	defer all.mu.Unlock()
	if e := all.byKey[to.key]; e != nil {
		all.all.MoveToBack(e)
		return e.Value.(*pace)
	}
	var options []ratelimit.Option
	if t.Clock != nil {
		options = append(options, ratelimit.WithClock(t.Clock))
	}
	bucket, err := ratelimit.NewTokenBucket(t.Adaptive.at(full), options...)
	if err != nil {
		panic(err) // cannot happen: Adaptive.problems has checked Max
	}
	if all.byKey == nil {
		all.byKey = make(map[string]*list.Element)
	}
	if oldest := all.all.Front(); len(all.byKey) >= maxHolds {
		delete(all.byKey, all.all.Remove(oldest).(*pace).key)
	}
	p := &pace{key: to.key, bucket: bucket, level: full, raised: t.time.Now()}
	all.byKey[to.key] = all.all.PushBack(p)
	return p
}

// wait waits until the pace grants a request.
func (p *pace) wait(ctx context.Context) (ratelimit.Result, error) { return p.bucket.Wait(ctx, "", 1) }

// fallen returns how often the level of p has fallen. It returns 0 for a nil pace.
func (p *pace) fallen() uint64 {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.falls
}

// An outcome says what a response means for the pace.
type outcome int

const (
	neutral outcome = iota
	granted
	denied
)

// outcomeOf returns the outcome of a response with this status.
func outcomeOf(status int) outcome {
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return denied
	case status < http.StatusInternalServerError:
		return granted
	}
	return neutral
}

// learn changes the rate of p after a response with the outcome o. The parameter falls is how often the level of p had
// fallen when the request was sent. A denial changes nothing if the level has fallen since then.
func (t *Transport) learn(p *pace, falls uint64, o outcome) {
	if p == nil || o == neutral {
		return
	}
	a := t.Adaptive
	p.mu.Lock()
	defer p.mu.Unlock()
	level, now := p.level, t.time.Now()
	switch {
	case o == denied && falls == p.falls:
		level = max(level/2, a.minLevel())
		p.falls++
		p.raised = now
	case o == granted && level < full && now >= p.raised.Add(t.recover/full):
		level++
		p.raised = now
	}
	if level == p.level {
		return
	}
	p.level = level
	if err := p.bucket.SetRate(a.at(level)); err != nil {
		panic(fmt.Errorf("httplimit: %w", err)) // cannot happen: Adaptive.problems has checked Max
	}
}
