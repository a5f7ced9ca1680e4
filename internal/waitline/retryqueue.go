package waitline

import (
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A retryLine holds the callers that wait for the same set of keys, in order of arrival. The first of
// them is its head. The line is in the queue of one key, except while its head asks.
type retryLine struct {
	list[*Retrier]
	set     keytable.Hash // hash that identifies the set of keys
	lacks   int           // index of the key that lacks the units, among the keys of a request
	units   []int64       // for each key, the sum of the units that the callers in the line wait for
	queue   *retryQueue   // the queue in which the line stands
	inQueue int           // index of the line in the heap queue.lines, plus one; 0 while the head of the line asks
	counted int64         // how many units of the head are included in queue.units
	future  retryFuture   // tells when a newcomer that joins the line will be served
}

// wants returns how many units the head of the line wants of the key that lacks them.
func (l *retryLine) wants() int64 { return l.first.need(l.lacks) }

func (l *retryLine) before(other *retryLine) bool { return l.first.arrival < other.first.arrival }
func (l *retryLine) index() *int                  { return &l.inQueue }

// A retryQueue holds the lines whose heads (first callers) wait for the same key.
type retryQueue struct {
	key    keytable.Hash
	lines  heap[*retryLine] // the lines whose heads do not ask the store now
	asking int              // number of lines whose heads ask the store now
	units  int64            // how many units of the key the heads of the lines want together, including the heads that ask the store now

	denial Denial // the last denial of the first line
	denied int64  // how many units the head of the first line asked for when it got that denial
	ready  bool   // whether the first head asks at once, before denial.Due, because another head was served or has left
	grants int    // how many heads were served since the last denial; as many may ask at the same time

	version uint64      // how often the queue has changed in a way that makes all forecasts wrong
	future  retryFuture // tells when a newcomer that joins none of the lines in the queue will be served
}

// A retryFuture is a forecast for a newcomer. It holds a copy of the state that the key of a queue will have
// once all callers ahead of the newcomer are served. The copy is valid as long as the field version of the
// retryFuture equals the field version of the queue.
type retryFuture struct {
	copies
	version uint64
}

// anyKey is passed to the methods of copies, which want one Spot for each key of a request. A retryFuture
// has a copy for only one key, so anyKey has one element. This element is the zero Spot, which names no rate:
// the rate in the copied state is used.
var anyKey = make([]engine.Spot, 1)

// charge takes the n units of a waiting caller from the copy. It takes them at the earliest instant at which
// the copy has these units, but not before the instant in the parameter "from".
func (f *retryFuture) charge(from keytable.Instant, n int64) {
	amounts := []int64{n}
	if at := f.ready(anyKey, from, amounts); at != keytable.End {
		f.add(anyKey, at, amounts)
	}
}

// foretell forecasts for a newcomer: it returns a copy of the state that the key of the queue q will
// have once all callers ahead of the newcomer are served. Ahead of the newcomer are the first caller of
// each line and, if the newcomer joins the line l, all callers in l. If the newcomer joins none of the
// lines, l is nil. The field q.denial.Fresh must not be nil.
func (q *retryQueue) foretell(l *retryLine) *retryFuture {
	f, callers, units := &q.future, len(q.lines)+q.asking, q.units
	if l != nil {
		f, callers, units = &l.future, callers+l.size-1, units+l.units[l.lacks]-l.counted
	}
	if !q.ready {
		units -= q.denied // the copy that Fresh returns already includes a charge for the head that was denied
	}
	if !f.made || f.version != q.version {
		*f = retryFuture{copies{made: true, keys: []engine.Future{q.denial.Fresh()}}, q.version}
		f.sum(anyKey, q.denial.Due, callers, []int64{units})
	}
	return f
}

// isDue reports whether the head of the first line has waited long enough to ask at the instant now. It
// does not check whether too many other heads ask already.
func (q *retryQueue) isDue(now keytable.Instant) bool {
	return q.ready || q.denial.Stands || q.denial.Due <= now
}

// mayAsk reports whether the head of the first line of the queue may ask at the instant now.
func (q *retryQueue) mayAsk(now keytable.Instant) bool {
	return q.asking < max(q.grants, 1) && q.isDue(now)
}

// wakeFirst wakes the head of the first line, if fewer heads of the queue ask the store now than may ask
// at the same time.
func (q *retryQueue) wakeFirst() {
	if len(q.lines) > 0 && q.asking < max(q.grants, 1) {
		q.lines[0].first.nudge()
	}
}

// wakeOrForget forgets the queue q if it has no lines and no head asks the store now. Otherwise it calls
// wakeFirst.
func (rs *Retries) wakeOrForget(q *retryQueue) {
	if len(q.lines) == 0 && q.asking == 0 {
		delete(rs.queues, q.key)
	}
	q.wakeFirst()
}

// count sets to n how many units of the head of the line l are included in q.units.
func (q *retryQueue) count(l *retryLine, n int64) {
	q.units += n - l.counted
	l.counted = n
}

// push puts the line l into the queue.
func (q *retryQueue) push(l *retryLine) {
	l.queue = q
	q.count(l, l.wants())
	q.lines.push(l)
	q.version++
}

// stand puts the line l, whose head has got the denial d, into the queue of the key that lacks the
// units. The parameter wakes is the number of calls of Wake before the head asked. If Wake was called
// since then, d counts as out of date.
func (rs *Retries) stand(l *retryLine, d Denial, wakes uint64) {
	key := d.Key
	l.lacks = d.Index
	if d.Alone {
		key = l.set.With(0, l.set) // no other line has this key, so l gets a queue of its own
	}
	q := rs.queues[key]
	if q == nil {
		q = &retryQueue{key: key}
		rs.queues[key] = q
	}
	q.push(l)
	// Keep q.denial in two cases: l is not the first line, or another head asks the store now and d is only a
	// copy of q.denial that Ahead has made. (The field Due of such a copy is 0.)
	if q.lines[0] != l || d.Due == 0 && q.asking > 0 {
		return
	}
	q.denial, q.denied, q.ready = d, l.wants(), false
	if rs.wakes.Load() != wakes {
		q.outdate()
	}
}

// outdate marks the denial of the queue as out of date, so that the head of the first line asks at once.
func (q *retryQueue) outdate() {
	q.denial.Due, q.denial.Fresh = 0, nil
	q.version++
}

// join puts the caller a at the end of the line.
func (l *retryLine) join(a *Retrier) {
	l.append(a)
	l.count(a, 1)
	a.line = l
}

// count adds the units of the caller a to the sums in the field units of the line. If the parameter sign is
// -1, it subtracts them.
func (l *retryLine) count(a *Retrier, sign int64) {
	for k := range l.units {
		l.units[k] += sign * a.need(k)
	}
}

// insert puts the caller a into the line, in order of arrival. The first caller of l has arrived before
// a.
func (l *retryLine) insert(a *Retrier) {
	ahead := l.last
	for ahead.arrival > a.arrival {
		ahead = ahead.ahead
	}
	l.list.insert(a, ahead)
	l.count(a, 1)
	a.line = l
}

// leave takes the caller a out of the line.
func (l *retryLine) leave(a *Retrier) {
	l.remove(a)
	l.count(a, -1)
}
