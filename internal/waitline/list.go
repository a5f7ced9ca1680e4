package waitline

// A list is a doubly linked list. Each of its values, such as a waiting caller, stores its own links.
type list[T listed[T]] struct {
	first, last T // nil if the list is empty
	size        int
}

// links holds the neighbours of a value in its list: the value before it (ahead) and the value after
// it. A neighbour that does not exist is nil.
type links[T any] struct{ ahead, after T }

// listed is the constraint for the values of a list: each value stores its own links.
type listed[T any] interface {
	comparable
	neighbours() *links[T]
}

func (l *links[T]) neighbours() *links[T] { return l }

// append puts the value x at the end of the list.
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

// insert puts the value x into the list, directly after the value ahead, which must be in the list.
func (l *list[T]) insert(x, ahead T) {
	if l.last == ahead {
		l.append(x)
		return
	}
	after := ahead.neighbours().after
	*x.neighbours() = links[T]{ahead: ahead, after: after}
	ahead.neighbours().after, after.neighbours().ahead = x, x
	l.size++
}

// remove takes the value x, which must be in the list, out of it.
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
