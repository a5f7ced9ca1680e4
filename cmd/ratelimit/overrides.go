package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

var blockCommand = command{
	name:    "block",
	summary: "deny a client or some addresses, in Redis",
	examples: `
ratelimit block -redis redis://127.0.0.1:6379 -name shop -client alice -for 1h
ratelimit block -name shop -ip 203.0.113.0/24 -note "ticket 4711"
ratelimit block -name shop -config limits.json -client alice -rules /search,/login
`,
	about: `
Denies all requests of one client, or from an address or a prefix: for the time
-for, or to the time -until, or until "lift". With -rules or -rule, it denies
those requests to which one of these rules applies. What was set before for the
same client or address, the same effect and the same rules is replaced.
` + aboutOverrides,
	run: func(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
		return runSet(ctx, t, fs, args, ratelimit.EffectBlock)
	},
}

var exemptCommand = command{
	name:    "exempt",
	summary: "free a client or some addresses from rules, in Redis",
	examples: `
ratelimit exempt -redis redis://127.0.0.1:6379 -name shop -client alice -for 2h
ratelimit exempt -name shop -ip 10.0.0.0/8 -until 2026-12-01
ratelimit exempt -name shop -client alice -until tomorrow -note "ticket 4711"
ratelimit exempt -name shop -config limits.json -client alice -rule /search
`,
	about: `
Frees one client, or an address or a prefix, from all rules, or from those that
-rules or -rule names: they neither limit nor count the requests. It lasts for
the time -for, or to the time -until, or until "lift".
` + aboutOverrides,
	run: func(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
		return runSet(ctx, t, fs, args, ratelimit.EffectExempt)
	},
}

var rateCommand = command{
	name:    "rate",
	summary: "give a client or some addresses another limit, in Redis",
	examples: `
ratelimit rate -redis redis://127.0.0.1:6379 -name shop -config limits.json \
    -client alice 500/m
ratelimit rate -name shop -config limits.json -ip 10.0.0.0/8 -for 7d 500/m
`,
	about: `
Gives one client, or each address of a prefix, another limit: in all rules whose
keys belong to one client, or to one address, or in those that -rules or -rule
names. The file of rules says which these are. A window keeps its length.
` + aboutOverrides,
	run: func(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
		return runSet(ctx, t, fs, args, ratelimit.EffectRate)
	},
}

const aboutOverrides = `
Processes whose limiters have the option WithOverrides obey within a second
after their next request. -rules, -rule and rates need -config, so that nothing is
set that could not apply. Names may be pasted as replay, top and logs print
them: quotation marks and escapes such as \x1b are read, except with -exact.
The note ends with who you are: user@host. The server is
redis://127.0.0.1:6379/0 if none is given.
`

// whomFlags hold the flags that say which overrides a command reads or changes. The flags name a limiter, and a client or
// addresses. The command reads or changes the overrides that this limiter has for this client or these addresses.
type whomFlags struct {
	server     *serverFlags
	config     *string
	client, ip *string
	rules      listFlag
	exact      *bool
	asJSON     *bool
}

func newWhomFlags(fs *flag.FlagSet) *whomFlags {
	w := &whomFlags{
		server: newRedisFlags(fs),
		config: fs.String("config", "", "the `file` of rules"),
		client: fs.String("client", "", "the `client`"),
		ip:     fs.String("ip", "", "the `address`, or a prefix such as 10.0.0.0/8"),
		exact:  fs.Bool("exact", false, "take names as they are, without quotation marks and escapes"),
		asJSON: fs.Bool("json", false, "print JSON"),
	}
	fs.Var(&w.rules, "rule", "the `name` of a rule; may be repeated")
	fs.Var((*commaFlag)(&w.rules), "rules", "`names` of rules, with commas between them")
	return w
}

// A commaFlag is a flag with a list as its value. Each use of the flag adds values to the list. Several values have commas
// between them.
type commaFlag listFlag

func (c *commaFlag) String() string { return "" }

// Set adds the values in text to the list.
func (c *commaFlag) Set(text string) error {
	*c = append(*c, strings.Split(text, ",")...)
	return nil
}

// A target is a limiter with its overrides, which a command reads or changes. The overrides are kept in a Redis server.
type target struct {
	*server
	name    string
	limiter *ratelimit.RateLimiter // has the rules of the file in the flag -config; without this flag, one rule that decides nothing
	now     time.Time              // time of the server
	list    []ratelimit.Override   // all overrides in the server that have not ended
}

