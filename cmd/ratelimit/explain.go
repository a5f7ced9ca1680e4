package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
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
ratelimit explain limits.json -client alice -endpoint /search \
    -after access.log -redis redis://127.0.0.1:6379 -name shop
`,
	about: `
Says which rules apply to one request, and what each of them answers. Without
-after, nothing was used before. With it, the requests of that log come first:
all of them, or those before -at. The time is -at, or that of the last line of
the log, or now. The exit code is 1 if the request is denied.

Overrides, such as the block of a client, are those of the file of rules and,
with -redis and -name, those that block, exempt and rate have set in the server,
or those in the file -overrides. They hold for all requests of the log, because
nothing says when they were set.
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

// meant completes a request that was read from flags. It writes the address as httplimit writes it. In httplimit, an IPv6
// address becomes a prefix with as many bits as the parameter ipv6. If the request has only the address 10.0.0.1, its client
// becomes "ip:10.0.0.1". If it has only the client "ip:10.0.0.1", its address becomes 10.0.0.1.
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

// refuse returns a usageError if a rule that applies to the request limits by a part that the request does not have, such as an
// address. Without the error, the command would answer for a request with an empty address, which nobody meant. If only an
// attribute is missing, refuse prints a note instead, because a request may have no such attribute on purpose.
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
	exceptions := newExceptionFlags(fs)
	logs := newLogFlags(fs)
	paths, err := parse(fs, args, 1, 1, "the file of rules")
	if err != nil {
		return err
	}
	req.Cost, req.Costs = cost.value, cost.costs
	if err := logs.asksFor(req); err != nil {
		return err
	}
	clock := replay.NewClock()
	end, err := endOfLog(*at, len(after) > 0, clock)
	if err != nil {
		return err
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
	if err := exceptions.apply(ctx, t, player.Limiter()); err != nil {
		return err
	}
	seen := player.Watch(req, shownUses)
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
		err = printExplanationJSON(t, &e, clock.Now(), seen)
	} else {
		err = printExplanation(t, &e, clock.Now(), seen)
	}
	if err == nil && !e.Result.Allowed {
		err = errFound
	}
	return cmp.Or(err, strict)
}

// endOfLog returns the time before which requests of logs count: the value of the flag -at or, without the flag, the
// largest possible time. If there are neither logs nor the flag, it also sets the clock to the current time.
func endOfLog(at string, logs bool, clock *replay.Clock) (timeFlag, error) {
	end := timeFlag(math.MaxInt64)
	switch {
	case at != "":
		if err := end.Set(at); err != nil {
			return end, usageError(fmt.Sprintf("-at is %q: %v", plain(shortened(at)), err))
		}
	case !logs:
		clock.Set(time.Now().UnixNano())
	}
	return end, nil
}

// asksFor returns a usageError if the flags do not describe a request. Otherwise it calls meant(req), which completes the
// request.
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

// The method before reads the logs at the given paths. The limiter of the given Run decides on each request whose time is below
// the parameter end, and all others are skipped. The parameter client is the client of the request to explain. The result strict
// is errFound if -strict is set and there is a warning about the logs.
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

// A listFlag collects the values of a flag that may be repeated.
type listFlag []string

func (l *listFlag) String() string { return "" }

// Set adds one value to the list.
func (l *listFlag) Set(text string) error {
	*l = append(*l, text)
	return nil
}
