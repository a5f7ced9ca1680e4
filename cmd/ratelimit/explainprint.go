package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// shownUses is how many requests the command explain lists for a rule: the last ones that used the budget of the rule.
const shownUses = 5

// printUses prints the last requests that have used the budget of a rule.
func printUses(p *page, u *replay.Uses) {
	if u == nil || u.Granted == 0 {
		return
	}
	text := countText(u.Granted, "granted request")
	if u.Granted > len(u.Last) {
		text += fmt.Sprintf(", the last %d", len(u.Last))
	}
	p.line("  used by %s:", text)
	for _, use := range u.Last {
		costs := ""
		if use.Cost != 1 {
			costs = fmt.Sprintf(", cost %d", use.Cost)
		}
		p.line("    %s %s for %s%s", exactly(use.Time), plain(use.Client), quote(use.Endpoint), costs)
	}
}

// exactly(t) is the time t in UTC as text, with all digits of its seconds, such as "2026-10-10 12:00:00.25".
func exactly(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999999") }

// sinceText says how many of the requests in a log were denied, and since when.
func sinceText(s *replay.Seen) string {
	if s.Denied == 0 {
		return "none denied"
	}
	first, last, since := exactly(s.FirstDenied), exactly(s.LastDenied), exactly(s.DeniedSince)
	switch {
	case s.Denied == 1:
		return "1 denied, at " + first
	case s.DeniedSince.IsZero():
		return fmt.Sprintf("%s denied, from %s to %s", number(s.Denied), first, last)
	case s.DeniedSince.Equal(s.FirstDenied):
		return fmt.Sprintf("%s denied: each one since %s", number(s.Denied), since)
	}
	return fmt.Sprintf("%s denied, from %s to %s: each one since %s", number(s.Denied), first, last, since)
}

// printExplanationJSON prints the explanation in the JSON form that the library gives it. It adds the time, and the
// requests and denials of the client in the log.
func printExplanationJSON(t *terminal, e *ratelimit.Explanation, at time.Time, seen *replay.Watched) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	more := struct {
		Time time.Time    `json:"time"`
		Log  *replay.Seen `json:"log,omitempty"`
	}{Time: at.UTC()}
	if seen.Client.Requests > 0 {
		more.Log = &seen.Client
	}
	rest, err := json.Marshal(more)
	if err != nil {
		return err
	}
	return t.printJSON(json.RawMessage(slices.Concat(text[:len(text)-1], []byte(","), rest[1:])))
}

// windowText returns the beginning and the end of the window that the rule r uses for a request at the given time. It returns
// an empty text if the rule has no windows, or if the two times are not known.
func windowText(r *ratelimit.RuleExplanation, at time.Time) string {
	per := r.Rate.Per
	edges := func(begin, end time.Time) string { return exactly(begin) + " to " + exactly(end) }
	switch r.Algorithm {
	case ratelimit.AlgorithmSlidingWindowLog:
		return edges(at.Add(-per), at)
	case ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmFixedWindow:
	default:
		return ""
	}
	var begin, end time.Time
	switch w, err := calendar.Parse(string(r.Rate.Window)); {
	case err != nil:
		return ""
	case w.Calendar() != nil:
		from, to := w.Calendar().Edges(at.UnixNano())
		begin, end = time.Unix(0, from), time.Unix(0, to)
	case r.Rate.Window == "": // windows begin at multiples of their length since the Unix epoch
		ns := time.Duration(at.UnixNano())
		begin = at.Add(-((ns%per + per) % per))
		end = begin.Add(per)
	case r.AnsweredBy != "own" || !r.Result.Allowed && r.Result.Reason != ratelimit.ReasonLimit:
		return "" // the window began with the first use of the key, and ResetAfter does not tell here when that was
	default:
		end = at.Add(r.Result.ResetAfter)
		begin = end.Add(-per)
	}
	if r.Algorithm == ratelimit.AlgorithmSlidingWindowCounter {
		return edges(begin, end) + " and part of the last"
	}
	return edges(begin, end)
}

func printExplanation(t *terminal, e *ratelimit.Explanation, at time.Time, seen *replay.Watched) error {
	p := &page{width: t.width}
	req := &e.Request
	who := "client " + quote(req.Client)
	if req.IP != "" && req.Client == "ip:"+req.IP {
		who = "IP " + quote(req.IP)
	}
	costs := []string{fmt.Sprintf("cost %d", max(req.Cost, 1))}
	for _, c := range req.Costs {
		costs = append(costs, fmt.Sprintf("%d %s", c.N, plain(c.Unit)))
	}
	p.line("%s for %s, %s, at %s UTC", who, quote(req.Endpoint), strings.Join(costs, " and "), exactly(at))
	p.line("%s", answerAt(e.Result, at))
	if n := seen.Client.Requests; n > 0 {
		p.line("in the log, by these rules: %s of this client for %s, %s", countText(n, "request"), quote(req.Endpoint), sinceText(&seen.Client))
	}
	switch {
	case e.Override != nil:
		p.line("")
		p.line("blocked by an override, and no rule is asked:")
		p.line("  %s", plain(e.Override.String()))
	case len(e.Rules) == 0:
		p.line("no rule applies")
	}
	for i := range e.Rules {
		printRule(p, &e.Rules[i], at, seen)
	}
	_, err := io.WriteString(t.out, p.String())
	return err
}

