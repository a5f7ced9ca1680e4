package httplimit

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/ratefield"
)

// maxHolds is the largest number of holds that a Transport keeps. A hold is a time during which the
// Transport sends no requests to a server. When there are too many, the hold that ends first is dropped.
const maxHolds = 1024

// holds contains a hold for each server to which no requests may be sent for a time, because the server has
// asked for that. The zero holds is ready for use.
type holds struct {
	mu sync.Mutex

	// These fields are guarded by mu. hosts and byEnd contain the same holds, at most maxHolds.

	hosts    map[string]*hold
	byEnd    endHeap
	watchers map[string]map[*watcher]struct{} // the requests that wait for the Limiter, by host; no empty maps
	queues   map[string]map[*queued]struct{}  // the requests that wait for the end of a hold, by host; no empty maps
}

// A queued is a request that waits for the end of a hold.
type queued struct {
	number uint64  // the number of the request, counted from 1 in the order in which the requests came
	part   float64 // after the hold: from 0 (this request is sent at once) to 1 (it is sent last); -1 during the hold
}

// A watcher is a request that waits for the Limiter. When a hold of the request's host begins, the function
// stop is called, which ends the wait.
type watcher struct{ stop func() }

// A hold is a time during which a Transport sends no requests to a server, because the server has asked for
// that.
type hold struct {
	host   string // the origin of the server, such as "https://api.example.com:443"
	ends   keytable.Instant
	length time.Duration // the time from the response that started the hold to its end
	index  int           // the position of the hold in holds.byEnd
}

// find returns when the hold of the given host ends, and how long the hold lasts in all. During a hold, no
// requests are sent to the host. If the host has no hold, both results are 0.
func (h *holds) find(host string) (ends keytable.Instant, length time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.hosts[host]; at != nil {
		return at.ends, at.length
	}
	return 0, 0
}

// watch stores the function stop, which is called when a hold of host begins (a time without requests to
// host). The caller calls leave to remove stop again. If host already has a hold, watch stores nothing: the
// result held is true, and leave is nil.
func (h *holds) watch(host string, now keytable.Instant, stop func()) (leave func(), held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.hosts[host]; at != nil && at.ends > now {
		return nil, true
	}
	if h.watchers == nil {
		h.watchers = make(map[string]map[*watcher]struct{})
	}
	if h.watchers[host] == nil {
		h.watchers[host] = make(map[*watcher]struct{})
	}
	w := &watcher{stop}
	h.watchers[host][w] = struct{}{}
	return func() { h.leave(host, w) }, false
}

// join records that the request with the given number waits until the hold of host ends, and requests
// may be sent to host again.
func (h *holds) join(host string, number uint64) *queued {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &queued{number: number, part: -1}
	if h.queues == nil {
		h.queues = make(map[string]map[*queued]struct{})
	}
	if h.queues[host] == nil {
		h.queues[host] = make(map[*queued]struct{})
	}
	h.queues[host][p] = struct{}{}
	return p
}

// quit removes p from the requests that wait for the end of the hold of host, and returns p.part, which says when p is
// sent. If the hold has ended at the instant now, quit removes all of these requests. It then also sets the part of
// each request to a random number, which is larger for a request that came later.
func (h *holds) quit(host string, p *queued, now keytable.Instant) (part float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting := h.queues[host]
	if _, waits := waiting[p]; !waits {
		return p.part
	}
	if at := h.hosts[host]; at == nil || at.ends <= now {
		order := slices.SortedFunc(maps.Keys(waiting), func(a, b *queued) int { return cmp.Compare(a.number, b.number) })
		for i, each := range order {
			each.part = (float64(i) + rand.Float64()) / float64(len(order))
		}
		clear(waiting)
	}
	if delete(waiting, p); len(waiting) == 0 {
		delete(h.queues, host)
	}
	return p.part
}

// leave removes w, so that the function w.stop is no longer called.
func (h *holds) leave(host string, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers[host], w)
	if len(h.watchers[host]) == 0 {
		delete(h.watchers, host)
	}
}

