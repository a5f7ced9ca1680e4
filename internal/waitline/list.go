package waitline

// A list is a doubly linked list of callers.
type list[T listed[T]] struct {
	first, last T // nil if there is none
	size        int
}

// Links are the neighbours of a caller in its list, or nil at the ends.
type links[T any] struct{ ahead, after T }

// A listed is what a list is made of.
type listed[T any] interface {
	comparable
	neighbours() *links[T]
}

func (l *links[T]) neighbours() *links[T] { return l }

// append puts x at the end of l.
func (l *list[T]) append(x T) {
	var none T
	*x.neighbours() = links[T]{ahead: l.last}
	if l.last != none {
		l.last.neighbours().after = x
	} else {
		l.first = x
	}
	l.last = x
	l.size++
}

// remove takes x out of l.
func (l *list[T]) remove(x T) {
	var none T
	at := x.neighbours()
	if at.after != none {
		at.after.neighbours().ahead = at.ahead
	} else {
		l.last = at.ahead
	}
	if at.ahead != none {
		at.ahead.neighbours().after = at.after
	} else {
		l.first = at.after
	}
	*at = links[T]{}
	l.size--
}
