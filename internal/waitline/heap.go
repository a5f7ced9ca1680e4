package waitline

// A heap is a binary heap whose first item is at index 0. Each item stores its own position, so that
// any item can be removed.
type heap[T item[T]] []T

// An item is an element of a heap.
type item[T any] interface {
	// before reports whether the item comes out of the heap before the given item.
	before(other T) bool

	// index returns a pointer to the item's field for its position in the heap. The field holds the
	// position plus one, or 0 if the item is in no heap.
	index() *int
}

// push adds the item x.
func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	*x.index() = len(*h)
	h.up(len(*h) - 1)
}

// remove takes the item x out of the heap, or does nothing if x is not in it.
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

// fix moves the item x to its right position in the heap. It is called after a change of the value by
// which x is ordered.
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
