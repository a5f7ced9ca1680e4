package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// The variable epoch is the instant at which each history begins. It lies before the real time, and
// also before the time in a synctest bubble. A limiter must compare deadlines with the clock of the
// history only. If a limiter compared them with one of the other two times, it would find that every
// deadline has passed.
var epoch = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)

// A history is a random sequence of calls and its transcript: the text of all calls and their
// results.
type history struct {
	clock   clock
	small   time.Duration // sum of the clock's steps below 6 ms; if there is a store, the method step keeps the sum below 24 ms
	unusual bool          // whether the clock shows an extreme time, such as the year 1
	bubble  bool          // whether the history is played in a synctest bubble, in which time is simulated
	lazy    bool          // whether custom limiters take time to answer
	sorted  bool          // whether flush sorts all events, because goroutines may record them in a random order

	mu       sync.Mutex // guards the fields below
	random   *rand.Rand
	out      []byte         // the transcript
	events   []event        // events that were recorded but are not in the transcript yet
	keys     map[uint64]int // the number of each key in the transcript: 1 for the key that appeared first, then 2, 3, ...
	receipts map[uint64]int // the number of each receipt (by which a reservation is settled), also counted from 1
}

// A clock is a [ratelimit.Clock] that a history can also set and move, such as a FakeClock.
type clock interface {
	ratelimit.Clock
	Set(t time.Time)
	Advance(d time.Duration)
}

// clockOption returns the option that makes a limiter read the clock of the history. If this clock
// is the system clock (the type machine), it returns no option, because limiters read the system
// clock by default.
func (h *history) clockOption() []ratelimit.Option {
	if _, ok := h.clock.(machine); ok {
		return nil
	}
	return []ratelimit.Option{ratelimit.WithClock(h.clock)}
}

// newHistory returns a new history of the given kind, in which no call was made yet.
func newHistory(kind string, number int, seed uint64) *history {
	h := &history{clock: ratelimit.NewFakeClock(epoch), keys: map[uint64]int{0: 0}, receipts: map[uint64]int{0: 0}}
	h.random = rand.New(rand.NewPCG(hashOf(kind)^seed, uint64(number)))
	return h
}

// hashOf returns the FNV hash of the given text.
func hashOf(text string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text))
	return sum.Sum64()
}

// IntN returns a random number from 0 to n-1.
func (h *history) IntN(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.IntN(n)
}

// chance returns true at random, in the given percentage of its calls.
func (h *history) chance(percent int) bool { return h.IntN(100) < percent }

// oneOf returns a random element of the given list.
func oneOf[T any](h *history, list ...T) T { return list[h.IntN(len(list))] }

// say adds a line to the transcript. The line comes after all events that were recorded before.
func (h *history) say(format string, args ...any) {
	if h.bubble {
		synctest.Wait()
	}
	h.flush()
	h.out = fmt.Appendf(h.out, format, args...)
	h.out = append(h.out, '\n')
}

// An event is a line for the transcript. A hook (an observer, a store or a custom limiter) has
// recorded it during a call.
type event struct {
	text     string
	decision bool   // whether the event is a decision about a request, which the observer has recorded
	key      uint64 // the field [ratelimit.Decision.Key] of the decision; 0 for other events
}

// event records a line for the transcript. It is called by a hook (an observer, a store or a custom
// limiter) while a call of the tested limiter is going on. In the transcript, the line comes before the
// result of that call.
func (h *history) event(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{text: fmt.Sprintf(format, args...)})
}

// flush moves all recorded events to the transcript. For a decision, it also writes the number that
// stands for the key of the decision. In a synctest bubble, several goroutines may have recorded
// events at once, in a random order. In a bubble, flush therefore puts the observer's events last, and
// sorts them. If the field sorted is true, flush also sorts the other events.
func (h *history) flush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bubble {
		slices.SortStableFunc(h.events, func(a, b event) int {
			switch {
			case a.decision && !b.decision:
				return 1
			case b.decision && !a.decision:
				return -1
			case !a.decision && !h.sorted:
				return 0
			}
			return strings.Compare(a.text, b.text)
		})
	}
	for _, e := range h.events {
		h.out = append(append(h.out, "  "...), e.text...)
		if e.decision {
			h.out = fmt.Appendf(h.out, " key %d", numberOf(h.keys, e.key))
		}
		h.out = append(h.out, '\n')
	}
	h.events = h.events[:0]
}

// The method named "try" calls the function f, and adds a line to the transcript. The line holds the given
// name of the call, and the text that f returns. If f panics, the line holds the panic in place of the
// returned text.
func (h *history) try(name string, f func() string) {
	text := guarded(f)
	h.say("%s = %s", name, text)
}

// guarded returns the text that the function f returns or, if f panics, a text that contains the
// panic.
func guarded(f func() string) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("panic %v", p)
		}
	}()
	return f()
}

