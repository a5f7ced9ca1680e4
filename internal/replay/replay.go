// Package replay records the answers to requests that were granted, so that a retry of such a
// request gets the same answer.
package replay

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// MaxReplays is how often a record answers a retry. Any further retry is decided like a new
// request.
const MaxReplays = 100

// A Log holds the records of grants, in order of the grants. Each record has the identity of its
// request. The number of records is bounded: the oldest is dropped first.
//
// So that a request is charged only once, a goroutine calls Find before it charges and Add afterwards,
// under a lock that all goroutines hold while they decide on the same request. A goroutine without such
// a lock calls Begin in place of Find, and calls End when the decision is made.
type Log struct {
	limit int // largest number of records

	mu      sync.Mutex
	ring    []record                        // the records; the slice grows until its length is as large as limit
	first   int                             // the index in ring of the oldest record
	size    int                             // how many records ring holds, beginning at the index in the field first
	places  map[keytable.Hash]int           // the index in ring of the newest record of each request, by the identity of the request
	pending map[keytable.Hash]chan struct{} // requests for which Begin was called and End was not yet; End closes the channel
}

// A record is one grant. It is ignored once a newer record of the same request exists.
type record struct {
	id      keytable.Hash    // the identity of the request
	at      keytable.Instant // when the request was granted
	ttl     time.Duration    // how long the record answers retries of the request
	replays int              // how many retries the record has answered
	answers []answer         // one answer for each rule that the request was charged to
}

// An answer is the recorded answer of one rule to a request.
type answer struct {
	engine.Verdict
	delay time.Duration
}

// New returns a Log that holds at most the given number of records.
func New(limit int) *Log {
	return &Log{limit: limit, places: make(map[keytable.Hash]int), pending: make(map[keytable.Hash]chan struct{})}
}

// Find writes the recorded answers to a request into the slice parts, which may be nil. The hash id
// identifies the request. Durations in the answers are reduced by the time that has passed from the
// grant to the instant now. Find returns false if the request has no record, if the record is too old,
// or if it has answered [MaxReplays] retries already. The last parameter says whether this call counts
// as one of these retries.
func (l *Log) Find(id keytable.Hash, now keytable.Instant, parts []engine.Part, counts bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.find(id, now, parts, counts)
}

func (l *Log) find(id keytable.Hash, now keytable.Instant, parts []engine.Part, counts bool) bool {
	place, ok := l.places[id]
	if !ok {
		return false
	}
	r := &l.ring[place]
	since := r.age(now)
	if since >= r.ttl || r.replays == MaxReplays {
		return false
	}
	if counts {
		r.replays++
	}
	for i := range parts {
		p, a := &parts[i], &r.answers[i]
		p.Verdict, p.Delay, p.Err = a.Verdict, max(a.delay-since, 0), nil
		if p.ResetAfter < engine.Never {
			p.ResetAfter = max(p.ResetAfter-since, 0)
		}
	}
	return true
}

// age returns the time from the grant that r records until the instant now. It returns 0 if the grant is
// after that instant.
func (r *record) age(now keytable.Instant) time.Duration {
	return time.Duration(min(max(now, r.at).Since(r.at), uint64(engine.Never)))
}

// Add records the answers to a request that was granted at the given instant. The slice parts has these
// answers, and the hash id identifies the request. The record answers retries for the duration ttl.
func (l *Log) Add(id keytable.Hash, at keytable.Instant, ttl time.Duration, parts []engine.Part) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.size > 0 && l.ring[l.first].age(at) >= l.ring[l.first].ttl {
		l.drop()
	}
	if l.size == len(l.ring) {
		l.grow()
	}
	place := (l.first + l.size) % len(l.ring)
	l.size++
	l.places[id] = place
	r := &l.ring[place]
	r.id, r.at, r.ttl, r.replays, r.answers = id, at, ttl, 0, r.answers[:0]
	for i := range parts {
		r.answers = append(r.answers, answer{parts[i].Verdict, parts[i].Delay})
	}
}

// drop forgets the oldest record.
func (l *Log) drop() {
	if id := l.ring[l.first].id; l.places[id] == l.first {
		delete(l.places, id)
	}
	l.first = (l.first + 1) % len(l.ring)
	l.size--
}

// grow makes room for one more record: it enlarges the slice ring or, if that has its largest length
// already, drops the oldest record.
func (l *Log) grow() {
	if l.size == l.limit {
		l.drop()
		return
	}
	ring := make([]record, min(max(2*l.size, 16), l.limit))
	n := copy(ring, l.ring[l.first:])
	copy(ring[n:], l.ring[:l.first])
	for id, place := range l.places {
		l.places[id] = (place - l.first + l.size) % l.size
	}
	l.ring, l.first = ring, 0
}

// Clear forgets all records.
func (l *Log) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.places)
	l.ring, l.first, l.size = nil, 0, 0
}

// Len returns the number of records, including records that are too old to answer a retry.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Begin does what Find does for the request that the hash id identifies. It also returns the instant of
// the search, which it reads from the clock by the given function. If Begin finds no answers, the caller
// decides on the request and must then call End. Before the call of End, further calls of Begin for the
// same request wait. If ctx ends while a call waits, that call returns the error of ctx.
func (l *Log) Begin(
	ctx context.Context, id keytable.Hash, now func() keytable.Instant, parts []engine.Part,
) (at keytable.Instant, found bool, err error) {
	for {
		at = now()
		l.mu.Lock()
		ended, running := l.pending[id]
		if !running {
			if found = l.find(id, at, parts, true); !found {
				l.pending[id] = make(chan struct{})
			}
		}
		l.mu.Unlock()
		if !running {
			return at, found, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return at, false, ctx.Err()
		}
	}
}

// End wakes the calls of Begin that wait for the request with the hash id. Call End once after a call
// of Begin that found no answers. If the request was granted, call Add before End.
func (l *Log) End(id keytable.Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.pending[id])
	delete(l.pending, id)
}
