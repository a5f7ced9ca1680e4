package httplimit

import (
	"container/heap"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/ratefield"
)

// maxHolds is how many servers a Transport remembers holds of.
const maxHolds = 1024

// holds are the servers that have asked clients to wait. The zero holds is ready for use.
type holds struct {
	mu sync.Mutex

	// The fields below are guarded by mu, and have the same holds, at most maxHolds.

	hosts map[string]*hold
	byEnd endHeap
}

// A hold is how long a server has asked clients to wait.
type hold struct {
	host   string
	ends   keytable.Instant
	length time.Duration // from the response to ends
	index  int           // in byEnd
}

// of returns the hold of host. One that there is not ends in the past.
func (h *holds) of(host string) (ends keytable.Instant, length time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.hosts[host]; at != nil {
		return at.ends, at.length
	}
	return 0, 0
}

// set holds host for length from now on, unless it is held for longer. If there are too many
// holds, that with the earliest end leaves, which may be this one.
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
	}
}

// forget drops all holds.
func (h *holds) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hosts, h.byEnd = nil, nil
}

// An endHeap is a heap of holds, that with the earliest end first.
type endHeap []*hold

func (e *endHeap) Len() int           { return len(*e) }
func (e *endHeap) Less(i, j int) bool { return (*e)[i].ends < (*e)[j].ends }

func (e *endHeap) Swap(i, j int) {
	(*e)[i], (*e)[j] = (*e)[j], (*e)[i]
	(*e)[i].index, (*e)[j].index = i, j
}

// Push appends x. It is for [heap.Push].
func (e *endHeap) Push(x any) {
	at := x.(*hold)
	at.index = len(*e)
	*e = append(*e, at)
}

// Pop is not called: a hold leaves when another takes its place.
func (e *endHeap) Pop() any { panic("httplimit: no hold is popped") }

// deniedHold is how long a 429 without a Retry-After holds.
const deniedHold = time.Second

// heldBy returns for how long res asks clients to wait, at most t.maxHold.
func (t *Transport) heldBy(res *http.Response) time.Duration {
	if age, ok := count(res.Header.Get("Age")); ok && age > 0 || res.StatusCode == http.StatusNotModified {
		return 0
	}
	denied := res.StatusCode == http.StatusTooManyRequests
	if denied || res.StatusCode == http.StatusServiceUnavailable {
		if d, ok := t.retryAfter(res.Header); ok {
			return min(d, t.maxHold)
		}
	}
	left, _ := ratefield.Exhausted(res.Header[fieldRateLimit], maxSeconds)
	d := max(time.Duration(left)*time.Second, t.resetIn(res.Header))
	if denied {
		d = max(d, deniedHold)
	}
	return min(d, t.maxHold)
}

// retryAfter returns the value of Retry-After. ok is false if there is none that counts. Of
// several lines, the first does.
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

// resetIn returns how long there is nothing left, by the fields X-RateLimit-Remaining and
// X-RateLimit-Reset, or 0.
func (t *Transport) resetIn(h http.Header) time.Duration {
	const since1970 = 1_000_000_000 // what is above is no duration
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

// dateOf returns the time at which the server has made a response with this header, or the time
// of the clock if the server does not say so.
func (t *Transport) dateOf(h http.Header) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	if t.Clock != nil {
		return t.Clock.Now()
	}
	return time.Now()
}

// maxSeconds is the longest time that counts, in seconds. It is the longest Duration.
const maxSeconds = math.MaxInt64 / int64(time.Second)

// count returns the number that text consists of, or the largest one if that is less.
func count(text string) (n int64, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil || n == math.MaxInt64
}