// misset sets the clock to an extreme time, such as the year 9999. A later call of the method step may
// set it back to the instant at which the history began.
func (h *history) misset() {
	h.unusual = true
	h.clock.Set(oneOf(h, time.Time{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
}

// step moves the clock by a random duration. If the parameter breaker is true, there is a circuit
// breaker, which may stop the calls to the store for a random time between 25 and 900 ms. The history
// must not depend on this random time. So in that case, step chooses no instant that is between 25 and
// 900 ms away from an earlier instant.
func (h *history) step(breaker bool) {
	units := []time.Duration{1, time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second}
	d := time.Duration(h.IntN(12)) * oneOf(h, units...)
	switch {
	case h.chance(6):
		d = -d
	case h.chance(6):
		d = time.Duration(h.IntN(90)) * oneOf(h, time.Second, time.Minute)
	case h.chance(1):
		d = time.Duration(h.IntN(400)) * 24 * time.Hour
	case h.unusual && h.chance(50):
		h.unusual = false
		d = epoch.Sub(h.clock.Now()) + d
		h.clock.Set(epoch)
	case !breaker && h.chance(1) && h.chance(30):
		h.clock.Set(time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	if breaker {
		if d < 0 || d >= 6*time.Millisecond || h.small+d >= 24*time.Millisecond {
			d = (d + time.Second - 1).Truncate(time.Second) + oneOf(h, 0, time.Second)
		} else {
			h.small += d
		}
	}
	h.clock.Advance(d)
	h.say("clock %v to %v", d, h.clock.Now().Sub(epoch))
}

// result returns the text of the Result r for the transcript.
func result(r ratelimit.Result) string {
	b := make([]byte, 0, 64)
	b = append(b, "no "...)
	if r.Allowed {
		b = append(b[:0], "yes "...)
	}
	b = append(strconv.AppendInt(b, int64(r.Remaining), 10), '/')
	b = append(strconv.AppendInt(b, int64(r.Limit), 10), " retry "...)
	b = append(append(b, r.RetryAfter.String()...), " reset "...)
	b = append(append(b, r.ResetAfter.String()...), " delay "...)
	b = append(append(b, r.Delay.String()...), ' ')
	b = strconv.AppendQuote(b, r.Rule)
	if r.Degraded {
		b = append(b, " degraded"...)
	}
	return string(b)
}

// results returns the text of all given Results for the transcript.
func results(all []ratelimit.Result) string {
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = result(r)
	}
	return "[" + strings.Join(texts, " | ") + "]"
}

// answer returns the text of a Result and an error for the transcript.
func answer(res ratelimit.Result, err error) string { return result(res) + " " + problem(err) }

// The variable targets lists the errors for which a caller can test with errors.Is.
var targets = []struct {
	name string
	err  error
}{
	{"config", ratelimit.ErrInvalidConfig},
	{"count", ratelimit.ErrInvalidCount},
	{"exceeds", ratelimit.ErrExceedsLimit},
	{"rule", ratelimit.ErrUnknownRule},
	{"store", ratelimit.ErrStore},
	{"reset", ratelimit.ErrNotReset},
	{"settled", ratelimit.ErrSettled},
	{"waiters", ratelimit.ErrTooManyWaiters},
	{"cancelled", context.Canceled},
	{"deadline", context.DeadlineExceeded},
	{"down", errDown},
}

// problem returns the text of err. After this text come the names of those errors in the variable
// targets that match err.
func problem(err error) string {
	if err == nil {
		return "ok"
	}
	text := strings.ReplaceAll(strconv.Quote(err.Error()), onceName, "Once") // the name of this type differs between versions
	for _, t := range targets {
		if errors.Is(err, t.err) {
			text += " " + t.name
		}
	}
	return text
}

// numberOf returns the number that stands for an id in the transcript, because the id itself is a
// random number. A new id gets the next free number.
func numberOf(of map[uint64]int, id uint64) int {
	n, seen := of[id]
	if !seen {
		n = len(of)
		of[id] = n
	}
	return n
}

// receipt returns the number that stands for a receipt in the transcript. The receipt itself is a
// random number, by which a reservation is settled later.
func (h *history) receipt(id uint64) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return numberOf(h.receipts, id)
}

// asks returns the text of the given asks (requests to a store) for the transcript.
func (h *history) asks(asks []ratelimit.Ask) string {
	var b bytes.Buffer
	for i, a := range asks {
		if i > 0 {
			b.WriteString(" + ")
		}
		a.Receipt = uint64(h.receipt(a.Receipt))
		fields(&b, reflect.ValueOf(a))
	}
	return b.String()
}

// fields writes the fields of a struct that are not zero: their values without their names, because a
// name may differ between versions of the package.
func fields(b *bytes.Buffer, v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if i > 0 {
			b.WriteByte(',')
		}
		if f.IsZero() {
			continue
		}
		switch x := f.Interface().(type) {
		case error:
			b.WriteString(problem(x))
		case ratelimit.Result:
			b.WriteString(result(x))
		case fmt.Stringer:
			b.WriteString(x.String())
		default:
			writeField(b, f)
		}
	}
}

func writeField(b *bytes.Buffer, f reflect.Value) {
	switch f.Kind() {
	case reflect.String:
		b.WriteString(strconv.Quote(f.String()))
	case reflect.Int:
		b.WriteString(strconv.FormatInt(f.Int(), 10))
	default:
		fmt.Fprintf(b, "%v", f.Interface())
	}
}

// Observe records the decision d as an event. The history is the observer of its limiters.
func (h *history) Observe(ctx context.Context, d ratelimit.Decision) {
	text := fmt.Sprintf("observed %q %s %s %s tier %q rate %v cost %d %s by %s: %s at %v ctx %v of %v",
		d.Rule, d.Algorithm, d.KeyType, d.Mode, d.Tier, d.Rate, d.Cost, result(d.Result), d.Source,
		problem(d.Err), d.Time.Sub(epoch), ctx.Err(), ctx.Value(caller{}))
	if d.Request.Client != "" || d.Request.Endpoint != "" || d.Request.Cost != 0 || d.Request.ID != "" {
		text += fmt.Sprintf(" of %+v", d.Request)
	}
	if d.Took < 0 {
		text += " took less than nothing"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, event{text, true, d.Key})
}

// The type caller is the key of a value in a context. The value is the number of the waiter (a
// goroutine that waits for units) that makes the call.
type caller struct{}
