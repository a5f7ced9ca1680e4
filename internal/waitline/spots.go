package waitline

import (
	"iter"
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// Gather makes a Spot (one key that a request takes units from) for each Part whose rule keeps its keys
// in a table in memory; the field Keys of such a Part is not nil. It appends these Spots to the slice
// spots, and returns the extended slice.
func Gather(spots []engine.Spot, parts []engine.Part) []engine.Spot {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil {
			spots = append(spots, engine.Spot{Keys: p.Keys, Question: p.Question})
		}
	}
	return spots
}

// PlaceOf returns the index that the part parts[i] has if the parts in shadow, which cannot deny the
// request, are left out of the list.
func PlaceOf(parts []engine.Part, i int) (place int) {
	for j := range parts[:i] {
		if !parts[j].Shadow {
			place++
		}
	}
	return place
}

// Copy returns a copy of the spots that no longer refers to the Parts from which Gather made them, so
// that the Parts can be used for another request.
func Copy(spots []engine.Spot) []engine.Spot {
	spots = slices.Clone(spots)
	for i := range spots {
		if rate := spots[i].Want.Rate; rate != nil {
			own := *rate
			spots[i].Want.Rate = &own
		}
	}
	return spots
}

// Learn copies the answers from the spots to the parts. The spots must be those that Gather made from
// the same parts.
func Learn(parts []engine.Part, spots []engine.Spot) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil {
			p.Answer, spots = spots[0].Answer, spots[1:]
		}
	}
}

// enforcing yields the elements of spots that can deny a request, numbered from 0. It skips the rules
// in shadow mode, which never deny.
func enforcing(spots []engine.Spot) iter.Seq2[int, *engine.Spot] {
	return func(yield func(int, *engine.Spot) bool) {
		k := 0
		for i := range spots {
			if spots[i].Shadow {
				continue
			}
			if !yield(k, &spots[i]) {
				return
			}
			k++
		}
	}
}

// FreedParts decides again on the callers that wait for a key of the given parts, after units have been
// given back. It passes over parts that never deny or do not keep their keys in memory.
func (ls *Lines) FreedParts(parts []engine.Part) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil && !p.Shadow {
			ls.Freed(Key{p.Keys, p.Hash})
		}
	}
}

// Freed decides again whether the callers that wait for the key k can be served. It is called after
// units have been given back to that key.
func (ls *Lines) Freed(k Key) {
	if ls.Len() > 0 {
		ls.Adjust(nil, k)
	}
}
