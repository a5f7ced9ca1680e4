package redisstore

import "errors"

// batched combines calls and returns the calls to send. A batch is one call that replaces several calls with
// the same plan (rate and algorithm), and whose script decides the keys of all these calls. A call is sent as
// it is, and not in a batch, in each of these cases: several callers wait for it; it is for a sliding window
// log; it also takes units for later requests; it has a Penalty; it does not decide a request for a single key.
func (c *conn) batched(calls []*call) []*call {
	if !c.oneServer || len(calls) == 1 {
		return calls
	}
	var made []*call
	var batch *call
	var last *cachedPlan // the plan of the call that was last put into a batch
	batches := make(map[plan]*call)
	for _, call := range calls {
		shared := call.shared
		if shared == nil || shared.kind == 's' || len(shared.costs) > 1 || shared.ahead > 0 || penalized(shared.ask) {
			made = append(made, call)
			continue
		}
		if last != shared.cachedPlan { // false for most calls: they have the plan of the call before them
			batch, last = batches[shared.plan], shared.cachedPlan
		}
		if batch == nil {
			batch = c.newBatch(&shared.item, len(calls))
			batches[shared.plan] = batch
			made = append(made, batch)
		}
		batch.members = append(batch.members, call)
		batch.keys = append(batch.keys, call.keys[0])
		batch.args = append(batch.args, shared.costs[0])
	}
	for i, call := range made {
		if len(call.members) == 1 {
			made[i] = call.members[0]
		}
	}
	return made
}

// newBatch returns an empty batch, a call that replaces others, with room for n calls. All these calls must
// have the same plan (rate and algorithm) as the given item.
func (c *conn) newBatch(it *item, n int) *call {
	args := oneArgs(make([]any, 0, n+5), c.set.env(), it, nil, 0, 0)
	return &call{script: oneScripts[it.kind], members: make([]*call, 0, n), keys: make([]string, 0, n), args: args}
}

// split distributes the reply of the batch b to the calls that b replaces. The script of a batch has only
// short code for the usual states. If the state of a key has a rare form, the script leaves the call for
// this key undecided. split returns the undecided calls, and each of them must then be sent in a command
// of its own. It returns nil if b is not a batch.
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
