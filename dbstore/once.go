package dbstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// maxReplays is how many times the answer to one granted request is repeated; see [ratelimit.StoreReplayer].
const maxReplays = 100

// orderOf returns the indices of the asks, sorted by rule, key and algorithm. A record has its answers in this order, because a
// repeated request may have its asks in another order.
func orderOf(asks []ratelimit.Ask) []int {
	order := make([]int, len(asks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := &asks[i], &asks[j]
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Algorithm, b.Algorithm))
	})
	return order
}

// recordKey returns the key of the row that has the record of the request with this ID and these asks.
func recordKey(once *ratelimit.Attempt, asks []ratelimit.Ask) string {
	var text []byte
	add := func(s string) { text = append(binary.AppendUvarint(text, uint64(len(s))), s...) }
	add(once.Client)
	add(once.ID)
	for _, i := range orderOf(asks) {
		a := &asks[i]
		add(a.Rule)
		add(a.Key)
		add(string(a.Algorithm))
		n := uint64(a.N) << 1
		if a.Shadow {
			n |= 1 // n is odd with Shadow, and even without Shadow, so the bytes always differ
		}
		text = binary.AppendUvarint(text, n)
	}
	sum := sha256.Sum256(text)
	return "o" + string(sum[:])
}

// A record is the content of the row of a request with an ID: when the request was granted, and the answers, sorted as orderOf says.
type record struct {
	at      keytable.Instant
	ttl     time.Duration
	replays int
	answers []ratelimit.Result
}

// pack writes r to f. If f is a form for reading, pack reads r from f instead.
func (r *record) pack(f *packed.Form) {
	packed.Instant(f, &r.at)
	packed.Number(f, &r.ttl, 0, time.Duration(math.MaxInt64))
	packed.Number(f, &r.replays, 0, maxReplays)
	n := len(r.answers)
	packed.Number(f, &n, 0, math.MaxInt32)
	for i := 0; i < n && f.OK(); i++ {
		if f.Reading() {
			r.answers = append(r.answers, ratelimit.Result{})
		}
		a := &r.answers[i]
		packed.Flags(f, &a.Allowed)
		packed.Number(f, &a.Limit, 0, math.MaxInt)
		packed.Number(f, &a.Remaining, 0, math.MaxInt)
		for _, d := range []*time.Duration{&a.RetryAfter, &a.ResetAfter, &a.Delay} {
			packed.Number(f, d, 0, ratelimit.Never)
		}
	}
}

// replay answers the call c from the record in the row r. The result found is false if there is no record, or if the grant in the
// record is too old or was already repeated maxReplays times.
func (d *decider) replay(c *call, r *row) (found bool, err error) {
	r.used = true
	if r.new == nil || c.what != onces {
		return false, nil
	}
	var known record
	content, err := unseal(r.key, r.new)
	if err == nil {
		f := packed.Read(content)
		known.pack(f)
		if err = f.Err(); err == nil && len(known.answers) != len(c.asks) {
			err = packed.ErrBroken
		}
	}
	if err != nil {
		r.broken = brokenError(r, err)
		return false, r.broken
	}
	since := max(d.time.Sub(timeOf(known.at)), 0)
	if since >= known.ttl || known.replays == maxReplays {
		return false, nil
	}
	c.results, c.replayed = make([]ratelimit.Result, len(c.asks)), true
	for i, at := range orderOf(c.asks) {
		res := known.answers[i]
		if res.Delay = max(res.Delay-since, 0); res.ResetAfter < ratelimit.Never {
			res.ResetAfter = max(res.ResetAfter-since, 0)
		}
		c.results[at] = res
	}
	if !c.once.Look {
		known.replays++
		known.seal(r)
	}
	return true, nil
}

// record writes the results of the call c into the row r, if c was granted.
func (d *decider) record(c *call, r *row) {
	for i := range c.results {
		if !c.results[i].Allowed && !c.asks[i].Shadow {
			return
		}
	}
	if c.once.Look {
		return
	}
	known := record{at: keytable.InstantAt(d.time.Sub(time.Unix(0, 0))), ttl: c.once.TTL}
	for _, at := range orderOf(c.asks) {
		known.answers = append(known.answers, c.results[at])
	}
	known.seal(r)
}

// seal stores the record r as the new value of the row to.
func (r *record) seal(to *row) {
	f := packed.Write(nil)
	r.pack(f)
	to.new = seal(to.key, f.Bytes())
	to.expires = timeOf(r.at.Add(r.ttl)).Add(lateness)
}
