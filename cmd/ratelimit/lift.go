package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

var liftCommand = command{
	name:    "lift",
	summary: "end blocks, exemptions and rates, in Redis",
	examples: `
ratelimit lift -redis redis://127.0.0.1:6379 -name shop -client alice
ratelimit lift -name shop -config limits.json -ip 10.0.0.0/8 -rules /search
ratelimit lift -name shop -all
`,
	about: `
Ends all that block, exempt and rate have set for one client, or for an address
or a prefix; with -rules or -rule, what was set for exactly these rules; with
-all, for everybody. It prints what it has lifted. The exit code is 1 if there
was nothing to lift.

Processes whose limiters have the option WithOverrides obey within a second
after their next request. Names may be pasted as "overrides" prints them. The server
is redis://127.0.0.1:6379/0 if none is given.
`,
	run: runLift,
}

var pardonCommand = command{
	name:    "pardon",
	summary: "end the block that a rule's penalty has begun, in Redis",
	examples: `
ratelimit pardon -redis redis://127.0.0.1:6379 -name shop -config limits.json \
    -client alice
ratelimit pardon -name shop -config limits.json -ip 203.0.113.9 -rule /login
`,
	about: `
Ends the blocks that the penalties of rules have begun for one client or one
address, and forgets its denials: in all rules, or in those that -rules or -rule
names. It gives no budget back, see "reset". The file of rules says which rules
have a penalty. A rule is left out if its key has more parts than the client, or
the address: the command prints which ones are. It holds at once; a process that
remembers a denial may deny for one second more. The server is
redis://127.0.0.1:6379/0 if none is given.
`,
	run: runPardon,
}

var overridesCommand = command{
	name:    "overrides",
	summary: "list who is blocked, exempt or has a rate, in Redis",
	examples: `
ratelimit overrides -redis redis://127.0.0.1:6379 -name shop
ratelimit overrides -name shop -json
`,
	about: `
Lists what block, exempt and rate have set for a limiter and what has not ended,
for all, or for one -client or -ip. It reads the list in the server: what files
and programs have set for single processes is not in it. The server is
redis://127.0.0.1:6379/0 if none is given.
`,
	run: runOverrides,
}

// An overridesJSON is what the command overrides prints with the flag -json.
type overridesJSON struct {
	Server    string         `json:"server"`
	Limiter   string         `json:"limiter"`
	Time      time.Time      `json:"time"` // of the server
	Overrides []overrideJSON `json:"overrides"`
}

// same compares two overrides. It reports whether both are for the same client and the same address. If the second override
// names rules, the first override must also be for exactly these rules.
func same(o, whom *ratelimit.Override) bool {
	rules := func(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
	return o.Client == whom.Client && o.IP == whom.IP && (len(whom.Rules) == 0 || slices.Equal(rules(o.Rules), rules(whom.Rules)))
}

// canonical returns the override o with its IP in the spelling that limiters store. To find this spelling, it makes a limiter,
// sets an override with the same IP, and reads this override back.
func canonical(ctx context.Context, o ratelimit.Override) (ratelimit.Override, error) {
	if o.IP == "" {
		return o, nil
	}
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerSecond(1)}}, nil)
	if err != nil {
		return o, err
	}
	if err := l.Override(ctx, ratelimit.Override{IP: o.IP, Effect: ratelimit.EffectBlock}); err != nil {
		return o, usageError(asFlag(err))
	}
	all, err := l.Overrides(ctx)
	if err == nil {
		o.IP = all[0].IP
	}
	return o, err
}

func runLift(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	how := newWhomFlags(fs)
	everybody := fs.Bool("all", false, "lift all of the limiter's")
	urls, err := parse(fs, args, 0, 1, "the server")
	if err != nil {
		return err
	}
	if *everybody && (*how.client != "" || *how.ip != "" || len(how.rules) > 0) {
		return usageError("-all stands beside -client, -ip or -rules: it lifts what is set for everybody")
	}
	whom, err := canonical(ctx, how.whom(*how.server.name))
	if err != nil {
		return err
	}
	s, err := how.open(ctx, urls, !*everybody)
	if err != nil {
		return err
	}
	defer s.close()
	lifted := s.list
	if !*everybody {
		lifted = slices.DeleteFunc(slices.Clone(s.list), func(o ratelimit.Override) bool { return !same(&o, &whom) })
	}
	if len(lifted) == 0 {
		fmt.Fprintf(t.err, "%s: nothing to lift in limiter %s; see ratelimit overrides\n", s.address, name(s.name))
		return errFound
	}
	changes := []ratelimit.Override{whom}
	if *everybody {
		changes = changes[:0]
		for _, o := range lifted {
			if n := len(changes); n == 0 || changes[n-1].Client != o.Client || changes[n-1].IP != o.IP {
				changes = append(changes, ratelimit.Override{Client: o.Client, IP: o.IP})
			}
		}
	}
	if err := s.set(ctx, changes...); err != nil {
		return err
	}
	if *how.asJSON {
		return printOverridesJSON(t, s, lifted)
	}
	p := &page{width: wide(t)}
	p.line("%s: lifted %s of limiter %s", s.address, countOf(len(lifted)), name(s.name))
	p.table(overrideRows(lifted, s.now), 2, 4)
	p.line("Processes with WithOverrides obey within 1s after their next request.")
	_, err = io.WriteString(t.out, p.String())
	return err
}

