package redisstore

import "errors"

// batched returns the calls to send in place of calls. Calls of one plan that have one
// caller each are replaced by a single call, a batch, whose script decides all their keys.
func (c *conn) batched(calls []*call) []*call {
	if !c.oneServer || len(calls) == 1 {
		return calls
	}
	var made []*call
	var b *call
	var of *cachedPlan // the plan of b
	batches := make(map[plan]*call)
	for _, call := range calls {
		j := call.shared
		if j == nil || j.kind == 's' || len(j.costs) > 1 || j.ahead > 0 {
			made = append(made, call)
			continue
		}
		if of != j.cachedPlan { // most have the plan of the call before them
			b, of = batches[j.plan], j.cachedPlan
		}
		if b == nil {
			b = c.newBatch(&j.item, len(calls))
			batches[j.plan] = b
			made = append(made, b)
		}
		b.members = append(b.members, call)
		b.keys = append(b.keys, call.keys[0])
		b.args = append(b.args, j.costs[0])
	}
	for i, b := range made {
		if len(b.members) == 1 {
			made[i] = b.members[0]
		}
	}
	return made
}

// newBatch returns a batch of the plan of u, with room for n calls.
func (c *conn) newBatch(u *item, n int) *call {
	args := oneArgs(make([]any, 0, n+5), c.set.env(), u, nil, 0, 0)
	return &call{script: oneScripts[u.kind], members: make([]*call, 0, n), keys: make([]string, 0, n), args: args}
}

// split hands the reply to the batch b to the calls that it stands for. It returns the
// calls that the script has not decided, because their state needs the general code; each
// of them is to be sent by itself. It returns nil if b is not a batch.
func (b *call) split() (undecided []*call) {
	if len(b.members) == 0 {
		return nil
	}
	items, _ := b.reply.([]any)
	if b.err == nil && len(items) != 1+len(b.members) {
		b.err = newError(ClassOther, errors.New("the script replied something else"))
	}
	for i, call := range b.members {
		call.began, call.ended, call.resets, call.err = b.began, b.ended, b.resets, b.err
		if b.err != nil {
			continue
		}
		now, _ := items[0].(string)
		if state, decided := items[1+i].(string); decided {
			call.reply = fastReply{now, state}
		} else {
			undecided = append(undecided, call)
		}
	}
	return undecided
}
