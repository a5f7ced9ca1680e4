// Package replay remembers the answers to requests that were granted, so that a request that
// comes again gets the answer that it had.
package replay

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Most is how often a record answers. After that, the request is decided anew.
const Most = 100

// A Log has the records of grants, each under the identity of its request, in the order in which
// they were made. It has a bounded number of them: the oldest goes first.
//
// The mutex of a Log is held for a lookup only, and nothing is called meanwhile. Who decides on a
// request calls Find before it charges and Keep afterwards, and holds a lock in between that
// everybody holds who decides on the same request; or it has a flight.
type Log struct {
	most int

	mu      sync.Mutex
	ring    []record              // grows up to most
	first   int                   // the place of the oldest in ring
	size    int                   // how many places are in use, from first on
	places  map[keytable.Hash]int // of the newest record of each identity
	flights map[keytable.Hash]chan struct{}
}

// A record is one grant. It is out of use if the identity has a newer one.
type record struct {
	id      keytable.Hash
	at      keytable.Instant
	ttl     time.Duration // how long it answers
	replays int
	answers []answer // one for each part
}

// An answer is what a part has answered.
type answer struct {
	engine.Verdict
	delay time.Duration
}

// New returns a Log of at most most records.
func New(most int) *Log {
	return &Log{most: most, places: make(map[keytable.Hash]int), flights: make(map[keytable.Hash]chan struct{})}
}

// Find copies the answers of the record of id to parts, as they are at now: their times are
// shorter by the time since. It returns false if there is no record, or none that still answers.
// If counts is set, this is one of the answers that a record gives. parts may be nil.
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
	if since >= r.ttl || r.replays == Most {
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

// age returns the time from r to now, which may be before r.
func (r *record) age(now keytable.Instant) time.Duration {
	return time.Duration(min(max(now, r.at).Since(r.at), uint64(engine.Never)))
}

// Keep makes the answers of parts, which were granted at the instant at, the record of id. It
// answers for as long as ttl.
func (l *Log) Keep(id keytable.Hash, at keytable.Instant, ttl time.Duration, parts []engine.Part) {
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

// grow makes room for a record.
func (l *Log) grow() {
	if l.size == l.most {
		l.drop()
		return
	}
	ring := make([]record, min(max(2*l.size, 16), l.most))
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

// Len returns how many records there are, with those that do not answer any more.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Begin does what Find does or, if that finds nothing, begins the flight of id: until Land is
// called, nobody else begins one. If there is a flight already, Begin waits until it has ended, or
// until ctx ends, whose error it then returns. now reads the clock.
func (l *Log) Begin(ctx context.Context, id keytable.Hash, now func() keytable.Instant, parts []engine.Part) (at keytable.Instant, found bool, err error) {
	for {
		at = now()
		l.mu.Lock()
		landed, flies := l.flights[id]
		if !flies {
			if found = l.find(id, at, parts, true); !found {
				l.flights[id] = make(chan struct{})
			}
		}
		l.mu.Unlock()
		if !flies {
			return at, found, nil
		}
		select {
		case <-landed:
		case <-ctx.Done():
			return at, false, ctx.Err()
		}
	}
}

// Land ends the flight of id. Who has charged has called Keep before.
func (l *Log) Land(id keytable.Hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.flights[id])
	delete(l.flights, id)
}