func runOverrides(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	how := newWhomFlags(fs)
	urls, err := parse(fs, args, 0, 1, "the server")
	if err != nil {
		return err
	}
	whom, err := canonical(ctx, how.whom(*how.server.name))
	if err != nil {
		return err
	}
	s, err := how.open(ctx, urls, false)
	if err != nil {
		return err
	}
	defer s.close()
	found := s.list
	if whom.Client != "" || whom.IP != "" {
		found = slices.DeleteFunc(found, func(o ratelimit.Override) bool { return !same(&o, &whom) })
	}
	if *how.asJSON {
		return printOverridesJSON(t, s, found)
	}
	p := &page{width: wide(t)}
	p.line("%s, %s UTC: %s of limiter %s", s.address, s.now.Format(timeFormat), countOf(len(found)), name(s.name))
	if len(found) > 0 {
		p.line("")
		p.table(overrideRows(found, s.now), 2, 4)
	} else {
		for _, hint := range s.hints(ctx, &ratelimit.Override{}) {
			p.line("note: %s", hint)
		}
	}
	_, err = io.WriteString(t.out, p.String())
	return err
}

func printOverridesJSON(t *terminal, s *target, all []ratelimit.Override) error {
	out := overridesJSON{Server: s.address, Limiter: s.name, Time: s.now, Overrides: []overrideJSON{}}
	for _, o := range all {
		out.Overrides = append(out.Overrides, jsonOf(s.now, o))
	}
	return t.printJSON(out)
}

// wide returns a width for tables. If the output is a terminal, this is the width of the terminal. Otherwise the width is so
// large that no table is cut, and the names in the tables are whole and can be pasted.
func wide(t *terminal) int {
	if isTerminal(t.out) {
		return t.width
	}
	return math.MaxInt32
}

// overrideRows returns a table of overrides as rows. The first row is the header.
func overrideRows(all []ratelimit.Override, now time.Time) [][]string {
	rows := [][]string{{"whom", "effect", "rules", "until", "note"}}
	for _, o := range all {
		effect, until := o.Effect, "lifted"
		if effect == ratelimit.EffectRate {
			effect += " " + o.Rate.String()
		}
		if !o.Until.IsZero() {
			until = o.Until.UTC().Format("2006-01-02 15:04") + " (" + rest(o.Until.Sub(now)) + ")"
		}
		rows = append(rows, []string{whomText(&o), effect, rulesText(&o), until, name(o.Note)})
	}
	return rows
}

func runPardon(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	how := newWhomFlags(fs)
	urls, err := parse(fs, args, 0, 1, "the server")
	if err != nil {
		return err
	}
	if *how.config == "" {
		return usageError("-config is missing: the file of rules")
	}
	o := how.whom(*how.server.name)
	o.Effect = ratelimit.EffectPardon
	s, err := how.open(ctx, urls, true)
	if err != nil {
		return err
	}
	defer s.close()
	done, others := s.penalized(&o)
	if err := s.set(ctx, o); err != nil { // set also fails if the flags name a rule that does not exist
		return err
	}
	if len(done) == 0 && len(others) == 0 {
		return fmt.Errorf("%s: none of these rules has a penalty", plain(*how.config))
	}
	if *how.asJSON {
		return t.printJSON(map[string][]string{"pardoned": append([]string{}, done...), "leftOut": append([]string{}, others...)})
	}
	p := &page{width: t.width}
	if len(done) > 0 {
		p.line("%s: pardoned %s in limiter %s", s.address, whomText(&o), name(s.name))
		p.line("rules  %s", strings.Join(escaped(done), ", "))
		p.line(remembered)
	}
	if len(others) > 0 {
		p.line("%sleft out: %s", map[bool]string{true: s.address + ": "}[len(done) == 0], strings.Join(escaped(others), ", "))
		p.line("their keys are not those of one %s alone; see ratelimit reset", map[bool]string{true: "address", false: "client"}[o.IP != ""])
	}
	if _, err := io.WriteString(t.out, p.String()); err != nil {
		return err
	}
	if len(done) == 0 {
		return errFound
	}
	return nil
}

// penalized looks for the rules that have a penalty. If the pardon o names rules, it looks only among these rules. A pardon for a
// client applies to rules whose keys are single clients. A pardon for an address applies to rules whose keys are single addresses.
// The names of these rules are in the result done. The names of all other rules with a penalty are in the result others.
func (t *target) penalized(o *ratelimit.Override) (done, others []string) {
	key := ratelimit.KeyUser
	if o.IP != "" {
		key = ratelimit.KeyIP
	}
	for _, r := range allRules(t.limiter) {
		switch named := len(o.Rules) == 0 || slices.Contains(o.Rules, r.Name); {
		case !named || r.Penalty == ratelimit.Penalty{}:
		case cmp.Or(r.Key, ratelimit.KeyUser) == key && !strings.Contains(o.IP, "/"):
			done = append(done, r.Name)
		default:
			others = append(others, r.Name)
		}
	}
	return done, others
}

// countOf returns a text such as "3 overrides".
func countOf(n int) string {
	if n == 1 {
		return "1 override"
	}
	return number(n) + " overrides"
}