// set starts a hold: from now on, no requests are sent to host for the given length. An earlier hold of
// host is never shortened. If there are already maxHolds, set drops the hold with the earliest end, which
// may be the new one.
func (h *holds) set(host string, now keytable.Instant, length time.Duration) {
	ends := now.Add(length)
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.hosts[host]
	switch {
	case at != nil && at.ends >= ends:
	case at != nil:
		at.ends, at.length = ends, length
		heap.Fix(&h.byEnd, at.index)
	case len(h.byEnd) < maxHolds:
		if h.hosts == nil {
			h.hosts = make(map[string]*hold)
		}
		at = &hold{host: host, ends: ends, length: length}
		h.hosts[host] = at
		heap.Push(&h.byEnd, at)
	case h.byEnd[0].ends < ends:
		at = h.byEnd[0]
		delete(h.hosts, at.host)
		h.hosts[host] = at
		at.host, at.ends, at.length = host, ends, length
		heap.Fix(&h.byEnd, 0)
	default:
		return
	}
	for w := range h.watchers[host] {
		w.stop()
	}
}

// forget drops all holds, so that requests may be sent to all servers again.
func (h *holds) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts, h.byEnd = nil, nil
}

// An endHeap is a heap of holds. The hold with the earliest end comes first.
type endHeap []*hold

func (e *endHeap) Len() int           { return len(*e) }
func (e *endHeap) Less(i, j int) bool { return (*e)[i].ends < (*e)[j].ends }

func (e *endHeap) Swap(i, j int) {
	(*e)[i], (*e)[j] = (*e)[j], (*e)[i]
	(*e)[i].index, (*e)[j].index = i, j
}

// Push appends x, for [heap.Push].
func (e *endHeap) Push(x any) {
	at := x.(*hold)
	at.index = len(*e)
	*e = append(*e, at)
}

// Pop panics. The interface [heap.Interface] needs it, but nothing calls it: a hold stays in the heap until
// another hold replaces it.
func (e *endHeap) Pop() any { panic("httplimit: no hold is popped") }

// deniedHold is how long no requests are sent to a server after its response with the status 429, if that
// response has no Retry-After.
const deniedHold = time.Second

// heldBy returns how long the response res asks clients to wait, or 0 if res does not ask for a wait.
func (t *Transport) heldBy(res *http.Response) time.Duration {
	if age, ok := count(res.Header.Get("Age")); ok && age > 0 || res.StatusCode == http.StatusNotModified {
		return 0
	}
	denied := res.StatusCode == http.StatusTooManyRequests
	if denied || res.StatusCode == http.StatusServiceUnavailable {
		if d, ok := t.retryAfter(res.Header); ok {
			return d
		}
	}
	left, _ := ratefield.Exhausted(res.Header[fieldRateLimit], maxSeconds)
	d := max(time.Duration(left)*time.Second, t.resetIn(res.Header))
	if denied {
		d = max(d, deniedHold)
	}
	return d
}

// retryAfter returns the time in the field Retry-After. ok is false if the field is missing or invalid. If
// the field has several lines, only the first is read.
func (t *Transport) retryAfter(h http.Header) (d time.Duration, ok bool) {
	text := h.Get("Retry-After")
	if n, digits := count(text); digits {
		return time.Duration(n) * time.Second, n <= maxSeconds
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	d = at.Sub(t.dateOf(h))
	return d, d >= 0 && d < math.MaxInt64
}

// resetIn returns the time until X-RateLimit-Reset if X-RateLimit-Remaining is 0, and otherwise 0.
func (t *Transport) resetIn(h http.Header) time.Duration {
	const since1970 = 1_000_000_000 // a larger X-RateLimit-Reset is a Unix time, a smaller one a number of seconds from now
	left, ok := count(h.Get(fieldRemaining))
	if !ok || left > 0 {
		return 0
	}
	reset, ok := count(h.Get(fieldReset))
	switch {
	case !ok || reset > maxSeconds:
		return 0
	case reset > since1970:
		return time.Unix(reset, 0).Sub(t.dateOf(h))
	}
	return time.Duration(reset) * time.Second
}

// dateOf returns the Date in the header of a response. If the Date is missing or invalid, dateOf returns the
// time of the Transport's clock.
func (t *Transport) dateOf(h http.Header) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	if t.Clock != nil {
		return t.Clock.Now()
	}
	return time.Now()
}

// maxSeconds is the longest time.Duration in whole seconds. Header fields with longer times are ignored.
const maxSeconds = math.MaxInt64 / int64(time.Second)

// count returns the decimal number in text, or math.MaxInt64 if the number is larger. ok is false if text
// is empty or contains anything but digits.
func count(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil || n == math.MaxInt64
}
