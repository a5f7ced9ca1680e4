package ratelimit

import (
	"errors"
	"iter"
	"math/bits"
	"sync"
	"sync/atomic"
)

// maxParts is how many parts of a store are told apart.
const maxParts = 64

// A parted store says which part has the state of an ask.
type parted interface{ Part(a Ask) int }

// breakers keep the parts of a store that do not answer from holding up decisions: each
// part has a breaker of its own.
type breakers struct {
	store parted    // nil if the store is one part
	list  []breaker // of the parts

	asked atomic.Uint64 // parts, as bits, that calls have been let through to
	open  atomic.Int32  // breakers that pause

	mu     sync.Mutex
	opened uint64 // how often a breaker has, guarded by mu
	last   error  // why the last one has, guarded by mu
}

// newBreakers returns the breakers of store.
func newBreakers(store Store) *breakers {
	if parts, ok := store.(parted); ok {
		return &breakers{store: parts, list: make([]breaker, maxParts)}
	}
	return &breakers{list: make([]breaker, 1)}
}

// passages are the right to make one call of several parts.
type passages struct {
	parts  uint64 // as bits
	probes uint64 // those of which the call finds out whether they are back
}

// to returns the passage to one of the parts of p.
func (p passages) to(part int) passage { return passage{probe: p.probes&bit(part) != 0} }

// bit returns the part of this number as a bit.
func bit(part int) uint64 { return 1 << (uint(part) % maxParts) }

// each yields the numbers of parts, which are bits, in order.
func each(parts uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; parts != 0; parts &= parts - 1 {
			if !yield(bits.TrailingZeros64(parts)) {
				return
			}
		}
	}
}

// admit lets a call of parts through at now, or says why not. The caller tells by
// succeeded, failed or abandoned what became of the call.
//
// Nobody waits, and who asks for the same parts does so in the same order: of several
// that find the pauses of all their parts over, one gets through.
func (bs *breakers) admit(parts uint64, now instant) (p passages, err error) {
	for part := range each(parts) {
		one, err := bs.list[part].admit(now)
		if err != nil {
			bs.abandoned(p) // else nobody would ever probe those parts again
			return passages{}, err
		}
		p.parts |= bit(part)
		if one.probe {
			p.probes |= bit(part)
		}
	}
	if bs.asked.Load()&parts != parts {
		bs.asked.Or(parts)
	}
	return p, nil
}

// succeeded says that the store has answered, and so have all parts.
func (bs *breakers) succeeded(p passages) {
	for part := range each(p.parts) {
		bs.list[part].succeeded(p.to(part))
	}
	if p.probes != 0 {
		bs.open.Add(-int32(bits.OnesCount64(p.probes)))
	}
}

// failed says that the store has not answered, by now, because of err. Nobody knows of
// the parts that err does not blame: a store may have given up before it asked them. To
// take them to be back would send more calls to one that still is not.
func (bs *breakers) failed(p passages, now instant, err error) {
	bad := p.parts
	if blamed := p.parts & partsOf(err); blamed != 0 {
		bad = blamed
	}
	bs.abandoned(passages{p.parts &^ bad, p.probes &^ bad})
	opened := 0
	for part := range each(bad) {
		if bs.list[part].failed(p.to(part), now, err) {
			opened++
		}
	}
	if opened == 0 {
		return
	}
	bs.open.Add(int32(opened))
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.opened += uint64(opened)
	bs.last = storeError(err)
}

// partsOf returns the parts that err says have failed, as bits.
func partsOf(err error) (parts uint64) {
	var blaming interface{ Parts() []int }
	if errors.As(err, &blaming) {
		for _, part := range blaming.Parts() {
			parts |= bit(part)
		}
	}
	return parts
}

// abandoned says that nobody knows whether the parts would have answered.
func (bs *breakers) abandoned(p passages) {
	for part := range each(p.probes) {
		bs.list[part].abandoned(p.to(part))
	}
}

// of returns the parts that asks of a store are about, as bits.
func (bs *breakers) of(asks []Ask) (parts uint64) {
	if bs.store == nil {
		return 1
	}
	for i := range asks {
		parts |= bit(bs.store.Part(asks[i]))
	}
	return parts
}

// ofDecision returns the parts that the decision d asks, as bits.
func (bs *breakers) ofDecision(d *decision) (parts uint64) {
	if bs.store == nil {
		return 1
	}
	for i := range d.asks {
		a := &d.asks[i]
		parts |= bit(bs.store.Part(a.rule.ask(&d.request, a.rate)))
	}
	return parts
}

// pause reports whether one of the parts that the rules of g ask, for client and
// endpoint, is not asked now.
func (bs *breakers) pause(t *timeline, g *ruleGroup, client, endpoint string) bool {
	switch {
	case bs.store == nil:
		return bs.list[0].pauses(t)
	case bs.open.Load() == 0:
		return false
	}
	req := Request{Client: client, Endpoint: endpoint}
	for _, r := range g.rules {
		part := bs.store.Part(r.ask(&req, r.Rate))
		if bs.list[uint(part)%maxParts].pauses(t) {
			return true
		}
	}
	return false
}
