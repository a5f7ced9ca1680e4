package waitline

// A heap is a binary heap. Each item knows its index, so that any item can be removed.
type heap[T item[T]] []T

// An item is what a heap is made of.
type item[T any] interface {
	// before reports whether the item comes out of the heap before other.
	before(other T) bool

	// index points to where the item keeps its index plus one; 0 if it is in no heap.
	index() *int
}

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	*x.index() = len(*h)
	h.up(len(*h) - 1)
}

// remove takes x out of the heap, if it is there.
func (h *heap[T]) remove(x T) {
	i := *x.index() - 1
	if i < 0 {
		return
	}
	last := len(*h) - 1
	h.swap(i, last)
	var zero T
	(*h)[last] = zero
	*h = (*h)[:last]
	*x.index() = 0
	if i < last {
		h.fix((*h)[i])
	}
}

// fix moves x, whose place in the order has changed, to its new place.
func (h *heap[T]) fix(x T) {
	i := *x.index() - 1
	h.up(i)
	if *x.index()-1 == i {
		h.down(i)
	}
}

func (h *heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !(*h)[i].before((*h)[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(*h) {
			return
		}
		if child+1 < len(*h) && (*h)[child+1].before((*h)[child]) {
			child++
		}
		if !(*h)[child].before((*h)[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

func (h *heap[T]) swap(i, j int) {
	a := *h
	a[i], a[j] = a[j], a[i]
	*a[i].index(), *a[j].index() = i+1, j+1
}
