package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

var explainCommand = command{
	name:    "explain",
	summary: "why one request is granted or denied",
	examples: `
ratelimit explain limits.json -client alice -endpoint /search
ratelimit explain limits.json -ip 10.0.0.1 -endpoint /login -after access.log
ratelimit explain limits.json -client bob -endpoint /a -cost 5 -tier paid
ratelimit explain limits.json -client bob -endpoint /a -attr tenant=acme
ratelimit explain limits.json -client bob -endpoint /chat -cost tokens=2000
ratelimit explain limits.json -ip 10.0.0.1 -endpoint /login \
    -after access.log -at 2026-10-10T12:10:20Z
`,
	about: `
Says which rules apply to one request, and what each of them answers. Without
-after, nothing was used before. With it, the requests of that log come first:
all of them, or those before -at. The time is -at, or that of the last line of
the log, or now. The exit code is 1 if the request is denied.
` + aboutLogs,
	run: runExplain,
}

// An attrFlag is a flag that may be repeated. Each use of the flag adds one attribute to the map. The keys of the
// map are the names of the attributes.
type attrFlag map[string]string

func (a attrFlag) String() string { return "" }

// Set adds one attribute. The form of its argument is "name=value".
func (a attrFlag) Set(text string) error {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return errors.New("must be name=value")
	}
	a[name] = value
	return nil
}

// requestFlags defines the flags that describe one request. It returns a pointer to a request, which is filled in
// when the flags are parsed.
func requestFlags(fs *flag.FlagSet) *ratelimit.Request {
	r := &ratelimit.Request{Attrs: make(map[string]string)}
	fs.StringVar(&r.Client, "client", "", "the `client`; without it, the client without a name that has the address -ip")
	fs.StringVar(&r.Endpoint, "endpoint", "", "the `endpoint`, such as a path")
	fs.StringVar(&r.IP, "ip", "", "the `address` of the client")
	fs.Var(attrFlag(r.Attrs), "attr", "an attribute, as `name=value`; may be repeated")
	return r
}

// meant fills in what the flags of a request mean beside what they say. The address gets the spelling that httplimit gives it,
// with a prefix of ipv6 bits for an IPv6 address. A request without a client is that of the client that httplimit names by
// the address, and such a client has this address.
func meant(req *ratelimit.Request, ipv6 int) error {
	req.Client = pasted(req.Client)
	ip, isAddress := strings.CutPrefix(req.Client, "ip:")
	if isAddress && req.IP == "" {
		req.IP = ip
	}
	if req.IP != "" && req.IP != "unknown" && req.IP != "local" { // these are the names of httplimit for clients without an address
		text, ok := accesslog.Address(req.IP, ipv6)
		if !ok {
			return usageError(fmt.Sprintf("-ip is %q: must be an address, such as 203.0.113.9", req.IP))
		}
		req.IP = text
	}
	switch {
	case req.Client == "" && req.IP != "", isAddress && ip == "":
		req.Client = "ip:" + req.IP
	case isAddress:
		if text, ok := accesslog.Address(ip, ipv6); ok {
			req.Client = "ip:" + text
		}
	}
	return nil
}

// lacking returns the flag that the request needs for a key of the given type, such as "-ip". It returns an empty text if the
// request has all parts of the key.
func lacking(req *ratelimit.Request, key ratelimit.KeyType) string {
	for _, part := range replay.PartsOf(key) {
		switch attr, isAttr := strings.CutPrefix(part, "attr:"); {
		case part == "user" && req.Client == "":
			return "-client"
		case part == "ip" && req.IP == "":
			return "-ip"
		case part == "endpoint" && req.Endpoint == "":
			return "-endpoint"
		case isAttr && req.Attrs[attr] == "":
			return "-attr " + plain(attr) + "=VALUE"
		}
	}
	return ""
}

// refuse returns a usageError if a rule that applies to the request limits by something that the request does not have. The
// answer would be about a client that nobody means. An attribute may be meant to be missing: for such a rule, refuse prints a
// note.
func refuse(ctx context.Context, t *terminal, l *ratelimit.RateLimiter, req *ratelimit.Request) error {
	e, err := l.Explain(ctx, *req)
	if err != nil {
		return err
	}
	for i := range e.Rules {
		r := &e.Rules[i]
		switch flag := lacking(&e.Request, r.KeyType); {
		case flag == "":
		case strings.HasPrefix(flag, "-attr"):
			t.warn("note: rule %s limits by %s: the answer is for a request without it; see %s", quote(r.Name), plain(string(r.KeyType)), flag)
		default:
			return usageError(fmt.Sprintf("rule %s limits by %s: give %s", quote(r.Name), plain(string(r.KeyType)), flag))
		}
	}
	return nil
}

