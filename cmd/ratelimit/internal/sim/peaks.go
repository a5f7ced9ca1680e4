package sim

import (
	"container/heap"
	"time"
)

// The type peaks is a heap of the sums of all keys of a rule. The key with the most units comes first. It implements
// heap.Interface.
//
// Invariant: the units of a sum in the heap are at least the units that its key was granted in the window that ends now.
type peaks struct {
	sums     []*sum
	begun    int           // how many parts of the simulation the method pass has recorded
	duration time.Duration // of the simulation
}

func (p *peaks) Len() int           { return len(p.sums) }
func (p *peaks) Less(i, j int) bool { return p.sums[i].units > p.sums[j].units }
func (p *peaks) Swap(i, j int) {
	p.sums[i], p.sums[j] = p.sums[j], p.sums[i]
	p.sums[i].place, p.sums[j].place = i, j
}

// Push implements heap.Interface.
func (p *peaks) Push(x any) {
	s := x.(*sum)
	s.place = len(p.sums)
	p.sums = append(p.sums, s)
}

// Pop implements heap.Interface. No sum is ever removed.
func (p *peaks) Pop() any { panic("sim: a sum stays in the heap") }

func (p *peaks) add(s *sum) { heap.Push(p, s) }

// The method most returns the largest number of units that a key was granted in a window. The window has the given length, and
// ends at the time in the parameter at. The sums in the heap may be too large, because they were computed for earlier windows. So
// this method corrects the first sum of the heap until the first sum is right. Each correction removes at least one grant from a
// sum, so there are never more corrections than grants.
func (p *peaks) most(at, length time.Duration) int {
	for len(p.sums) > 0 {
		first := p.sums[0]
		was := first.units
		if first.advance(at, length); first.units == was {
			return was
		}
		heap.Fix(p, 0)
	}
	return 0
}

// pass goes through the parts of the simulation up to the given one, and skips those of earlier calls. For each part, it looks at
// the window that ends when the part begins. It records in r.Peaks the most units that one key was granted in this window.
func (r *Rule) pass(part int) {
	for p := &r.peaks; p.begun <= part; p.begun++ {
		begin := time.Duration(p.begun) * p.duration / Bins // no overflow, see the method bin
		r.Peaks[p.begun] = max(r.Peaks[p.begun], p.most(begin, r.Window-1))
	}
}

// end computes the counts that are known only after all requests were sent.
func (out *Outcome) end() {
	for _, r := range out.Rules {
		if !r.holds() && r.Mode.Denies() {
			r.pass(Bins - 1)
		}
	}
}
