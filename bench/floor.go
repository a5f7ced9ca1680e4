package bench

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

// floorShards is enough that two cores seldom meet in one.
const floorShards = 256

// floor is what a keyed limiter made of standard parts costs at least, before
// it decides anything: it reads the clock, hashes the key, locks a shard and
// looks the key up. It writes the time into what it finds, so that no part is
// optimised away.
type floor struct {
	start  time.Time
	seed   maphash.Seed
	shards [floorShards]floorShard
}

type floorShard struct {
	mu   sync.Mutex
	keys map[string]*entry
	_    [48]byte // one shard to a cache line
}

// entry is what a key has in the references.
type entry struct {
	last  time.Duration // since the start
	count int64
}

func newFloor(Limit) (Subject, error) {
	f := &floor{start: time.Now(), seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].keys = make(map[string]*entry)
	}
	return f, nil
}

// Allow always reports true.
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

// bareMap is one lookup in one map: no clock, no lock. How it slows down as
// its keys come to fill the memory is what any table has to live with.
type bareMap map[string]*entry

func newBareMap(Limit) (Subject, error) { return make(bareMap), nil }

// Allow always reports true.
func (m bareMap) Allow(key string) bool {
	e := m[key]
	if e == nil {
		e = new(entry)
		m[strings.Clone(key)] = e
	}
	e.count++
	return true
}
