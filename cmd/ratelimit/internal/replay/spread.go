package replay

// A spread keeps the least that each key ever had left, for up to maxKept keys. If there are more,
// it keeps those of half of all hashes, then of a quarter, and so on: of these keys it knows
// everything, and they are chosen without regard to what they do.
type spread struct {
	slots []slot // a table by hash; its length is a power of two
	n     int
	level uint // one in 1<<level hashes is kept
}

// A slot is one key. A hash of 0 means none.
type slot struct {
	hash  uint64
	least uint16 // of what is left, in thousandths of the limit, plus 1; 0 if the key was denied
}

const (
	maxKept = 1 << 16
	whole   = 1001 // the least of a key that never used anything
)

// note notes that the key with this hash had this much left.
func (s *spread) note(hash uint64, least uint16) {
	if hash == 0 {
		hash = 1 << 40 // 0 means none
	}
	if hash&(1<<s.level-1) != 0 {
		return
	}
	if 2*(s.n+1) > len(s.slots) {
		if s.grow(); hash&(1<<s.level-1) != 0 {
			return
		}
	}
	at := s.find(hash)
	if at.hash == 0 {
		*at = slot{hash, least}
		s.n++
		return
	}
	at.least = min(at.least, least)
}

// find returns the slot of hash, or the free one where it belongs.
func (s *spread) find(hash uint64) *slot {
	mask := uint64(len(s.slots) - 1)
	for i := hash >> 20 & mask; ; i = (i + 1) & mask {
		if at := &s.slots[i]; at.hash == hash || at.hash == 0 {
			return at
		}
	}
}

// grow makes room: it doubles the table or, if that is as large as it may become, keeps half of the
// keys.
func (s *spread) grow() {
	old := s.slots
	if len(old) < 2*maxKept {
		s.slots = make([]slot, max(2*len(old), 16))
	} else {
		s.level++
		s.slots = make([]slot, len(old))
	}
	s.n = 0
	for _, o := range old {
		if o.hash != 0 && o.hash&(1<<s.level-1) == 0 {
			*s.find(o.hash) = o
			s.n++
		}
	}
}

// A Headroom says how many keys came how close to their limit. The numbers are exact if Exact is
// true, and otherwise estimates, from 32,768 keys or more.
type Headroom struct {
	Exact  bool   `json:"exact"`  // see above
	Keys   uint64 `json:"keys"`   // all keys
	Denied uint64 `json:"denied"` // keys that were denied at least once
	None   uint64 `json:"none"`   // of the others, those that had nothing left
	Tenth  uint64 `json:"tenth"`  // those that had less than a tenth of their limit left
	Fourth uint64 `json:"fourth"` // less than a quarter
	Half   uint64 `json:"half"`   // less than a half
	More   uint64 `json:"more"`   // all others
}

func (s *spread) headroom() Headroom {
	h := Headroom{Exact: s.level == 0}
	for _, o := range s.slots {
		if o.hash == 0 {
			continue
		}
		n := uint64(1) << s.level
		h.Keys += n
		switch left := o.least; {
		case left == 0:
			h.Denied += n
		case left == 1:
			h.None += n
		case left <= 100:
			h.Tenth += n
		case left <= 250:
			h.Fourth += n
		case left <= 500:
			h.Half += n
		default:
			h.More += n
		}
	}
	return h
}

// left returns remaining of limit as a spread notes it. What is less than a thousandth, but more than
// nothing, is one.
func left(remaining, limit int) uint16 {
	if remaining <= 0 || limit <= 0 {
		return 1
	}
	return uint16(min(max(int64(remaining)*1000/int64(limit), 1), 1000)) + 1
}

// A hash is a hash of one part of a request or of several.
type hash uint64

const noHash hash = 14695981039346656037 // FNV-1a

// with returns the hash of what h is of, and text.
func (h hash) with(text string) hash {
	for i := range len(text) {
		h = (h ^ hash(text[i])) * 1099511628211
	}
	return (h ^ hash(len(text))) * 1099511628211
}

// bits returns h with its bits mixed: all of them depend on each byte.
func (h hash) bits() uint64 {
	x := uint64(h)
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}
