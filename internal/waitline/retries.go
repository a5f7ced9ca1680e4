package waitline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Retries holds the callers that wait for keys whose state is in a store or in a custom limiter. It
// cannot be computed here when such a key will have units, so a caller has to ask the store or the
// limiter again. Retries sees to it that few callers ask:
//
//   - The callers that wait for the same set of keys form a line. Only the first of them, its head, asks.
//   - The lines whose heads the store has denied because of the same key stand in the queue of this key,
//     in order of arrival of their heads. Only the head of the first line asks, and only when it is due.
//     If it is denied because of another key, its line goes to the queue of that key.
//   - After a grant, the head of the next line asks at once. After several grants in a row, as many heads
//     may ask at the same time, so that a slow store does not slow down the queue.
//
// Of the waiting callers with the same request ID, only the first is in a line, see [attempts]. When it is
// granted, the others ask at once, and get the recorded answer. The zero Retries is ready for use.
type Retries struct {
	waiting atomic.Int64  // number of callers that wait
	wakes   atomic.Uint64 // number of calls of Wake so far; written only while mu is held

	mu sync.Mutex

	// mu guards the fields below, and all lines, queues and callers that they lead to.

	arrivals uint64 // number of callers that have joined so far
	lines    map[keytable.Hash]*retryLine
	queues   map[keytable.Hash]*retryQueue
	attempts attempts[*Retrier]
}

// A Request describes the request of one caller to [Retries].
type Request struct {
	Set  keytable.Hash   // a hash that identifies the set of keys that the request takes units from
	Keys []keytable.Hash // one hash for each key that can deny; used only by Ahead and Join
	ID   keytable.Hash   // a hash of the ID of the request; zero if it has none
	N    int64           // how many units the request takes from each key, if the field Each is nil
	Each []int64         // how many units the request takes from each of the Keys; nil if the numbers are equal
}

// Add adds a key that can deny, and the number of units that the request takes from it.
func (r *Request) Add(key keytable.Hash, n int64) {
	k := len(r.Keys)
	r.Keys = append(r.Keys, key)
	switch {
	case k == 0:
		r.N = n
	case r.Each == nil && n != r.N:
		r.Each = slices.Repeat([]int64{r.N}, k)
		fallthrough
	case r.Each != nil:
		r.Each = append(r.Each, n)
	}
}

// need returns how many units the request takes from the key with the index k in r.Keys.
func (r *Request) need(k int) int64 {
	if r.Each == nil {
		return r.N
	}
	return r.Each[k]
}

// attempt returns the hash under which the request is held in Retries.attempts. The hash stands for the ID
// and the keys of the request. It is zero for a request without an ID.
func (r *Request) attempt() keytable.Hash {
	if r.ID == (keytable.Hash{}) {
		return r.ID
	}
	return r.ID.With(0, r.Set)
}

// A Denial is the last answer to the head (first caller) of a line of waiting callers.
type Denial struct {
	Due        keytable.Instant // when the head asks again; 0 if the head asks at once, because the denial is out of date
	At         keytable.Instant // when the head was denied
	RetryAfter time.Duration    // the RetryAfter of the denial
	Answer     any              // the denial in the form that the code outside this package needs; not used in this package
	Stands     bool             // whether the head asks again at once; it then waits in [Lines], and stays in [Retries] meanwhile

	Key   keytable.Hash // the hash of the key that lacks the units, one of Request.Keys
	Index int           // index of Key in Request.Keys
	Alone bool          // whether the line gets a queue of its own; it does if no store denied, or if a custom limiter is asked as well

	// Fresh returns a copy of the state that the binding key (the key that must be waited for longest)
	// will have at the instant Due, after the head is served. The field is nil if nothing is known of
	// the state of that key.
	Fresh func() engine.Future
}

// A Retrier is one caller that waits in [Retries].
type Retrier struct {
	Request

	links[*Retrier] // the callers ahead of and after this one in the line
	arrival         uint64
	line            *retryLine    // the line of the caller; nil while another caller with the same request ID waits for both
	answered        bool          // whether another caller with the same request ID was granted; this caller has then left Retries
	wake            chan struct{} // receives a value when the caller has to call Place again
}

// Len returns the number of callers that wait in rs.
func (rs *Retries) Len() int { return int(rs.waiting.Load()) }

