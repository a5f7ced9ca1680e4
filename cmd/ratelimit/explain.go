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
	fs.StringVar(&r.Client, "client", "", "the `client`")
	fs.StringVar(&r.Endpoint, "endpoint", "", "the `endpoint`, such as a path")
	fs.StringVar(&r.IP, "ip", "", "the `address` of the client")
	fs.Var(attrFlag(r.Attrs), "attr", "an attribute, as `name=value`; may be repeated")
	return r
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
	paths, err := parse(fs, args, 1, 1)
	if err != nil {
		return err
	}
	req.Cost, req.Costs = cost.value, cost.costs
	clock, end := replay.NewClock(), int64(math.MaxInt64)
	switch ns, ok := accesslog.ParseTime(*at); {
	case ok:
		end = ns
	case *at != "":
		return usageError(fmt.Sprintf("-at is %q: must be a time, such as 2026-10-10T12:00:00Z", *at))
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
	if len(after) > 0 {
		run, uncancelled := replay.NewRun(clock, player, nil, nil), context.WithoutCancel(ctx)
		_, err = logs.read(ctx, t, after, func(e *accesslog.Entry) error {
			if e.Time >= end {
				return nil
			}
			return run.Add(uncancelled, e)
		})
		if err != nil {
			return err
		}
	}
	if *at != "" {
		clock.Set(end)
	}
	e, err := player.Limiter().Explain(ctx, *req)
	if err != nil {
		return err
	}
	if *asJSON {
		err = t.printJSON(e)
	} else {
		err = printExplanation(t, &e, clock.Now())
	}
	if err == nil && !e.Result.Allowed {
		err = errFound
	}
	return err
}

// A listFlag collects the values of a flag that may be repeated.
type listFlag []string

func (l *listFlag) String() string { return "" }

// Set adds one value to the list.
func (l *listFlag) Set(text string) error {
	*l = append(*l, text)
	return nil
}

func printExplanation(t *terminal, e *ratelimit.Explanation, at time.Time) error {
	p := &page{width: t.width}
	req := &e.Request
	who := "client " + quote(req.Client)
	if req.Client == "" && req.IP != "" {
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
		p.line("  limit  %s, at most %d in %s", rate, r.MaxIn, calendar.LengthAt(string(r.Rate.Window), r.Rate.Per, at))
		p.line("  state  %s: %d of %d left, %s", stateText(string(r.AnsweredBy)), r.Result.Remaining, r.Result.Limit, answer(r.Result))
		p.line("         as new after %s", wait(r.Result.ResetAfter))
		if r.Err != nil {
			p.line("  error  %s", plain(r.Err.Error()))
		}
	}
	_, err := io.WriteString(t.out, p.String())
	return err
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
		return "granted, to be held for " + r.Delay.String()
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
	return d.String()
}
