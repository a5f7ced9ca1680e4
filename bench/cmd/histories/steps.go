package main

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// requestText returns a text for the transcript, made of the given name of a call and of the request.
func requestText(name string, req ratelimit.Request) string { return fmt.Sprintf("%s %+v", name, req) }

// The method named "decides" makes a random call that decides about a request, such as Allow or Check. It
// records the result.
func (w *world) decides() {
	req := w.drawRequest()
	ctx, done := w.drawContext()
	defer done()
	if ctx = w.store.ends(ctx); w.explain {
		w.explains(req)
	}
	n := w.IntN(100)
	if w.leaky && w.chance(50) {
		n = 99
	}
	switch {
	case n < 20:
		w.try(requestText("allow", req), func() string { return result(w.limiter.Allow(req.Client, req.Endpoint)) })
	case n < 60:
		w.try(requestText("check", req), func() string { return answer(w.limiter.Check(ctx, req)) })
	case n < 80:
		w.try(requestText("check all", req), func() string {
			res, all, err := w.limiter.CheckAll(ctx, req, nil)
			return answer(res, err) + " " + results(all)
		})
	case n < 88:
		w.try(requestText("peek", req), func() string { return answer(w.limiter.Peek(ctx, req)) })
	case n < 93:
		w.explains(req)
	default:
		patience := oneOf(w.history, 0, 1, time.Nanosecond, -time.Hour, 500*time.Millisecond)
		ctx = w.store.mayEnd(w.due(patience))
		w.try(requestText(fmt.Sprint("wait ", patience), req), func() string { return answer(w.limiter.Wait(ctx, req)) })
	}
}

// The method named "explains" calls Explain for the request, and records the result.
func (w *world) explains(req ratelimit.Request) {
	ctx, done := w.drawContext()
	defer done()
	ctx = w.store.ends(ctx)
	w.try(requestText("explain", req), func() string {
		e, err := w.limiter.Explain(ctx, req)
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %q %v %s %s", e.Match, e.Pattern, e.Recorded, result(e.Result), problem(err))
		for _, r := range e.Rules {
			b.WriteString("\n    ")
			fields(&b, reflect.ValueOf(r))
		}
		fmt.Fprintf(&b, "\n    %s", tableText(e))
		data, failed := e.MarshalJSON()
		var again ratelimit.Explanation
		fmt.Fprintf(&b, "    %s %v %v", jsonNames.Replace(string(data)), failed, again.UnmarshalJSON(data))
		return b.String()
	})
}

// jsonNames replaces some names of JSON fields by the names that older versions used. The transcripts
// of old and new versions are then equal.
var jsonNames = strings.NewReplacer(`"rateFrom":`, `"source":`, `"answeredBy":`, `"state":`)

// tableText returns the text of the Explanation e without two parts that may differ between versions:
// the line with the names of the columns, and the padding of the columns.
func tableText(e ratelimit.Explanation) string {
	lines := strings.Split(e.String(), "\n")
	if len(lines) > 2 {
		lines[1] = ""
	}
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n    ")
}

// The method named "changes" makes a random call that changes the rules, and records the result.
func (w *world) changes() {
	l, r := w.limiter, w.drawRule()
	rules, defaultRule := l.Rules()
	name := w.drawName(rules, defaultRule)
	if len(rules) > 0 && w.chance(60) {
		// The rule r gets the name of an existing rule. Usually it also gets all other fields of that rule except Rate and
		// OnStoreError.
		old := rules[w.IntN(len(rules))]
		r.Name = old.Name
		if w.chance(70) {
			r.Endpoint, r.Key, r.Algorithm, r.Mode = old.Endpoint, old.Key, old.Algorithm, old.Mode
			r.Limiter, r.Additional, r.Tiers, r.Resolve, r.Warmup = old.Limiter, old.Additional, old.Tiers, old.Resolve, old.Warmup
		}
	}
	rate := w.drawRate(r.Algorithm, oneOf(w.history, 0, r.Rate.Per))
	if len(rules) > 0 && w.chance(10) {
		name, rate = rules[0].Name, rules[0].Rate
	}
	switch w.IntN(10) {
	case 0:
		w.try("add "+ruleText(r), func() string { return problem(l.AddRule(r)) })
	case 1, 2:
		w.try("set "+ruleText(r), func() string { return problem(l.SetRule(r)) })
	case 3:
		w.try("remove "+name, func() string { return problem(l.RemoveRule(name)) })
	case 4, 5:
		w.try(fmt.Sprintf("update %q %+v", name, rate), func() string { return problem(l.UpdateRate(name, rate)) })
	case 6:
		more, other := w.drawRules()
		if w.chance(50) {
			more = append(rules[:len(rules):len(rules)], r)
			other = defaultRule
		}
		w.try("replace"+rulesText(more, other), func() string { return problem(l.Replace(more, other)) })
	case 7:
		configs, other := w.drawConfigs()
		w.try(fmt.Sprintf("reload %v %v", configs, other), func() string { return problem(l.Reload(configs, other)) })
	case 8:
		config := w.drawConfig()
		w.try(fmt.Sprintf("set config %v", config), func() string { return problem(l.SetConfig(config)) })
	case 9:
		r.Endpoint, r.Additional = "", false
		w.try("set default "+ruleText(r), func() string { return problem(l.SetDefaultRule(r)) })
	}
	rules, defaultRule = l.Rules()
	w.say("rules%s", rulesText(rules, defaultRule))
}

