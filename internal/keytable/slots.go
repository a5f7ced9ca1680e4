package keytable

import "math/bits"

// A slot holds the state of one key, or is empty if hash.Hi is zero.
type slot[S any] struct {
	hash  Hash
	state S
}

// sizeFor returns how many homes (slots that a hash maps to) the new slots of a shard with n keys have. With
// five eighths of the homes in use, the shard has room for further keys.
func sizeFor(n int) uint64 { return max(uint64(n)*8/5, 5) }

// capacity returns how many keys a shard takes before it is rebuilt. The parameter size is the number of
// homes of the shard, the slots that hashes map to. If more than four fifths of the homes were in use,
// searches would become long.
func capacity(size uint64) int { return int(size * 4 / 5) }

// home returns the slot where the search for a hash begins. The parameter hi is the first half of the hash.
func (s *Shard[S, A]) home(hi uint64) int {
	i, _ := bits.Mul64(hi<<(64-s.shift), s.size)
	return int(i)
}

// search returns the index i of the slot that holds the hash h. If no slot holds h, the result ok is
// false, and i is the index of the slot where h belongs.
func (s *Shard[S, A]) search(h Hash) (i int, ok bool) {
	for i = s.home(h.Hi); ; i++ {
		at := &s.slots[i].hash
		switch {
		case *at == h:
			return i, true
		case at.Hi == 0 || at.Hi > h.Hi || at.Hi == h.Hi && at.Lo > h.Lo:
			return i, false
		}
	}
}

// put stores the state of the key with the hash h, which must not have a slot yet, in a new slot.
func (s *Shard[S, A]) put(h Hash, state S) {
	i, _ := s.search(h)
	free := i
	for s.slots[free].hash.Hi != 0 {
		free++
	}
	if free == len(s.slots)-1 {
		s.slots = append(s.slots, make([]slot[S], 4)...)
	}
	copy(s.slots[i+1:free+1], s.slots[i:free])
	s.slots[i] = slot[S]{h, state}
	s.count++
}

// remove deletes the key in slot i. It then moves each following key that lies after its home
// (the slot that its hash maps to) back by one slot, so that no search meets a gap.
func (s *Shard[S, A]) remove(i int) {
	end := i + 1
	for s.slots[end].hash.Hi != 0 && s.home(s.slots[end].hash.Hi) < end {
		end++
	}
	copy(s.slots[i:], s.slots[i+1:end])
	s.slots[end-1] = slot[S]{}
	s.count--
}

// rebuild drops the idle keys, which owe nothing. If less than a quarter of the capacity is free
// afterwards, rebuild moves the remaining keys to new slots or, if there are many keys, splits the
// shard.
func (s *Shard[S, A]) rebuild(now Instant) {
	s.sweep(now)
	if s.count <= capacity(s.size)*3/4 {
		return
	}
	keys := s.slots[:0]
	for i := range s.slots {
		if s.slots[i].hash.Hi != 0 {
			keys = append(keys, s.slots[i])
		}
	}
	// If Table.grow is locked, another caller splits a shard or visits all shards. This shard
	// then splits at a later rebuild.
	if len(keys) >= s.table.splitAt(64-s.shift) && s.table.grow.TryLock() {
		s.split(keys, now)
		s.table.grow.Unlock()
		return
	}
	s.fill(keys)
}

// sweep drops the idle keys, which owe nothing, and moves the remaining keys as close as possible to
// their homes, the slots that their hashes map to.
func (s *Shard[S, A]) sweep(now Instant) {
	count, next := 0, 0
	for i := range s.slots {
		if s.slots[i].hash.Hi == 0 {
			continue
		}
		idle := !s.Marked(s.slots[i].hash) && s.Algorithm.Idle(&s.slots[i].state, now)
		at := s.slots[i]
		s.slots[i] = slot[S]{}
		if idle {
			continue
		}
		next = max(next, s.home(at.hash.Hi)) // the new slot of this key is never after its old slot i
		s.slots[next] = at
		next++
		count++
	}
	if gone := s.count - count; gone > 0 {
		s.evicted(gone, now)
		s.table.keys.Add(int64(-gone))
	}
	s.count, s.cursor = count, 0
}

// fill replaces the slots of the shard by new slots that hold the given keys, which are sorted by hash.
func (s *Shard[S, A]) fill(keys []slot[S]) {
	s.size, s.count, s.cursor = sizeFor(len(keys)), len(keys), 0
	s.slots = make([]slot[S], s.size+4+s.size/32)
	next := 0
	for i := range keys {
		next = max(next, s.home(keys[i].hash.Hi))
		if next >= len(s.slots)-1 {
			s.slots = append(s.slots, make([]slot[S], 4)...)
		}
		s.slots[next] = keys[i]
		next++
	}
}
