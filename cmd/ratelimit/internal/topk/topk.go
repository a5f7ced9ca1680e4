// Package topk finds the names that come most often, in bounded memory.
//
// It is the algorithm Space-Saving of Metwally, Agrawal and El Abbadi: a fixed number of counters,
// of which the smallest is given to each name that has none.
package topk

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// maxName is the length of the longest name that is kept as it is, in bytes. Of a longer one, the
// beginning and a hash are kept.
const maxName = 200

// A Counter counts names. It has a fixed number of counters, so its counts may be too high, by a
// bound that each of them states.
type Counter struct {
	size  int
	heap  []*entry // the smallest count first
	of    map[string]*entry
	total uint64
}

type entry struct {
	Item
	at int // the place in the heap
}

// An Item is a name and how often it came: at most Count times, and at least Count - Error times.
type Item struct {
	Name         string // what was counted
	Count, Error uint64 // the most, and by how much that may be too high
}

// New returns a Counter with this number of counters, which is at least 1.
func New(size int) *Counter { return &Counter{size: size, of: make(map[string]*entry)} }

// Add counts a name n times.
func (c *Counter) Add(name string, n uint64) {
	c.total += n
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = name[:maxName-40] + "...#" + hex.EncodeToString(sum[:16])
	}
	e := c.of[name]
	switch {
	case e != nil:
	case len(c.heap) < c.size:
		e = &entry{Item{Name: strings.Clone(name)}, len(c.heap)}
		c.heap = append(c.heap, e)
		c.of[e.Name] = e
		c.up(e.at)
	default:
		e = c.heap[0]
		delete(c.of, e.Name)
		e.Name, e.Error = strings.Clone(name), e.Count
		c.of[e.Name] = e
	}
	e.Count += n
	c.down(e.at)
}

// Top returns the n names with the highest counts, highest first, names of equal counts in order.
func (c *Counter) Top(n int) []Item {
	items := make([]Item, len(c.heap))
	for i, e := range c.heap {
		items[i] = e.Item
	}
	slices.SortFunc(items, func(a, b Item) int {
		if a.Count != b.Count {
			if a.Count > b.Count {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return items[:min(n, len(items))]
}

// Total returns how much was counted, of all names.
func (c *Counter) Total() uint64 { return c.total }

// Missed returns the most often that a name can have come that has no counter now.
func (c *Counter) Missed() uint64 {
	if len(c.heap) < c.size {
		return 0
	}
	return c.heap[0].Count
}

func (c *Counter) swap(i, j int) {
	c.heap[i], c.heap[j] = c.heap[j], c.heap[i]
	c.heap[i].at, c.heap[j].at = i, j
}

func (c *Counter) up(i int) {
	for i > 0 && c.heap[i].Count < c.heap[(i-1)/2].Count {
		c.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (c *Counter) down(i int) {
	for {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(c.heap) && c.heap[child].Count < c.heap[least].Count {
				least = child
			}
		}
		if least == i {
			return
		}
		c.swap(i, least)
		i = least
	}
}
