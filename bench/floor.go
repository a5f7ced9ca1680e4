package bench

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// floorShards is the number of shards of the type floor. A shard is a map with a lock of its own.
// There are many shards, so that two cores seldom need the same lock.
const floorShards = 256

// The type floor does only the work that every limiter with keys must do, and uses only the
// standard library: it reads the clock, hashes the key, locks a shard and looks the key up. It
// makes no decision. It writes the time into the entry that it finds, so that the compiler cannot
// remove a part of the work.
type floor struct {
	start  time.Time
	seed   maphash.Seed
	shards [floorShards]floorShard
}

type floorShard struct {
	mu   sync.Mutex
	keys map[string]*entry
	_    [48]byte // makes a shard 64 bytes long, so that no two shards share a cache line
}

// An entry is the state of a key, both in the type floor and in the type bareMap.
type entry struct {
	last  time.Duration // when the key was last used: the time since floor.start
	count int64
}

func newFloor(Limit) (Subject, error) {
	f := &floor{start: time.Now(), seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].keys = make(map[string]*entry)
	}
	return f, nil
}

// Allow does the work for the key and always returns true.
func (f *floor) Allow(key string) bool {
	now := time.Since(f.start)
	s := &f.shards[maphash.String(f.seed, key)%floorShards]
	s.mu.Lock()
	e := s.keys[key]
	if e == nil {
		e = new(entry)
		s.keys[strings.Clone(key)] = e
	}
	e.last = now
	e.count++
	s.mu.Unlock()
	return true
}

// The type bareMap looks keys up in one map, without a clock or a lock. It shows how much any table
// slows down when its keys no longer fit into the caches of the processor.
type bareMap map[string]*entry

func newBareMap(Limit) (Subject, error) { return make(bareMap), nil }

// Allow looks the key up and always returns true.
func (m bareMap) Allow(key string) bool {
	e := m[key]
	if e == nil {
		e = new(entry)
		m[strings.Clone(key)] = e
	}
	e.count++
	return true
}
