// Package topk finds the names that come most often, in bounded memory.
//
// It implements Space-Saving, an algorithm by Metwally, Agrawal and El Abbadi: there is a fixed number of
// counters, and a new name takes over the counter with the smallest count.
package topk

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// maxName is the largest length of a name in bytes. A longer name is replaced by its beginning and a hash.
const maxName = 200

// A Counter counts names. It has a fixed number of counters. When all are in use, a new name takes over the counter
// with the smallest count and continues from this count, so a count may be too high. Each [Item] says by how much.
type Counter struct {
	size  int
	heap  []*entry // a heap of all counters, with the smallest count first
	of    map[string]*entry
	total uint64
}

type entry struct {
	Item
	at int // index of this entry in the field Counter.heap
}

// An Item is a name and its count. The name was counted at most Count times, and at least Count - Error times.
type Item struct {
	Name         string // name that was counted
	Count, Error uint64 // Count is the largest possible count; it is too high by at most Error
}

// New returns a Counter that counts at most size names at a time. The size must be at least 1.
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

// Top returns the n names with the highest counts, highest first. Names with equal counts are in alphabetical
// order.
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

// Total returns the sum of the counts of all names.
func (c *Counter) Total() uint64 { return c.total }

// Missed returns the largest count that a name without a counter can have.
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
		smallest := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(c.heap) && c.heap[child].Count < c.heap[smallest].Count {
				smallest = child
			}
		}
		if smallest == i {
			return
		}
		c.swap(i, smallest)
		i = smallest
	}
}
