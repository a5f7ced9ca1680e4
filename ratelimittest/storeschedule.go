package ratelimittest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A scheduleKind says what the schedules of one subtest of TestStore contain, in addition
// to single asks.
type scheduleKind struct {
	name       string
	algorithms []ratelimit.Algorithm
	several    bool // several asks in one call
	shadows    bool
	changes    bool // changes of the rate
	resets     bool
	names      bool // odd names
	ends       bool // contexts that have ended
	settles    bool // charges that are given back
	ids        bool // requests that are charged once
	warms      bool // states that warm up
}

// scheduleKinds returns the kinds of all subtests, in order. The comment of [TestStore]
// explains what each of them checks.
func (k *storeKit) scheduleKinds() (all []scheduleKind) {
	for _, a := range k.Algorithms {
		all = append(all, scheduleKind{name: "answers/" + string(a), algorithms: []ratelimit.Algorithm{a}})
	}
	all = append(all,
		scheduleKind{name: "all-or-none", algorithms: k.Algorithms, several: true},
		scheduleKind{name: "shadow", algorithms: k.Algorithms, several: true, shadows: true})
	for _, a := range k.Algorithms {
		all = append(all, scheduleKind{name: "rate-change/" + string(a), algorithms: []ratelimit.Algorithm{a}, several: true, shadows: true, changes: true})
	}
	return append(all,
		scheduleKind{name: "reset", algorithms: k.Algorithms, several: true, changes: true, resets: true},
		scheduleKind{name: "names", algorithms: k.Algorithms, several: true, resets: true, names: true},
		scheduleKind{name: "ended-context", algorithms: k.Algorithms, several: true, changes: true, ends: true})
}

// settleKinds returns the kinds of the subtests of Settle.
func (k *storeKit) settleKinds() (all []scheduleKind) {
	for _, a := range k.Algorithms {
		all = append(all, scheduleKind{name: "settle/" + string(a), algorithms: []ratelimit.Algorithm{a}, several: true, shadows: true, resets: true, settles: true})
	}
	for _, a := range k.Algorithms {
		all = append(all, scheduleKind{name: "settle-warm-up/" + string(a), algorithms: []ratelimit.Algorithm{a}, several: true, shadows: true, resets: true, settles: true, warms: true})
	}
	return all
}

// warmKinds returns the kinds of the subtests of warm-up.
func (k *storeKit) warmKinds() (all []scheduleKind) {
	for _, a := range k.Algorithms {
		all = append(all, scheduleKind{name: "warm-up/" + string(a), algorithms: []ratelimit.Algorithm{a}, several: true, shadows: true, resets: true, changes: true, warms: true})
	}
	return all
}

// A target is a state that a schedule asks for, and what is known of it.
type target struct {
	ask   ratelimit.Ask // with N 0 and the rate of the last ask
	rates []ratelimit.Rate
	*state
}

// A storeWriter makes up a schedule while the models answer it. It does not depend on the
// store.
type storeWriter struct {
	*storeKit
	chooser
	scheduleKind
	targets []*target
	models  *modelStore
	open    []openCharge // charges that may be settled
	issued  uint64       // the last receipt
	sent    []storeCall  // calls of Once
	latest  time.Duration
}

// namesSpan is the Span of the schedules with odd names. An empty Rule is the same in all
// of these schedules, so each of them lies wholly after the one before. A store that has
// dropped keys may count earlier times of its clock as the instant at which it did so.
const namesSpan = time.Hour

// write returns schedule number i, and the instant at which it begins.
func (k *storeKit) write(f scheduleKind, i int) (time.Time, []storeCall) {
	span := k.Span
	if f.names {
		span = min(span, namesSpan)
	}
	w := &storeWriter{storeKit: k, chooser: newChooser(k.Seed, i, k.Resolution, span), scheduleKind: f}
	start := w.start(k.Starts)
	if f.names {
		start = k.Starts[0].Add(time.Duration(4*i) * span)
	}
	w.models = newModelStore(start, k.Resolution, f.settles)
	w.populate()
	var calls []storeCall
	for range k.Steps {
		c := w.withID(w.next())
		w.note(start, c)
		calls = append(calls, c)
	}
	return start, calls
}

