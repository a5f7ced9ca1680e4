package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A Bar has the strikes of one rule with a Penalty, and says whether they block the request that the rule's [Part] asks about.
// The zero Bar is that of a rule without a Penalty, which blocks nothing.
type Bar struct {
	Strikes *penalty.Table // the denials of all keys of the rule in this process; nil if the rule has no Penalty
	Blocks  bool           // whether the key is blocked, so that the answer of the Part is a denial
}

// Rest returns how long the key of the part p is still blocked, or 0 if it is not.
func (b *Bar) Rest(t *Timeline, p *Part) time.Duration {
	rest, _ := b.rest(t, p)
	return rest
}

// rest does what Rest does. It also returns the instant at which it has looked, if the rule has a Penalty.
func (b *Bar) rest(t *Timeline, p *Part) (rest time.Duration, now keytable.Instant) {
	if b.Strikes == nil || p.Keys == nil || p.Shadow {
		return 0, 0
	}
	now = t.Now()
	return b.Strikes.Rest(p.Hash, now), now
}

// Deny denies the part p if its key is blocked. Then p has its answer before DecideAll, and its field Keys is nil. Apart from
// the block, the answer is what the keys would say.
func (b *Bar) Deny(t *Timeline, p *Part) {
	rest, now := b.rest(t, p)
	if rest == 0 {
		return
	}
	alone := []Part{*p}
	DecideAll(t, alone, &Order{Mode: ModeLook, Within: AnyDelay}, now)
	p.Keys, p.Verdict = nil, alone[0].Verdict
	b.deny(p, rest)
}

// Strike counts the denial of a request, by a rule with a Penalty, as a strike of the key of the part p, unless p would grant the
// request. If the key is blocked from now on, p becomes a denial for that time. begun says whether this strike has begun the block.
func (b *Bar) Strike(p *Part, whose penalty.Whose, now keytable.Instant) (begun bool) {
	if p.Keys == nil || p.Shadow || p.Granted() || p.N == 0 {
		return false
	}
	rest, begun := b.Strikes.Strike(p.Hash, whose, now)
	if rest > 0 {
		b.deny(p, rest)
	}
	return begun
}

// Learn notes what a store has said about the key of the part p, of a rule with a Penalty: b.Blocks says whether it is blocked,
// and p.RetryAfter for how long. So a failure policy that decides in this process obeys the block, too. news says whether the
// block was not known.
func (b *Bar) Learn(p *Part, whose penalty.Whose, now keytable.Instant) (news bool) {
	known := b.Strikes.Rest(p.Hash, now) > 0
	if !b.Blocks {
		if known {
			b.Strikes.Forget(p.Hash)
		}
		return false
	}
	b.Strikes.Block(p.Hash, whose, p.RetryAfter, now)
	return !known
}

// deny makes the answer of p a denial for the time rest, because the key is blocked.
func (b *Bar) deny(p *Part, rest time.Duration) {
	b.Blocks, p.Delay = true, 0
	p.deny(rest)
}

// deny makes v a denial for the time rest, or for longer if v says so already.
func (v *Verdict) deny(rest time.Duration) {
	v.Left, v.RetryAfter, v.ResetAfter = 0, max(v.RetryAfter, rest), max(v.ResetAfter, rest)
}
