package ratelimittest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A scheduleKind describes the schedules (lists of calls) of one subtest of TestStore: what they
// contain in addition to calls of Take with a single ask.
type scheduleKind struct {
	name       string // name of the subtest
	algorithms []ratelimit.Algorithm
	several    bool // whether a call may ask for units of several keys
	shadows    bool // whether asks may have Shadow set
	changes    bool // whether the rate of a key may change
	resets     bool // whether Reset is called
	names      bool // whether the keys have names that a store may confuse
	ends       bool // whether some calls get a context that has ended
	settles    bool // whether Settle is called
	ids        bool // whether Once is called
	warms      bool // whether the limits of new keys grow with time (a warm-up)
}

// scheduleKinds returns the kinds for the subtests that every store must pass. The comment of
// [TestStore] explains what each of them checks.
func (k *storeKit) scheduleKinds() (all []scheduleKind) {
	all = append(k.forEach("answers", scheduleKind{}),
		scheduleKind{name: "all-or-none", algorithms: k.Algorithms, several: true},
		scheduleKind{name: "shadow", algorithms: k.Algorithms, several: true, shadows: true})
	all = append(all, k.forEach("rate-change", scheduleKind{several: true, shadows: true, changes: true})...)
	return append(all,
		scheduleKind{name: "reset", algorithms: k.Algorithms, several: true, changes: true, resets: true},
		scheduleKind{name: "names", algorithms: k.Algorithms, several: true, resets: true, names: true},
		scheduleKind{name: "ended-context", algorithms: k.Algorithms, several: true, changes: true, ends: true})
}

// settleKinds returns the kinds of the subtests of Settle.
func (k *storeKit) settleKinds() []scheduleKind {
	return append(
		k.forEach("settle", scheduleKind{several: true, shadows: true, resets: true, settles: true}),
		k.forEach("settle-warm-up", scheduleKind{several: true, shadows: true, resets: true, settles: true, warms: true})...)
}

// warmKinds returns the kinds of the subtests of warm-up.
func (k *storeKit) warmKinds() []scheduleKind {
	return k.forEach("warm-up", scheduleKind{several: true, shadows: true, resets: true, changes: true, warms: true})
}

// forEach returns a copy of kind for each algorithm. Each copy is named after the subtest and the
// algorithm.
func (k *storeKit) forEach(subtest string, kind scheduleKind) (all []scheduleKind) {
	for _, a := range k.Algorithms {
		kind.name, kind.algorithms = subtest+"/"+string(a), []ratelimit.Algorithm{a}
		all = append(all, kind)
	}
	return all
}

// A target is a state of the store (what it knows about one algorithm, rule and key) that the calls of
// a schedule use.
type target struct {
	ask   ratelimit.Ask    // the last ask for the state, with N set to 0
	rates []ratelimit.Rate // the rates of all asks so far
	*state
}

// A storeWriter builds a random schedule. It uses the answers of the models to choose the next call,
// but never the answers of the store.
type storeWriter struct {
	*storeKit
	chooser
	scheduleKind
	targets []*target
	models  *modelStore
	open    []openCharge  // charges that may be settled
	issued  uint64        // the receipt that was issued last
	sent    []storeCall   // all calls of Once
	latest  time.Duration // the latest instant so far, since the start
}

// namesSpan is the largest Span of the schedules with odd names. It is short, because each of these schedules begins
// after the end of the previous one. If they overlapped, a schedule could get wrong answers. Some odd names have an empty
// Rule, so several schedules use the same rule. If a store has dropped keys of a rule, and the clock then shows an earlier
// time, the store may use the time at which it dropped the keys instead.
const namesSpan = time.Hour

// write returns the schedule with number i, and the instant at which it begins.
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

// oddNames are groups of pairs of a rule and a key. A store may confuse the pairs of a group if, for
// example, it joins the two names, truncates, trims or decodes them, or reads them as a hash tag (the
// part of a key that selects a server of a cluster).
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

// oddClients are clients that a store may fail to use as a hash tag (the part of a key that selects a
// server of a cluster).
var oddClients = []string{"", "a", "}", "{}", "{", "\x00", "\xff", ":", long}

// long is a name of 64 KB.
var long = string(slices.Repeat([]byte("x"), 1<<16))

// populate picks the keys, rules and rates that the calls of the schedule use (the targets).
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
		// The keys of both maps are names of rules.
		rates, warmups := make(map[string]ratelimit.Rate), make(map[string]ratelimit.Warmup)
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

// next returns the next call of the schedule.
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
		case several && !a.Shadow && (w.settles || c.at%4 > 0):
			a.N = max(a.N, 1)
		}
		if w.settles && w.IntN(3) > 0 {
			w.issued++
			a.Receipt, a.HoldFor = w.issued, w.term(a.Rate)
		}
		c.asks = append(c.asks, a)
	}
	return c
}

// choose picks the targets of a call (the states whose units it asks for). It often puts the first target of the
// schedule in the first place, so that the state of this target gets many calls.
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

// note passes the call c to the models, and records their answers, so that the next calls can be chosen by them.
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
			w.open = append(w.open, openCharge{c.at, a}) // a denied ask is added too: settling it must change nothing
		}
		for _, p := range w.targets {
			if idOf(p.ask) == idOf(c.asks[i]) {
				p.note(c.at, res, res.Allowed && c.asks[i].N > 0)
			}
		}
	}
}

// change picks a new rate for the target p: a rate that p had before, one of the kit's rates, or a
// rate similar to the present rate of p.
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
			r.Per = p.ask.Rate.Per // half of the new rates keep the old Per, as most real changes do
		}
	}
	for _, old := range p.rates {
		if a.bursts && equivalent(old, r) {
			return old // in place of the equivalent rate r: a store may or may not treat r as a change
		}
	}
	if w.refuses(a.name, r) != nil {
		return p.ask.Rate
	}
	p.rates = append(p.rates, r)
	return r
}

// equivalent reports whether two rates of a bucket have the same quotient Requests/Per and the same burst.
func equivalent(a, b ratelimit.Rate) bool {
	return mul(num(int64(a.Requests)), num(int64(b.Per))).Cmp(mul(num(int64(b.Requests)), num(int64(a.Per)))) == 0 && burst(a) == burst(b)
}