// oddNames are groups of rules and keys that a store may confuse: if it joins them with a
// separator or without one, cuts them off, trims them, decodes them, or reads them as the
// hash tag of a cluster.
var oddNames = [][][2]string{
	{{"a:b", "c"}, {"a", "b:c"}, {"a", "b"}},
	{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"", "abc"}},
	{{"a\x00b", "c"}, {"a", "b\x00c"}, {"a", "b"}},
	{{"{a}", "b"}, {"{a", "}b"}, {"a", "{b}"}, {"a", "b"}, {"{}", "a"}},
	{{"a", "\xff"}, {"a", "\xfe"}, {"a", "\ufffd"}, {"\xff", "a"}},
	{{"a", ""}, {"a", " "}, {"a", "\n"}, {"a", "\r\n"}},
	{{"a", "b"}, {"a", "B"}, {"a", "%62"}, {"b", "a"}},
	{{"1", "1:a"}, {"1:1", "a"}, {"1:11", "a"}, {"1|1", "a"}, {"1", "1|a"}},
	{{"a", long + "1"}, {"a", long + "2"}, {long + "1", "a"}, {long + "2", "a"}},
}

// oddClients are clients that a store may fail to make into a hash tag.
var oddClients = []string{"", "a", "}", "{}", "{", "\x00", "\xff", ":", long}

// long is 64 KB long.
var long = string(slices.Repeat([]byte("x"), 1<<16))

// populate makes up the targets.
func (w *storeWriter) populate() {
	names := [][2]string{{"user", "a"}, {"user", "b"}, {"all", "a"}, {"all", ""}}
	clients := map[string]string{"a": "a", "b": "b"}
	algorithms := slices.Clone(w.algorithms)
	if w.names {
		w.Shuffle(len(algorithms), func(i, j int) { algorithms[i], algorithms[j] = algorithms[j], algorithms[i] })
		algorithms = algorithms[:min(len(algorithms), 2)]
		names = oddNames[w.IntN(len(oddNames))]
		clients = make(map[string]string)
		both := [2]string{oddClients[w.IntN(len(oddClients))], oddClients[w.IntN(len(oddClients))]}
		for _, name := range names {
			clients[name[1]] = both[w.IntN(2)]
		}
	}
	for _, a := range algorithms {
		rates, warmups := make(map[string]ratelimit.Rate), make(map[string]ratelimit.Warmup) // by rule
		for _, name := range names {
			r := w.Rates[a][w.IntN(len(w.Rates[a]))]
			ask := ratelimit.Ask{Rule: name[0], Key: name[1], Algorithm: a, Rate: r}
			if w.warms {
				if rates[name[0]].Per == 0 {
					rates[name[0]], warmups[name[0]] = w.warmup(a)
				}
				ask.Rate, ask.Warmup = rates[name[0]], warmups[name[0]]
			}
			if name[0] != "all" {
				ask.Client = clients[name[1]]
			}
			w.targets = append(w.targets, &target{ask, []ratelimit.Rate{ask.Rate}, newState()})
		}
	}
	w.Shuffle(len(w.targets), func(i, j int) { w.targets[i], w.targets[j] = w.targets[j], w.targets[i] })
	w.targets = w.targets[:min(len(w.targets), 8)]
}

// next makes up a call.
func (w *storeWriter) next() storeCall {
	if len(w.open) > 0 && w.IntN(3) == 0 {
		if c, ok := w.settlement(); ok {
			return c
		}
	}
	chosen := w.choose()
	first := chosen[0]
	c := storeCall{at: w.move(first.ask.Rate, first.state)}
	switch p := w.IntN(100); {
	case p < 8 && w.resets:
		c.reset = true
	case p < 8 && w.ends:
		c.over = []error{context.Canceled, context.DeadlineExceeded}[w.IntN(2)]
	}
	look := w.IntN(6) == 0
	for _, p := range chosen {
		if w.changes && w.IntN(6) == 0 {
			p.ask.Rate = w.change(p)
		}
		a := p.ask
		a.N = w.count(p.state)
		a.Shadow = w.shadows && w.IntN(3) == 0
		switch several := len(chosen) > 1; {
		case several && look:
			a.N = 0
		case several && !a.Shadow:
			a.N = max(a.N, 1)
		}
		if w.settles && w.IntN(3) > 0 {
			w.issued++
			a.Receipt, a.Term = w.issued, w.term(a.Rate)
		}
		c.asks = append(c.asks, a)
	}
	return c
}

