package dbstore

import (
	"sync"
	"time"
)

const (
	// maxKnown is how many values of rows a Store remembers.
	maxKnown = 1 << 16

	// knownFor is how long a Store remembers a value.
	knownFor = 10 * time.Second

	// contendedFor is how long a row counts as contended (other processes change it, too) after another process has changed it first.
	contendedFor = 100 * time.Millisecond
)

// A reading is what one call of the Backend has told about the time of the database.
type reading struct {
	db             time.Time // the time of the database, which was read at some instant between sent and received
	sent, received time.Time // when the call was sent and its answer received, by the clock of this process
}

// earliest and latest return the bounds of the time that the database has when the clock of this process shows now.
func (r *reading) earliest(now time.Time) time.Time { return r.db.Add(now.Sub(r.received)) }
func (r *reading) latest(now time.Time) time.Time   { return r.db.Add(now.Sub(r.sent)) }

// A value is what the Store remembers of one row: the value that the row had at a reading (a call of the Backend).
type value struct {
	bytes  []byte // nil if there was no row
	denied bool   // whether the Store has denied a request on this value
	reading

	missed time.Time // when the database last refused a decision because another process had just changed the row; zero if never
}

// known has the values that rows had when they were seen last.
type known struct {
	mu     sync.Mutex
	values map[string]value // guarded by mu
}

// get returns what was last seen of the row with this key. ok is false if the row was never seen, or was last seen more than 10 s
// (knownFor) before the time now.
func (k *known) get(key string, now time.Time) (v value, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok = k.values[key]
	if age := now.Sub(v.received); ok && (age < 0 || age > knownFor) {
		delete(k.values, key)
		return value{}, false
	}
	return v, ok
}

// put stores v for the row with this key. If the values have no entry for this row yet, put first looks at two arbitrary other
// rows. It drops their values if they were last seen more than 10 s (knownFor) ago, or if there is no room.
func (k *known) put(key string, v value) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.values[key]; ok && v.missed.IsZero() {
		v.missed = old.missed
	} else if !ok {
		if k.values == nil {
			k.values = make(map[string]value)
		}
		looked := 0
		for other, old := range k.values {
			if len(k.values) >= maxKnown || v.received.Sub(old.received) > knownFor {
				delete(k.values, other)
			}
			if looked++; looked == 2 {
				break
			}
		}
	}
	k.values[key] = v
}

// forget drops what is known of the row with this key.
func (k *known) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.values, key)
}

// contended reports whether, within the last 100 ms (contendedFor), another process has changed one of these rows before this process
// could change it.
func (k *known) contended(keys []string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if v, ok := k.values[key]; ok && !v.missed.IsZero() && now.Sub(v.missed) < contendedFor {
			return true
		}
	}
	return false
}