// Ahead reports whether the request r, which arrives at the instant now, must wait behind other callers. The request
// must wait if other callers wait for the same set of keys. It must also wait if other callers wait for one of its
// keys, and one of these conditions holds:
//
//   - One of these callers asks the store now.
//   - The first of these callers may ask the store now.
//   - The first of these callers wants more units of the key than r. If r did not wait, the store could deny this
//     caller and then grant r.
//
// If r must wait, Ahead also returns the last denial of these callers, which Join needs, and an estimate of how
// long r must wait.
func (rs *Retries) Ahead(r Request, now keytable.Instant) (d Denial, wait time.Duration, behind bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l, q, lacks := rs.lines[r.Set], (*retryQueue)(nil), 0
	if l != nil {
		q, lacks = l.queue, l.lacks
	}
	for i := 0; i < len(r.Keys) && q == nil; i++ {
		if other := rs.queues[r.Keys[i]]; other != nil && (other.asking > 0 || other.isDue(now) || r.need(i) < other.lines[0].wants()) {
			q, lacks = other, i
		}
	}
	if q == nil {
		return d, 0, false
	}
	at := q.denial.Due
	if _, follows := rs.attempts.leader(r.attempt()); !follows && q.denial.Fresh != nil {
		due, _, _ := q.foretell(l).ahead(0, engine.Wanted{}, at, max(r.need(lacks), 1))
		at = max(at, due)
	}
	switch wait = q.denial.RetryAfter; { // this is the estimate if the first caller may ask the store already
	case at == 0 && !q.denial.Stands: // after a Reset or a change of the rules, the denial is out of date
		wait = time.Millisecond
	case at > now:
		wait = time.Duration(min(at.Since(now), uint64(engine.Never)))
	}
	d = q.denial
	d.Index = lacks
	d.Due, d.Fresh = 0, nil // so that the caller of r asks at once if it is the first when it joins
	return d, wait, true
}

// Wait calls the function in the parameter ask until a call returns no denial. Wait then returns nil. The
// first call is made at once, with newcomer set to true. If this call returns a denial, the caller waits
// in a line for the keys of the request r. Whenever it is the turn of this caller, Wait calls the function
// again. The second result of the function says whether the caller was served. After a caller was served, the
// next caller in line asks at once.
//
// If ctx ends, Wait returns the error of ctx. The function in the parameter changed reports whether the rules
// have changed; if so, Wait returns ErrChanged. While the caller waits, Wait
// checks several times what the caller has to do next. It then calls the function changed in two cases: the caller
// is the first of its line, or another caller with the same request ID was granted.
func (rs *Retries) Wait(
	ctx context.Context, t *engine.Timeline, r Request, changed func() bool, ask func(newcomer bool) (d *Denial, served bool),
) error {
	var a *Retrier
	served := false
	defer func() {
		if a != nil { // the caller leaves its line even if a store, a context or a clock panics
			rs.Leave(a, served)
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if a != nil {
			switch p := rs.turn(ctx, t, a, changed); {
			case p.moves:
				return ErrChanged
			case p.answered: // ask again as a newcomer: a recorded grant of the same request answers a newcomer at once
				a = nil
			case !p.asks:
				continue
			}
		}
		var d *Denial
		wakes := rs.wakes.Load()
		switch d, served = ask(a == nil); {
		case d == nil:
			return nil
		case a == nil:
			a = rs.Join(r, *d, wakes)
		default:
			rs.Denied(a, *d, wakes)
		}
	}
}

// ErrChanged says that the rules have changed. The caller has to start its wait again, by the new
// rules.
var ErrChanged = errors.New("waitline: the rules have changed")

// A retryTurn says what a waiting caller has to do now.
type retryTurn struct {
	head     bool             // whether the caller is the first of its line
	moves    bool             // whether the caller has to start again, by other rules
	answered bool             // whether the same request was granted, and the caller has left Retries
	asks     bool             // whether the caller has to ask now
	due      keytable.Instant // when the caller asks next if nobody wakes it before; 0 if it waits until it is woken
}

// turn returns what the caller a has to do. If it has to do nothing yet, turn first waits until a is due
// or is woken, or until ctx ends.
func (rs *Retries) turn(ctx context.Context, t *engine.Timeline, a *Retrier, changed func() bool) retryTurn {
	now := t.Now()
	p := rs.Place(a, now)
	switch {
	case (p.head || p.answered) && changed():
		p.moves = true
	case p.answered:
	case p.asks:
	case p.due != 0:
		_ = t.Sleep(ctx, now, now.Until(p.due), a.wake)
	default:
		t.Waits(1, nil)
		defer t.Waits(-1, nil)
		select {
		case <-a.wake:
		case <-ctx.Done():
		}
	}
	return p
}

// Place returns what the waiting caller a has to do at the instant now. If p.asks is true, this caller has to
// ask. After it has asked, Denied or Leave must be called.
func (rs *Retries) Place(a *Retrier, now keytable.Instant) (p retryTurn) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := a.line
	if p.answered = a.answered; l == nil || l.first != a {
		return p
	}
	p.head = true
	q := l.queue
	switch first := q.lines[0] == l; {
	case first && q.mayAsk(now):
		q.lines.remove(l)
		q.asking++
		q.wakeFirst()
		p.asks = true
	case first && q.asking == 0:
		p.due = q.denial.Due
	}
	return p
}