// choose returns the targets of a call. The first of them is often the same.
func (w *storeWriter) choose() []*target {
	order := w.Perm(len(w.targets))
	if w.IntN(5) < 2 {
		i := slices.Index(order, 0)
		order[0], order[i] = order[i], order[0]
	}
	n := 1
	if w.several && w.IntN(3) > 0 {
		n = 1 + w.IntN(min(len(order), 4))
	}
	var chosen []*target
	for _, i := range order[:n] {
		chosen = append(chosen, w.targets[i])
	}
	return chosen
}

// note remembers the answers of the models to c.
func (w *storeWriter) note(start time.Time, c storeCall) {
	w.latest = max(w.latest, c.at)
	if c.over != nil {
		return
	}
	if c.reset {
		w.models.reset(c.asks)
		return
	}
	if c.settle {
		for _, a := range c.asks {
			w.models.settle(start.Add(c.at), a)
		}
		return
	}
	var results []ratelimit.Result
	if c.once.ID != "" {
		if results, _ = w.models.once(start.Add(c.at), c.once, c.asks); c.once.Look {
			return
		}
	} else {
		results = w.models.take(start.Add(c.at), c.asks)
	}
	for i, res := range results {
		if a := c.asks[i]; a.Receipt != 0 && a.N > 0 && a.N < math.MaxInt32 {
			w.open = append(w.open, openCharge{c.at, a}) // also if it was denied: then there is no such charge
		}
		for _, p := range w.targets {
			if idOf(p.ask) == idOf(c.asks[i]) {
				p.note(c.at, res, res.Allowed && c.asks[i].N > 0)
			}
		}
	}
}

// change makes up a rate to change to: one that was in force before, one of the kit's, or
// one near the present one.
func (w *storeWriter) change(p *target) ratelimit.Rate {
	r := p.ask.Rate
	if w.warms {
		return w.warmer(p)
	}
	switch w.IntN(10) {
	case 0, 1, 2:
		return p.rates[w.IntN(len(p.rates))]
	case 3:
		r.Requests = 1 + r.Requests/2
	case 4:
		r.Requests += min(r.Requests, 1<<31-1-r.Requests)
	case 5:
		r.Per = later(r.Per, r.Per).Truncate(w.Resolution)
	case 6:
		r.Per = up(r.Per/2, w.Resolution)
	case 7:
		r.Burst = 1 + burst(r)/2
	case 8:
		r.Burst = burst(r) + min(burst(r), 1<<31-1-burst(r))
	default:
		rates := w.Rates[p.ask.Algorithm]
		r = rates[w.IntN(len(rates))]
	}
	a := algorithmNamed(p.ask.Algorithm)
	if !a.bursts {
		r.Burst = 0
		if w.IntN(2) == 0 {
			r.Per = p.ask.Rate.Per // most changes of a rule keep its windows
		}
	}
	for _, old := range p.rates {
		if a.bursts && equivalent(old, r) {
			return old // a store need not treat an equivalent rate as a change
		}
	}
	if w.refuses(a.name, r) != nil {
		return p.ask.Rate
	}
	p.rates = append(p.rates, r)
	return r
}

// equivalent reports whether two rates of a bucket grant the same.
func equivalent(a, b ratelimit.Rate) bool {
	return mul(num(int64(a.Requests)), num(int64(b.Per))).Cmp(mul(num(int64(b.Requests)), num(int64(a.Per)))) == 0 && burst(a) == burst(b)
}
