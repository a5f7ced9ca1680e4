package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Record finds the recorded answers to one request in a [Log], or adds the answers to the Log, so that a
// retry of the request gets them again. It implements [engine.Record] for a store that keeps its keys in memory.
type Record struct {
	log     *Log
	id      keytable.Hash    // the hash that identifies the request
	ttl     time.Duration    // how long a grant is replayed
	look    bool             // whether Find leaves the number of replays unchanged
	charges []*engine.Charge // one for each rule that the request is charged to; sorted, so that their order in the request does not matter
	parts   []engine.Part    // the answers to the charges, in the order of the field charges
}

// NewRecord returns the Record of one request in the given log. The request is identified by its
// client, its ID and its charges. A grant is replayed for the duration ttl. If look is true, a call of
// Find does not count as a replay.
func NewRecord(log *Log, client, id string, ttl time.Duration, look bool, charges []engine.Charge) *Record {
	r := &Record{log: log, ttl: ttl, look: look, parts: make([]engine.Part, len(charges))}
	for i := range charges {
		r.charges = append(r.charges, &charges[i])
	}
	slices.SortFunc(r.charges, func(a, b *engine.Charge) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Algorithm, b.Algorithm))
	})
	r.id = keytable.HashOfPair(client, id)
	for _, c := range r.charges {
		kind := keytable.HashOf(c.Algorithm)
		if c.Shadow {
			kind = kind.With(0, kind)
		}
		r.id = r.id.With(uint64(c.N), keytable.HashOfPair(c.Rule, c.Key)).With(0, kind)
	}
	return r
}

// Find copies the recorded answers into the charges of the request. It returns false if the request has
// no record, or if its record cannot be replayed any more.
func (r *Record) Find(now keytable.Instant) bool {
	if !r.log.Find(r.id, now, r.parts, !r.look) {
		return false
	}
	for i, c := range r.charges {
		c.Verdict, c.Delay = r.parts[i].Verdict, r.parts[i].Delay
	}
	return true
}

// Add records the answers to the charges of the request. The charges were made at the given instant.
func (r *Record) Add(at keytable.Instant) {
	for i, c := range r.charges {
		r.parts[i].Verdict, r.parts[i].Delay = c.Verdict, c.Delay
	}
	r.log.Add(r.id, at, r.ttl, r.parts)
}
