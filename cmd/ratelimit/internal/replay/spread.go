package replay

// A spread keeps, for each key, the smallest fraction of its limit that the key ever had left. If there are more
// than maxKept keys, the spread keeps only half of all keys, then a quarter, and so on. The hash of a key decides
// whether the key is kept. All requests of a key that is kept are counted.
type spread struct {
	slots []slot // hash table; its length is a power of two
	n     int
	level uint // one key in 1<<level is kept: in its hash, the lowest bits above leftBits are 0, as many as level

	notes   [maxNotes]slot // what is not yet in the table, see flush
	waiting int            // how many notes there are
}

// maxNotes is the largest number of notes that are not yet in the table.
const maxNotes = 64

// A slot has one key of a spread. The slot is free if it is 0. Its lowest leftBits bits are the number minLeft. After a denial,
// this number is 0. Otherwise it is 1 plus the smallest fraction of the limit that was left, in thousandths, so 501 for a half.
// The other bits are those of the hash of the key. A slot is this small so that many slots fit into the caches of a processor.
type slot uint64

const leftBits = 10

func (s slot) hash() uint64    { return uint64(s) &^ (1<<leftBits - 1) }
func (s slot) minLeft() uint16 { return uint16(s & (1<<leftBits - 1)) }

// place returns a number whose lowest bits say where the table has the key, if no other key has this place.
func (s slot) place() uint64 { return uint64(s) >> 34 }

const (
	maxKept = 1 << 16
	whole   = 1001 // value of minLeft for a key that has used nothing
)

// note records how much of its limit a key had left. The argument hash is the hash of the key. The argument
// minLeft is the fraction of the limit that was left, in the form of slot.minLeft.
func (s *spread) note(hash uint64, minLeft uint16) {
	if s.waiting == maxNotes {
		s.flush()
	}
	if hash = slot(hash).hash(); hash == 0 {
		hash = 1 << 40 // because a slot that is 0 counts as free
	}
	s.notes[s.waiting] = slot(hash) | slot(minLeft)
	s.waiting++
}

// flush puts the notes into the table. The table is larger than the fast caches of a processor, so it takes long to read one of
// its slots. The first loop reads the slots of all notes. It has no branches, so the processor can read many slots at the same
// time.
func (s *spread) flush() {
	notes := s.notes[:s.waiting]
	s.waiting = 0
	var have [maxNotes]slot
	if mask := uint64(len(s.slots) - 1); len(s.slots) > 0 {
		for i, note := range notes {
			have[i] = s.slots[note.place()&mask]
		}
	}
	for i, note := range notes {
		if have[i].hash() != note.hash() || note < have[i] {
			s.put(note)
		}
	}
}

// put puts one note into the table.
func (s *spread) put(note slot) {
	if !s.keeps(note.hash()) {
		return
	}
	if s.full() {
		if s.grow(); !s.keeps(note.hash()) {
			return
		}
	}
	switch at := s.find(note.hash()); {
	case *at == 0:
		*at = note
		s.n++
	case note < *at:
		*at = note
	}
}

// full reports whether the table has no room for one more key: it is three quarters full or, at its largest size, half full.
func (s *spread) full() bool { return s.n == min(len(s.slots)/4*3, maxKept) }

// keeps reports whether the key with this hash is kept.
func (s *spread) keeps(hash uint64) bool { return hash>>leftBits&(1<<s.level-1) == 0 }

// find returns the slot with this hash. If no slot has this hash, find returns the free slot in which to store it.
func (s *spread) find(hash uint64) *slot {
	mask := uint64(len(s.slots) - 1)
	for i := slot(hash).place() & mask; ; i = (i + 1) & mask {
		if at := &s.slots[i]; at.hash() == hash || *at == 0 {
			return at
		}
	}
}

// grow makes room for more keys. If the table is smaller than its largest size, grow doubles it. If it already has
// its largest size, grow drops half of the keys.
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
		if o != 0 && s.keeps(o.hash()) {
			*s.find(o.hash()) = o
			s.n++
		}
	}
}

// A Headroom counts keys by how close they came to their limit. Each key is counted in exactly one of the fields Denied,
// None, Tenth, Fourth, Half and More. If Exact is false, the counts are estimates from a sample of the keys.
type Headroom struct {
	Exact  bool   `json:"exact"`  // whether all keys were counted
	Keys   uint64 `json:"keys"`   // number of keys
	Denied uint64 `json:"denied"` // keys that were denied at least once
	None   uint64 `json:"none"`   // keys that were never denied, but at some time had nothing left
	Tenth  uint64 `json:"tenth"`  // keys whose lowest remaining amount was less than a tenth of the limit, but not 0
	Fourth uint64 `json:"fourth"` // keys whose lowest remaining amount was at least a tenth and less than a quarter of the limit
	Half   uint64 `json:"half"`   // keys whose lowest remaining amount was at least a quarter and less than half of the limit
	More   uint64 `json:"more"`   // keys that always had at least half of their limit left
}

func (s *spread) headroom() Headroom {
	s.flush()
	h := Headroom{Exact: s.level == 0}
	for _, o := range s.slots {
		if o == 0 {
			continue
		}
		n := uint64(1) << s.level
		h.Keys += n
		switch left := o.minLeft(); {
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

// left returns 1 plus the fraction of the limit that remains, in thousandths. This is the form of slot.minLeft. So
// left(1, 2) is 501, and left(0, 2) is 1. If anything remains, left counts it as at least one thousandth, so
// left(1, 5000) is 2.
func left(remaining, limit int) uint16 {
	if remaining <= 0 || limit <= 0 {
		return 1
	}
	return uint16(min(max(int64(remaining)*1000/int64(limit), 1), 1000)) + 1
}

// A hash is the hash of several texts that follow each other, or of one text.
type hash uint64

const (
	noHash hash = 14695981039346656037 // the hash of no text
	odd    hash = 0x9e3779b97f4a7c15   // an odd number, so that a product with it loses nothing
)

// with(text) adds one more text to the hash h. If h is the hash of some texts, the result is the hash of these texts
// followed by the new text.
func (h hash) with(text string) hash {
	n := len(text)
	for ; len(text) >= 8; text = text[8:] {
		h = h.word(uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56)
	}
	rest := uint64(0)
	for i := range len(text) {
		rest = rest<<8 | uint64(text[i])
	}
	return h.word(rest).word(uint64(n))
}

// word adds the eight bytes of w to a hash. Only the upper bits of the product depend on all of these bytes. So the upper half is
// mixed into the lower half before the next word is added.
func (h hash) word(w uint64) hash {
	h = (h ^ hash(w)) * odd
	return h ^ h>>32
}

// bits returns the hash h with its bits mixed, so that each bit of the result depends on every byte of the texts.
func (h hash) bits() uint64 {
	x := uint64(h)
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}
