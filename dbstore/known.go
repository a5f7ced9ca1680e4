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

	// contendedFor is how long after a miss a row counts as one that other processes change too.
	contendedFor = 100 * time.Millisecond
)

// A reading is what one call of the Backend has said about the time of the database.
type reading struct {
	db             time.Time // the time of the database, which was read at some instant between the two others
	sent, received time.Time // by the clock of this process
}

// earliest and latest return the bounds of the time that the database has when the clock of this process shows now.
func (r *reading) earliest(now time.Time) time.Time { return r.db.Add(now.Sub(r.received)) }
func (r *reading) latest(now time.Time) time.Time   { return r.db.Add(now.Sub(r.sent)) }

// A value is the value that a row had at the time of a reading.
type value struct {
	bytes  []byte // nil if there was no row
	denied bool   // whether the Store has denied a request on this value
	reading

	missed time.Time // when another process has changed the row before this one could; zero if that was never so
}

// known has the values that rows had when they were seen last.
type known struct {
	mu     sync.Mutex
	values map[string]value // guarded by mu
}

// get returns the value that the row with this key had last, if it is not too old at the time now.
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

// put notes the value of a row. If there is no room, it drops arbitrary values.
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

// forget drops the value of a row.
func (k *known) forget(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.values, key)
}

// contended reports whether another process has changed one of the rows with these keys shortly before this one could.
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