// The method named "resets" calls Reset for a random request, and records the result.
func (w *world) resets() {
	req := w.drawRequest()
	if w.chance(20) {
		req.Endpoint, req.Rules = "", nil
	}
	ctx, done := w.drawContext()
	defer done()
	ctx = w.store.ends(ctx)
	w.try(requestText("reset", req), func() string { return problem(w.limiter.Reset(ctx, req)) })
}

// The method named "reserves" makes a new reservation, or settles or cancels an earlier reservation, and
// records the result. It may also settle or cancel a reservation that was settled or canceled before.
func (w *world) reserves() {
	if n := len(w.held); n > 0 && w.chance(55) {
		i := w.IntN(n)
		r, actual, req := w.held[i].Reservation, oneOf(w.history, 0, 1, 1, 2, 3, 5, 20, -1), w.held[i].req
		if w.chance(20) { // resets the reserved keys first; if Settle is called below, it reports 5 or 20 used units
			w.try(requestText("reset", req), func() string { return problem(w.limiter.Reset(context.Background(), req)) })
			actual = oneOf(w.history, 5, 20)
			defer func() {
				w.try(requestText("peek", req), func() string { return answer(w.limiter.Peek(context.Background(), req)) })
			}()
		}
		if w.chance(25) {
			w.try(fmt.Sprintf("cancel %d", i), func() string { return problem(r.Cancel()) })
		} else {
			w.try(fmt.Sprintf("settle %d %d", i, actual), func() string { return problem(r.Settle(actual)) })
		}
		return
	}
	req := w.drawRequest()
	if w.chance(50) {
		req.Cost = 1 + w.IntN(4)
	}
	term := oneOf(w.history, time.Second, time.Second, time.Minute, 10*time.Millisecond, time.Microsecond, 24*time.Hour, 0, 48*time.Hour)
	ctx, done := w.drawContext()
	defer done()
	ctx = w.store.ends(ctx)
	w.try(requestText(fmt.Sprint("reserve ", term), req), func() string {
		var r *ratelimit.Reservation
		var all []ratelimit.Result
		var err error
		if w.chance(40) {
			r, all, err = reserveAll(w.limiter, ctx, req, term)
		} else {
			r, err = w.limiter.Reserve(ctx, req, term)
		}
		if r != nil {
			w.held = append(w.held, held{r, req})
		}
		return fmt.Sprintf("%v %s %s", r != nil, answer(r.Result(), err), results(all))
	})
}

// reserveAll makes a reservation, and also returns the Result of each rule. If this version of the
// package has the method ReserveAll, it calls this method. Otherwise it calls Reserve and Results.
func reserveAll(
	l *ratelimit.RateLimiter, ctx context.Context, req ratelimit.Request, term time.Duration,
) (r *ratelimit.Reservation, all []ratelimit.Result, err error) {
	if whole, ok := any(l).(interface {
		ReserveAll(context.Context, ratelimit.Request, time.Duration, []ratelimit.Result) (*ratelimit.Reservation, []ratelimit.Result, error)
	}); ok {
		return whole.ReserveAll(ctx, req, term, nil)
	}
	if r, err = l.Reserve(ctx, req, term); r != nil {
		all = any(r).(interface{ Results() []ratelimit.Result }).Results()
	}
	return r, all, err
}

// The method named "counts" writes the statistics into the transcript.
func (w *world) counts() {
	for _, s := range w.limiter.Stats() {
		w.say("stats %+v", s)
	}
	s := w.limiter.StoreStats()
	w.say("store stats %d parts %d open %d opened %s", s.Parts, s.Open, s.Opened, problem(s.LastError))
}