// answerAt returns the text of answer(r). For a denied request, it adds the time at which the request would be granted.
func answerAt(r ratelimit.Result, at time.Time) string {
	if r.Reason == ratelimit.ReasonOverride && r.RetryAfter == ratelimit.Never {
		return "denied, until the block is lifted"
	}
	text := answer(r)
	if !r.Allowed && r.RetryAfter != ratelimit.Never {
		text += ", at " + exactly(at.Add(r.RetryAfter))
	}
	return text
}

// printRule prints what one rule says about a request.
func printRule(p *page, r *ratelimit.RuleExplanation, at time.Time, seen *replay.Watched) {
	p.line("")
	verb := map[bool]string{true: "grants", false: "denies"}[r.Result.Allowed]
	if r.AnsweredBy == "uncounted" || r.AnsweredBy == "unheld" {
		verb = "is not asked"
	} else if !r.Mode.Denies() {
		verb = "is in " + string(r.Mode) + " mode, and would " + map[bool]string{true: "grant", false: "deny"}[r.Result.Allowed]
	}
	p.line("rule %s %s", quote(r.Name), verb)
	match := r.Match
	if r.Pattern != "" {
		match += " " + quote(r.Pattern)
	}
	p.line("  match  %s", match)
	p.line("  key    %s %s", plain(string(r.KeyType)), quote(r.Key))
	if r.AnsweredBy == "uncounted" || r.AnsweredBy == "unheld" {
		p.line("  limit  %s %s %s", plain(string(r.Algorithm)), r.Rate, r.Unit)
		p.line("  state  %s", notAsked(r))
		return
	}
	if r.Result.Limit < 0 {
		p.line("  limit  none for this client, by its %s", r.RateFrom)
		printOverride(p, r)
		return
	}
	rate := strings.TrimSpace(plain(string(r.Algorithm)) + " " + r.Rate.String() + " " + r.Unit)
	if r.RateFrom != "rule" && r.Override == nil {
		rate += ", by its " + string(r.RateFrom)
	}
	length := calendar.LengthAt(string(r.Rate.Window), r.Rate.Per, at)
	p.line("  limit  %s, at most %d in any %s", rate, bound(r, length), span(length))
	printOverride(p, r)
	if window := windowText(r, at); window != "" {
		p.line("  window %s", window)
	}
	p.line("  state  %s: %d of %d left, %s", stateText(string(r.AnsweredBy)), r.Result.Remaining, r.Result.Limit, answer(r.Result))
	p.line("         as new after %s", wait(r.Result.ResetAfter))
	if r.Err != nil {
		p.line("  error  %s", plain(r.Err.Error()))
	}
	u := seen.Rules[r.Name]
	if u != nil && u.Denied > 0 && u.Denied != seen.Client.Denied {
		p.line("  asked  %s of this key, %s", countText(u.Requests, "request"), sinceText(&u.Seen))
	}
	printUses(p, u)
}

// printOverride prints the override that decides for the rule, if there is one.
func printOverride(p *page, r *ratelimit.RuleExplanation) {
	if r.Override == nil {
		return
	}
	text := plain(r.Override.String())
	if r.Override.Effect == ratelimit.EffectRate && r.RateFrom != "override" {
		text += ", without effect: it does not fit the rule"
	}
	p.line("  by     an override: %s", text)
}

// bound returns the largest number of units that the rule r grants to one key in any interval of the given length. Only one
// of the two ends belongs to the interval. If the Algorithm of r knows no such number, bound returns 0.
func bound(r *ratelimit.RuleExplanation, length time.Duration) int {
	return max(r.Algorithm.MaxIn(r.Rate, length-1), 0)
}

// notAsked returns a text that says why the rule r does not decide on the request.
func notAsked(r *ratelimit.RuleExplanation) string {
	if r.AnsweredBy == "uncounted" {
		return fmt.Sprintf("the request has no %s; see -cost %s=NUMBER", r.Unit, r.Unit)
	}
	return "counts what is running, and a log does not say how long it runs"
}

// quote returns the given text in quotation marks, with its unprintable characters escaped.
func quote(text string) string { return `"` + plain(text) + `"` }

func stateText(state string) string {
	switch state {
	case "own":
		return "used before"
	case "unseen":
		return "unused"
	}
	return state
}

// answer says in words whether a request was granted. For a denied request, it also says when to send the request
// again.
func answer(r ratelimit.Result) string {
	switch {
	case r.Allowed && r.Delay > 0:
		return "granted, to be held for " + span(r.Delay)
	case r.Allowed:
		return "granted"
	case r.RetryAfter == ratelimit.Never:
		return "denied, and always would be"
	case r.Reason == ratelimit.ReasonPenalty:
		return "blocked by a penalty, again after " + wait(r.RetryAfter)
	}
	return "denied, again after " + wait(r.RetryAfter)
}

func wait(d time.Duration) string {
	if d == ratelimit.Never {
		return "never"
	}
	return span(d)
}

// span returns a duration as a short and exact text, such as 1m30s or 7d.
func span(d time.Duration) string { return chart.Duration(d) }
