package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Record is the record of one request that charges a Book: an [engine.Record].
type Record struct {
	log   *Log
	id    keytable.Hash
	ttl   time.Duration
	look  bool             // whether nothing changes
	asked []*engine.Charge // in an order that does not depend on that of the charges
	parts []engine.Part    // their answers
}

// NewRecord returns the Record in log of the request of client with this ID for charges, which
// answers for as long as ttl. If look is set, it only answers.
func NewRecord(log *Log, client, id string, ttl time.Duration, look bool, charges []engine.Charge) *Record {
	r := &Record{log: log, ttl: ttl, look: look, parts: make([]engine.Part, len(charges))}
	for i := range charges {
		r.asked = append(r.asked, &charges[i])
	}
	slices.SortFunc(r.asked, func(a, b *engine.Charge) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Algorithm, b.Algorithm))
	})
	r.id = keytable.HashOfPair(client, id)
	for _, c := range r.asked {
		kind := keytable.HashOf(c.Algorithm)
		if c.Shadow {
			kind = kind.With(0, kind)
		}
		r.id = r.id.With(uint64(c.N), keytable.HashOfPair(c.Rule, c.Key)).With(0, kind)
	}
	return r
}

// Find makes the answers of the record those of the charges.
func (r *Record) Find(now keytable.Instant) bool {
	if !r.log.Find(r.id, now, r.parts, !r.look) {
		return false
	}
	for i, c := range r.asked {
		c.Verdict, c.Delay = r.parts[i].Verdict, r.parts[i].Delay
	}
	return true
}

// Keep records that the charges were made.
func (r *Record) Keep(at keytable.Instant) {
	for i, c := range r.asked {
		r.parts[i].Verdict, r.parts[i].Delay = c.Verdict, c.Delay
	}
	r.log.Keep(r.id, at, r.ttl, r.parts)
}
