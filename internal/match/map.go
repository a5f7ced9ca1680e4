package match

import (
	"hash/maphash"
	"maps"
)

// A Map is a map from strings that never changes: With and Without return another one. A
// change of a large Map copies a small part of it. The zero Map is empty.
type Map[V any] struct {
	// Whole has all entries, and must not be changed. If it is nil, each entry is in
	// the one of parts that the hash of its key says.
	Whole map[string]V
	parts *[partCount]map[string]V
}

const (
	partCount = 128

	// maxWhole is the number of entries up to which a change copies them all: to
	// find an entry is faster in one map than in one of several.
	maxWhole = 512
)

var partSeed = maphash.MakeSeed()

func partOf(key string) uint64 { return maphash.String(partSeed, key) % partCount }

// MapOf returns the Map with the entries of m, which must not change any more.
func MapOf[V any](m map[string]V) Map[V] { return Map[V]{Whole: m} }

// Get returns the value of key, and whether there is one.
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

// With returns m with this entry.
func (m Map[V]) With(key string, v V) Map[V] {
	return m.WithAll([]V{v}, func(V) string { return key })
}

// WithAll returns m with an entry for each of values. keyOf returns their keys.
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

// Without returns m without the entry for key.
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

// split makes the parts of m ones that m can replace: it copies them or, if there are none,
// puts the entries into parts.
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