// open connects to the server, and reads the overrides of the limiter there. The parameter urls has the arguments that name a
// server. If the parameter whom is true, the flag -client or the flag -ip must be given.
func (w *whomFlags) open(ctx context.Context, urls []string, whom bool) (*target, error) {
	if _, _, err := w.server.url(urls); err != nil {
		return nil, err
	}
	given := *w.client != "" || *w.ip != ""
	switch {
	case *w.server.name == "":
		return nil, usageError("-name is missing: the name of the limiter, as WithName says")
	case whom && !given:
		return nil, usageError("-client or -ip is missing: whom the override is for")
	case *w.client != "" && *w.ip != "":
		return nil, usageError("-client and -ip are given: an override is for one of them")
	case len(w.rules) > 0 && *w.config == "":
		return nil, usageError("-config is missing: the file of rules that -rules or -rule names")
	}
	opts := []ratelimit.Option{ratelimit.WithName(*w.server.name)}
	if *w.config != "" {
		if _, _, err := loadRules(*w.config, opts...); err != nil { // reports errors in the file before connecting to the server
			return nil, err
		}
	}
	s, err := w.server.connect(ctx, urls)
	if err != nil {
		return nil, err
	}
	t := &target{server: s, name: *w.server.name}
	opts = append(opts, ratelimit.WithStore(s.redis()), ratelimit.WithOverrides())
	if *w.config != "" {
		_, t.limiter, err = loadRules(*w.config, opts...)
	} else {
		t.limiter, err = ratelimit.New([]ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerSecond(1)}}, nil, opts...)
	}
	if err == nil {
		err = t.read(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return t, nil
}

// read reads the overrides from the server into t. It also calls the method Overrides of the limiter, because this call tells
// the limiter the time of the server.
func (t *target) read(ctx context.Context) error {
	return t.within(ctx, func(ctx context.Context) error {
		c, err := t.redis().OverridesSince(ctx, t.name, ratelimit.OverrideVersion{})
		if err != nil {
			return err
		}
		t.now = c.Now.UTC()
		t.list = slices.DeleteFunc(c.Set, func(o ratelimit.Override) bool { return !o.Until.IsZero() && !t.now.Before(o.Until) })
		slices.SortStableFunc(t.list, func(a, b ratelimit.Override) int {
			return cmp.Or(strings.Compare(a.IP, b.IP), strings.Compare(a.Client, b.Client))
		})
		_, err = t.limiter.Overrides(ctx)
		return err
	})
}

// The method whom returns an override for the client or the address that the flags name, and for the rules that they name. The
// caller then sets the effect of the override.
func (w *whomFlags) whom(limiter string) ratelimit.Override {
	o := ratelimit.Override{Client: *w.client, IP: *w.ip}
	for _, name := range w.rules {
		if !*w.exact {
			name = strings.TrimPrefix(pasted(strings.TrimSpace(name)), limiter+":") // a user may paste "limiter:rule" from the command top
		}
		o.Rules = append(o.Rules, name)
	}
	if !*w.exact {
		o.Client, o.IP = pasted(o.Client), pasted(o.IP)
	}
	return o
}

func runSet(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string, effect string) error {
	how := newWhomFlags(fs)
	lasts := fs.String("for", "", "how `long` it lasts, such as 90m, 2h or 7d")
	until := fs.String("until", "", "the `time` at which it ends, in UTC: such as 18:00, tomorrow, \"tomorrow 9:00\",\n"+
		"2026-12-01 or 2026-12-01T00:00:00Z")
	note := fs.String("note", "", "a `text` for people: why; who you are is added")
	args, err := parse(fs, args, 0, 2, "the server")
	if err != nil {
		return err
	}
	urls := slices.Clone(args)
	o := how.whom(*how.server.name)
	o.Effect = effect
	var ends func(now time.Time) time.Time
	if o.Note, ends, err = lastingAs(*note, *lasts, *until); err != nil {
		return err
	}
	if effect == ratelimit.EffectRate {
		i := slices.IndexFunc(urls, func(text string) bool { return !strings.Contains(text, "://") })
		switch {
		case i < 0:
			return usageError("the rate is missing, such as 500/m")
		case *how.config == "":
			return usageError("-config is missing: the file of rules, whose limits the rate replaces")
		}
		if o.Rate, err = ratelimit.ParseRate(urls[i]); err != nil {
			return usageError(asFlag(err))
		}
		urls = slices.Delete(urls, i, i+1)
	}
	if o, err = canonical(ctx, o); err != nil {
		return err
	}
	s, err := how.open(ctx, urls, true)
	if err != nil {
		return err
	}
	defer s.close()
	if o.Until = ends(s.now); !o.Until.IsZero() && !s.now.Before(o.Until) {
		return usageError(fmt.Sprintf("-until is %s: must be in the future: it is %s in the server",
			o.Until.UTC().Format(time.RFC3339), s.now.Format(time.RFC3339)))
	}
	if err := s.set(ctx, o); err != nil {
		return err
	}
	if *how.asJSON {
		return t.printJSON(jsonOf(s.now, o))
	}
	p := &page{width: t.width}
	p.line("%s: %s %s in limiter %s", s.address, pastOf(&o), whomText(&o), name(s.name))
	p.line("rules  %s", rulesText(&o))
	p.line("until  %s", untilText(&o, s.now))
	p.line("note   %s", plain(o.Note))
	p.line("Processes with WithOverrides obey within 1s after their next request.")
	for _, hint := range s.hints(ctx, &o) {
		p.line("note: %s", hint)
	}
	_, err = io.WriteString(t.out, p.String())
	return err
}

// set sets the given overrides in the server: either all of them or none. If the overrides are wrong, the error is a
// usageError.
func (t *target) set(ctx context.Context, o ...ratelimit.Override) error {
	var wrong error
	err := t.within(ctx, func(ctx context.Context) error {
		err := t.limiter.Override(ctx, o...)
		if isMistake(err) {
			wrong, err = usageError(asFlag(err)), nil
		}
		return err
	})
	return cmp.Or(wrong, err)
}