func runExplain(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	req := requestFlags(fs)
	fs.StringVar(&req.Tier, "tier", "", "the `plan` of the client")
	cost := costsFlag{value: 1, maxValue: math.MaxInt32}
	fs.Var(&cost, "cost", "how many `units` the request takes, or as unit=number of another unit; may be repeated")
	at := fs.String("at", "", "the `time`, in a form that a log may have")
	asJSON := fs.Bool("json", false, "print JSON")
	after := listFlag{}
	fs.Var(&after, "after", "a `log` whose requests come first; may be repeated")
	how := newRuleFlags(fs)
	logs := newLogFlags(fs)
	paths, err := parse(fs, args, 1, 1, "the file of rules")
	if err != nil {
		return err
	}
	req.Cost, req.Costs = cost.value, cost.costs
	if err := logs.asksFor(req); err != nil {
		return err
	}
	clock, end := replay.NewClock(), timeFlag(math.MaxInt64)
	switch {
	case *at != "":
		if err := end.Set(*at); err != nil {
			return usageError(fmt.Sprintf("-at is %q: %v", *at, err))
		}
	case len(after) == 0:
		clock.Set(time.Now().UnixNano())
	}
	player, err := how.player(clock, paths[0])
	if err != nil {
		return err
	}
	if err := cmp.Or(cost.check(allRules(player.Limiter())), logs.checkUnits(player)); err != nil {
		return err
	}
	if err := refuse(ctx, t, player.Limiter(), req); err != nil {
		return err
	}
	uses := player.Watch(req, shownUses)
	strict, err := logs.before(ctx, t, after, int64(end), replay.NewRun(clock, player, nil, nil), req.Client)
	if err != nil {
		return err
	}
	if *at != "" {
		clock.Set(int64(end))
	}
	e, err := player.Limiter().Explain(ctx, *req)
	if err != nil {
		return err
	}
	if *asJSON {
		err = t.printJSON(e)
	} else {
		err = printExplanation(t, &e, clock.Now(), uses)
	}
	if err == nil && !e.Result.Allowed {
		err = errFound
	}
	return cmp.Or(err, strict)
}

// asksFor returns a usageError if the flags do not describe a request. Otherwise it fills in what they mean.
func (f *logFlags) asksFor(req *ratelimit.Request) error {
	if _, err := f.options(); err != nil {
		return err
	}
	switch {
	case req.Endpoint == "":
		return usageError("-endpoint is missing: what the request is for, such as /search")
	case req.Client == "" && req.IP == "" && len(req.Attrs) == 0:
		return usageError("-client or -ip is missing: who sends the request")
	}
	return meant(req, f.ipv6)
}

// before lets the limiter of the given Run decide on the requests of logs that come before the time end. The result strict is
// errFound if the answer about this client is doubtful and -strict is set.
func (f *logFlags) before(
	ctx context.Context, t *terminal, paths []string, end int64, run *replay.Run, client string,
) (strict, err error) {
	if len(paths) == 0 {
		return nil, nil
	}
	uncancelled, known, other := context.WithoutCancel(ctx), client == "", ""
	count, err := f.read(ctx, t, paths, func(e *accesslog.Entry) error {
		if e.Time >= end {
			return nil
		}
		if other = e.Client; other == client {
			known = true
		}
		return run.Add(uncancelled, e)
	})
	if err != nil {
		return nil, err
	}
	doubts := f.doubts(&count)
	if !known && other != "" {
		doubts = append(doubts, fmt.Sprintf("no request before is of client %s; a client in the log is %s: see -field client=COLUMN",
			quote(client), quote(other)))
	}
	return f.warnOf(t, doubts), nil
}

// shownUses is how many of the requests that used the budget of a rule explain lists.
const shownUses = 5

// printUses prints the last requests that have used the budget of a rule.
func printUses(p *page, u *replay.Uses) {
	if u == nil || u.Requests == 0 {
		return
	}
	text := "1 granted request"
	if u.Requests > 1 {
		text = number(u.Requests) + " granted requests"
	}
	if u.Requests > len(u.Last) {
		text += fmt.Sprintf(", the last %d", len(u.Last))
	}
	p.line("  used by %s:", text)
	for _, use := range u.Last {
		costs := ""
		if use.Cost != 1 {
			costs = fmt.Sprintf(", cost %d", use.Cost)
		}
		p.line("    %s %s for %s%s", use.Time.UTC().Format("2006-01-02 15:04:05.999999999"), plain(use.Client), quote(use.Endpoint), costs)
	}
}

// A listFlag collects the values of a flag that may be repeated.
type listFlag []string

func (l *listFlag) String() string { return "" }

// Set adds one value to the list.
func (l *listFlag) Set(text string) error {
	*l = append(*l, text)
	return nil
}

func printExplanation(t *terminal, e *ratelimit.Explanation, at time.Time, uses map[string]*replay.Uses) error {
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
	p.line("%s for %s, %s, at %s UTC", who, quote(req.Endpoint), strings.Join(costs, " and "),
		at.UTC().Format("2006-01-02 15:04:05.999999999"))
	p.line("%s", answer(e.Result))
	if len(e.Rules) == 0 {
		p.line("no rule applies")
	}
	for i := range e.Rules {
		r := &e.Rules[i]
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
			continue
		}
		if r.Result.Limit < 0 {
			p.line("  limit  none for this client, by its %s", r.RateFrom)
			continue
		}
		rate := strings.TrimSpace(plain(string(r.Algorithm)) + " " + r.Rate.String() + " " + r.Unit)
		if r.RateFrom != "rule" {
			rate += ", by its " + string(r.RateFrom)
		}
		length := calendar.LengthAt(string(r.Rate.Window), r.Rate.Per, at)
		p.line("  limit  %s, at most %d in any %s", rate, bound(r, length), span(length))
		p.line("  state  %s: %d of %d left, %s", stateText(string(r.AnsweredBy)), r.Result.Remaining, r.Result.Limit, answer(r.Result))
		p.line("         as new after %s", wait(r.Result.ResetAfter))
		if r.Err != nil {
			p.line("  error  %s", plain(r.Err.Error()))
		}
		printUses(p, uses[r.Name])
	}
	_, err := io.WriteString(t.out, p.String())
	return err
}

// bound returns the most that the rule r grants in any interval of the given length, of which one end does not count.
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
