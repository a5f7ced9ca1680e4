package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A Bar belongs to one rule with a Penalty, which blocks a key for some time after many denials. The Bar has the counted denials
// (the strikes) of the rule's keys, and says whether the key of the request is blocked. The zero Bar, for a rule without a Penalty,
// blocks nothing.
type Bar struct {
	Strikes *penalty.Table // the denials of all keys of the rule in this process; nil if the rule has no Penalty
	Blocks  bool           // whether the key of the request is blocked, so that the rule denies the request
}

// Rest returns how long the key of the part p is still blocked, or 0 if the key is not blocked.
func (b *Bar) Rest(t *Timeline, p *Part) time.Duration {
	rest, _ := b.rest(t, p)
	return rest
}

// rest does what Rest does. It also returns the instant at which it has read the clock. This instant is 0 if no block can apply:
// if the rule has no Penalty, if the rule only observes (is in shadow), or if p has its answer already.
func (b *Bar) rest(t *Timeline, p *Part) (rest time.Duration, now keytable.Instant) {
	if b.Strikes == nil || p.Keys == nil || p.Shadow {
		return 0, 0
	}
	now = t.Now()
	return b.Strikes.Rest(p.Hash, now), now
}

// Deny denies the part p (one rule of a request) if its key is blocked. It writes the denial into p and sets p.Keys to nil, so
// that DecideAll takes over this answer. The other fields, such as Limit, get the values that they would have without the block.
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

// Strike is called for a denied request. It counts one more denial of the key of the part p if the rule of p has denied the
// request. It counts nothing if this rule is in shadow (only observes). After enough denials, the key is blocked: the answer of p
// then becomes a denial that lasts until the block ends. The result begun says whether this denial has begun the block.
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

// Learn notes in this process what a store has answered about the key of the part p: b.Blocks says whether the key is blocked,
// and p.RetryAfter for how long. So the block holds also while the store fails and this process decides alone. The result news is
// true if the key is blocked and this process did not know it before.
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

// deny makes v a denial that lasts for the duration rest. If v is a denial already and lasts longer, it keeps its duration.
func (v *Verdict) deny(rest time.Duration) {
	v.Left, v.RetryAfter, v.ResetAfter = 0, max(v.RetryAfter, rest), max(v.ResetAfter, rest)
}