// Join adds a new caller with the request r. If no caller waits for the same set of keys yet, Join makes a
// new line. Only then are the other parameters used: denial is the answer that the new caller got, and wakes
// is the number of calls of Wake before this caller asked.
func (rs *Retries) Join(r Request, denial Denial, wakes uint64) *Retrier {
	rs.waiting.Add(1)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.arrivals++
	keys := max(len(r.Keys), 1)
	r.Keys = nil
	a := &Retrier{Request: r, arrival: rs.arrivals, wake: make(chan struct{}, 1)}
	if rs.attempts.add(r.attempt(), a) {
		return a
	}
	l := rs.lines[r.Set]
	if l == nil {
		if rs.lines == nil {
			rs.lines, rs.queues = make(map[keytable.Hash]*retryLine), make(map[keytable.Hash]*retryQueue)
		}
		l = &retryLine{set: r.Set, units: make([]int64, keys)}
		rs.lines[r.Set] = l
		l.join(a)
		rs.stand(l, denial, wakes)
		return a
	}
	l.join(a)
	if l.future.version == l.queue.version && l.future.made {
		l.future.charge(l.queue.denial.Due, a.need(l.lacks))
	}
	return a
}

// Denied is called after the caller a has asked and got the denial d. The parameter wakes is the number of
// calls of Wake that were made before this caller asked.
func (rs *Retries) Denied(a *Retrier, d Denial, wakes uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := a.line
	q := l.queue
	q.asking--
	q.version++
	q.count(l, 0)
	// If neither case below applies, l now waits for another key, and has moved to the queue of that key. The queue q is
	// still due, so the head of its next line asks at once.
	switch rs.stand(l, d, wakes); {
	case l.queue == q:
		q.ready, q.grants = false, 0
	case d.Alone: // l has moved to a queue of its own: the heads that stay in q may all ask at the same time
		q.grants = q.asking + len(q.lines)
	}
	rs.wakeOrForget(q)
}

// Leave removes the caller a, which was waiting or was told to ask the store. The parameter served says whether
// a was served. If so, the next caller asks the store at once, and so do the callers with the same request ID.
func (rs *Retries) Leave(a *Retrier, served bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a.answered {
		return
	}
	rs.waiting.Add(-1)
	l := a.line
	if served {
		rs.release(a)
	} else if next, promoted := rs.attempts.remove(a.attempt(), a); promoted {
		l.insert(next)
	}
	if l == nil {
		return
	}
	q, head, asked := l.queue, l.first == a, l.first == a && l.inQueue == 0
	q.version++
	l.leave(a)
	if !head {
		return
	}
	if asked {
		q.asking--
	}
	if served {
		q.ready = true
		q.grants++
	}
	q.count(l, 0)
	if q.lines.remove(l); l.size == 0 {
		delete(rs.lines, l.set)
	} else {
		q.push(l)
		l.first.nudge()
	}
	q.ready = q.ready || len(q.lines) > 0 && q.lines[0].wants() < q.denied // a head that wants fewer units than were denied asks at once
	rs.wakeOrForget(q)
}

// release is called when the caller a was granted. It removes the callers that wait for the answer to a.
// These callers ask at once, as newcomers do, and get the recorded answer.
func (rs *Retries) release(a *Retrier) {
	for _, f := range rs.attempts.followers(a.attempt()) {
		f.answered = true
		rs.waiting.Add(-1)
		f.nudge()
	}
	delete(rs.attempts, a.attempt())
}

// Wake is called when the last answers of the store are out of date. It wakes the first caller of each
// line, and the first caller of each queue then asks at once.
func (rs *Retries) Wake() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.wakes.Add(1)
	for _, q := range rs.queues {
		q.outdate()
	}
	for _, l := range rs.lines {
		l.first.nudge()
	}
}

// nudge wakes the goroutine of the caller, which then calls Place.
func (a *Retrier) nudge() {
	select {
	case a.wake <- struct{}{}:
	default: // the channel still holds an earlier wake-up, which is enough
	}
}
