package match

import (
	"hash/maphash"
	"maps"
)

// A Map is a map from strings that never changes: With and Without return a changed copy. The copy of a
// large Map shares most of its memory with the original. The zero Map is empty.
type Map[V any] struct {
	// Whole holds all entries, and must not be changed. If Whole is nil, the entries are distributed
	// over parts: the function partOf returns the number of the part for a key.
	Whole map[string]V
	parts *[partCount]map[string]V
}

const (
	partCount = 128

	// maxWhole is the largest number of entries for which a change copies the whole Map. In a larger
	// Map, a change copies only one of several parts. A small Map has no parts, because a lookup is
	// faster in a single map.
	maxWhole = 512
)

var partSeed = maphash.MakeSeed()

func partOf(key string) uint64 { return maphash.String(partSeed, key) % partCount }

// MapOf returns the Map with the entries of m. The caller must not change m any more.
func MapOf[V any](m map[string]V) Map[V] { return Map[V]{Whole: m} }

// Get returns the value of key, and reports whether there is one.
func (m *Map[V]) Get(key string) (v V, ok bool) {
	if m.parts == nil {
		v, ok = m.Whole[key]
		return v, ok
	}
	return m.getInParts(key)
}

func (m *Map[V]) getInParts(key string) (v V, ok bool) {
	v, ok = m.parts[partOf(key)][key]
	return v, ok
}

// With returns a copy of m in which key has the value v.
func (m Map[V]) With(key string, v V) Map[V] {
	return m.WithAll([]V{v}, func(V) string { return key })
}

// WithAll returns a copy of m with an entry for each value in the slice values. The function keyOf
// returns the key of a value.
func (m Map[V]) WithAll(values []V, keyOf func(V) string) Map[V] {
	if len(values) == 0 {
		return m
	}
	if m.parts == nil && len(m.Whole)+len(values) <= maxWhole {
		whole := make(map[string]V, len(m.Whole)+len(values))
		maps.Copy(whole, m.Whole)
		for _, v := range values {
			whole[keyOf(v)] = v
		}
		return Map[V]{Whole: whole}
	}
	m.split()
	var copied [partCount]bool
	for _, v := range values {
		key := keyOf(v)
		i := partOf(key)
		if !copied[i] {
			part := make(map[string]V, len(m.parts[i])+1)
			maps.Copy(part, m.parts[i])
			m.parts[i], copied[i] = part, true
		}
		m.parts[i][key] = v
	}
	return m
}

// Without returns a copy of m without the entry for key.
func (m Map[V]) Without(key string) Map[V] {
	if m.parts == nil && len(m.Whole) <= maxWhole {
		m.Whole = maps.Clone(m.Whole)
		delete(m.Whole, key)
		return m
	}
	m.split()
	i := partOf(key)
	m.parts[i] = maps.Clone(m.parts[i])
	delete(m.parts[i], key)
	return m
}

// split gives m its own copy of the array of parts, so that m can replace single parts. If m has no
// parts yet, split distributes the entries over new ones.
func (m *Map[V]) split() {
	parts := new([partCount]map[string]V)
	if m.parts != nil {
		*parts = *m.parts
	}
	for key, v := range m.Whole {
		i := partOf(key)
		if parts[i] == nil {
			parts[i] = make(map[string]V)
		}
		parts[i][key] = v
	}
	m.parts, m.Whole = parts, nil
}
