package engine

import "github.com/ratelimit-go/ratelimit/internal/exact"

// A layer is a part of the debt of one key of a bucket. The layers of a key form a stack. Each receipt (a
// charge that can be given back) names one of the layers.
//
// The stack answers one question: how much can be given back for a receipt? At most the lowest debt that
// the key has had since the charge of this receipt. The layers are made so that this lowest debt is the
// sum of the receipt's layer and of all layers below it. So newer receipts name higher layers, and
// receipts with the same lowest debt name the same layer.
//
// Example: a key owes 5 tokens after the charge of receipt A, and 8 after the charge of receipt B. Then A
// names a layer of 5, and B names a layer of 3 above it. When 4 tokens have drained, one layer of 4 is left,
// and both receipts name it: for each of them, at most 4 tokens can be given back.
//
// Two things remove debt. Debt that drains is taken from the top layer first, and then from the layers
// below. Debt that is given back for a receipt is taken from the receipt's layer first, and then from the
// layers below. A layer without debt is merged with the layer below it; only the bottom layer may be
// without debt.
//
// When two layers are merged, one of them leaves the stack and points to the other one, so that the
// receipts that name it need not change. The layer with the higher rank stays, as in a union-find
// structure: after n mergers, a receipt finds its layer in at most about log2(n) steps.
type layer struct {
	size   exact.Level
	below  uint32 // index of the layer below, or 0 at the bottom; after a merger: index of the layer into which this one was merged
	above  uint32 // index of the layer above, or 0 at the top; unused after a merger
	refs   uint32 // how many receipts, and layers outside the stack, point to this layer
	rank   uint8  // an upper bound for the number of steps from a receipt to this layer
	merged bool   // whether this layer is outside the stack, because it was merged into another one
}

// layers holds the layers (parts of the debt) of all keys of one rule. The layers of one key form a
// stack. The chain of the key (the list of its receipts) has the index of the top layer.
type layers struct {
	all  []layer // index 0 is not used, because 0 stands for none
	free uint32  // index of the first unused layer, whose field below is the index of the next unused layer
}

// push adds a layer for a new receipt to the stack of the chain c (the receipts of a key), and
// returns its index. After the charge of this receipt, the key owes the given debt.
func (l *layers) push(c *chain, debt exact.Level) uint32 {
	i := reuse(&l.all, &l.free, func(e *layer) uint32 { return e.below })
	l.all[i] = layer{size: c.arithmetic().Minus(debt, c.debt), below: c.top, refs: 1}
	if c.top != 0 {
		l.all[c.top].above = i
	}
	c.top, c.debt = i, debt
	return i
}

// lower records that the key of the chain c (the receipts of a key) owes the given debt at present.
// If this debt is less than the sum of the key's layers, lower takes the difference from the layers,
// beginning at the top.
func (l *layers) lower(c *chain, debt exact.Level) {
	if b := c.arithmetic(); c.top != 0 && lesser(debt, c.debt) != c.debt {
		l.empty(c, c.top, b.Minus(c.debt, debt))
		c.debt = debt
	}
}

// take gives back debt for a receipt that names the layer i. It gives back the amount in the parameter named
// most, or less if less is left in that layer and in the layers below it. It returns how much it gives back.
// The chain c has the receipts of the key.
func (l *layers) take(c *chain, i uint32, most exact.Level) exact.Level {
	back := l.empty(c, l.find(i), most)
	c.debt = c.arithmetic().Minus(c.debt, back)
	return back
}

// find returns the index of the layer in the stack into which the layer i was merged, or i if it is
// in the stack itself.
func (l *layers) find(i uint32) uint32 {
	for l.all[i].merged {
		i = l.all[i].below
	}
	return i
}

// empty removes the given amount from the layer i of the chain c (the receipts of a key) and then from
// the layers below it. It returns how much it has removed: the amount, or less if these layers
// together have less.
func (l *layers) empty(c *chain, i uint32, amount exact.Level) exact.Level {
	b, rest := c.arithmetic(), amount
	for {
		e := &l.all[i]
		if lesser(rest, e.size) != e.size {
			e.size = b.Minus(e.size, rest)
			return amount
		}
		rest = b.Minus(rest, e.size)
		e.size = exact.Level{}
		if e.below == 0 {
			return b.Minus(amount, rest)
		}
		i = l.merge(c, i)
	}
}

// merge merges the layer i of the chain c (the receipts of a key), whose size is 0, with the layer below
// it. The merged layer has the size of the lower one. merge returns the index of the layer that stays in
// the stack.
func (l *layers) merge(c *chain, i uint32) uint32 {
	stays, goes := l.all[i].below, i
	upper, lower := &l.all[i], &l.all[stays]
	if lower.rank == upper.rank {
		lower.rank++
	}
	above, below, size := upper.above, lower.below, lower.size
	if lower.rank < upper.rank {
		stays, goes = goes, stays
	}
	e := &l.all[stays]
	e.size, e.below, e.above = size, below, above
	e.refs++
	l.all[goes].below, l.all[goes].merged = stays, true
	l.connect(c, below, stays)
	l.connect(c, stays, above)
	return stays
}

// connect makes two layers of the chain c (the receipts of a key) neighbours. The index 0 stands for no
// layer: then the other layer is the top or the bottom of the stack.
func (l *layers) connect(c *chain, lower, upper uint32) {
	if lower != 0 {
		l.all[lower].above = upper
	}
	if upper != 0 {
		l.all[upper].below = lower
	} else {
		c.top = lower
	}
}

// leave is called when a receipt that names the layer i ends. The chain c has the receipts of the key.
// If no other receipt uses this layer, it is removed from the stack, and its part of the debt is added
// to the layer above. If there is no layer above, this part belongs to no receipt any more. If the layer
// was merged into another layer before, leave does the same for that other layer.
func (l *layers) leave(c *chain, i uint32) {
	for {
		e := &l.all[i]
		if e.refs--; e.refs > 0 {
			return
		}
		next := uint32(0)
		switch b := c.arithmetic(); {
		case e.merged:
			next = e.below
		case e.above != 0:
			l.all[e.above].size = b.Plus(l.all[e.above].size, e.size)
			l.connect(c, e.below, e.above)
		default:
			c.debt = b.Minus(c.debt, e.size)
			l.connect(c, e.below, 0)
		}
		*e = layer{below: l.free}
		l.free = i
		if i = next; i == 0 {
			return
		}
	}
}

// rescale converts the layers of the chain c (the receipts of a key) from the old bucket (from) to the new
// bucket (to). The two buckets divide a token into different numbers of parts. The lowest debt since the
// charge of each receipt is rounded down.
func (l *layers) rescale(c *chain, to, from *exact.Bucket) {
	bottom := c.top
	for bottom != 0 && l.all[bottom].below != 0 {
		bottom = l.all[bottom].below
	}
	var sum exact.Level
	c.unit, c.debt = to.Unit, exact.Level{}
	for i := bottom; i != 0; i = l.all[i].above {
		sum = from.Plus(sum, l.all[i].size)
		debt := to.RescaledDown(sum, from)
		l.all[i].size = to.Minus(debt, c.debt)
		c.debt = debt
	}
}
