package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

var resetCommand = command{
	name:    "reset",
	summary: "give a client its limit back, in Redis or PostgreSQL",
	examples: `
ratelimit reset -redis redis://127.0.0.1:6379 -config limits.json -name shop \
    -client alice -endpoint /search
ratelimit reset -config limits.json -name shop -client alice
ratelimit reset -config limits.json -name shop -ip 203.0.113.9 -rule /login
ratelimit reset -postgres postgres://db/shop -config limits.json -name shop \
    -client alice -dry-run
`,
	about: `
Makes the keys of one client as good as new, by Reset of the library: in the
rules that apply to -endpoint, or in those that -rule names, or in all rules.
Without -client, -ip is also the client that httplimit names by this address.
A budget that clients share is reset only if -rule names the rule. The exit code
is 1 if nothing had been used. A process that remembers a denial may deny for
one second more. The server is redis://127.0.0.1:6379/0 if none is given.
`,
	run: runReset,
}

// A resetJSON is what the command reset prints with the flag -json.
type resetJSON struct {
	Server  string                `json:"server"`
	Limiter string                `json:"limiter"`
	DryRun  bool                  `json:"dryRun"`
	Keys    int                   `json:"keys"` // number of keys that had used something; they were reset, or would be without -dry-run
	Rules   []resetRow            `json:"rules"`
	unused  ratelimit.Explanation // how the rules would answer if no key had used anything
}

// A resetRow is what the command reset prints with the flag -json for one rule.
type resetRow struct {
	Rule   string `json:"rule"`
	Key    string `json:"key"`
	Limit  int    `json:"limit"`
	Before *int   `json:"leftBefore"` // null if the server does not say it
	Now    *int   `json:"leftNow"`
	Reset  bool   `json:"reset"` // false for a budget that clients share, unless -rule names the rule
}

func runReset(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	config := fs.String("config", "", "the `file` of rules")
	req := requestFlags(fs)
	rules := listFlag{}
	fs.Var(&rules, "rule", "the `name` of a rule; may be repeated")
	dryRun := fs.Bool("dry-run", false, "say what would be reset, and change nothing")
	asJSON := fs.Bool("json", false, "print JSON")
	ipv6 := fs.Int("ipv6", 64, "how many `bits` of an IPv6 address are one client, as IPv6Bits of httplimit")
	how := newServerFlags(fs)
	urls, err := parse(fs, args, 0, 1, "the server")
	if err != nil {
		return err
	}
	req.Rules = rules
	switch {
	case *config == "":
		return usageError("-config is missing: the file of rules")
	case *how.name == "":
		return usageError("-name is missing: the name of the limiter, as WithName says")
	case req.Client == "" && req.IP == "" && len(req.Attrs) == 0 && len(rules) == 0:
		return usageError("-client, -ip, -attr or -rule is missing: whose limit to give back")
	case *ipv6 < 32 || *ipv6 > 128:
		return usageError(fmt.Sprintf("-ipv6 is %d: must be from 32 to 128", *ipv6))
	}
	if err := meant(req, *ipv6); err != nil {
		return err
	}
	_, l, err := loadRules(*config) // reports errors in the file of rules before connecting to the server
	if err != nil {
		return err
	}
	look, err := toReset(t, l, req)
	if err != nil {
		return err
	}
	unused, err := l.Explain(ctx, *look)
	if err != nil {
		return err
	}
	s, err := how.connect(ctx, urls)
	if err != nil {
		return err
	}
	defer s.close()
	var store ratelimit.Store
	if err := s.within(ctx, func(ctx context.Context) (err error) { store, err = s.store(ctx); return err }); err != nil {
		return err
	}
	if _, l, err = loadRules(*config, ratelimit.WithStore(store), ratelimit.WithName(*how.name)); err != nil {
		return err
	}
	out := resetJSON{Server: s.address, Limiter: *how.name, DryRun: *dryRun, unused: unused}
	if err := s.resetAll(ctx, l, req, look, &out); err != nil {
		return err
	}
	return out.print(ctx, t, s, req, *asJSON)
}

// print prints what was reset. If nothing had been used, it returns errFound, or an error if the limiter has no key at all.
func (out *resetJSON) print(ctx context.Context, t *terminal, s *server, req *ratelimit.Request, asJSON bool) error {
	unknown := slices.ContainsFunc(out.Rules, func(r resetRow) bool { return r.Reset && r.Before == nil })
	nothing := out.Keys == 0 && !unknown
	if nothing {
		if err := s.checkName(ctx, out.Limiter); err != nil {
			return err
		}
	}
	var err error
	switch {
	case asJSON:
		err = t.printJSON(out)
	case nothing:
		_, err = fmt.Fprintf(t.out, "%s: nothing to reset: %s has used nothing in %s of limiter %s\n",
			s.address, whoIs(req), countText(len(out.Rules), "rule"), plain(out.Limiter))
	default:
		err = printReset(t, out)
	}
	if err == nil && nothing {
		return errFound
	}
	return err
}

// whoIs returns a text that says whose limits a request would use.
func whoIs(req *ratelimit.Request) string {
	switch {
	case req.IP != "" && req.Client == "ip:"+req.IP:
		return "address " + plain(req.IP)
	case req.Client != "":
		return "client " + plain(req.Client)
	case req.IP != "":
		return "address " + plain(req.IP)
	}
	return "the request"
}

// countText returns a number and a noun, such as "1 rule" or "2 rules".
func countText[N int | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

// toReset returns a copy of the request req. The command passes this copy to Explain, which says how much has been used of the
// keys to reset. If req has neither an endpoint nor rules, the copy names the rules of these keys. If there is no key to reset,
// toReset returns an error. It prints a note for a rule that is left out because req lacks a part of the rule's key.
func toReset(t *terminal, l *ratelimit.RateLimiter, req *ratelimit.Request) (*ratelimit.Request, error) {
	look := *req
	look.Costs = oneOfEach(allRules(l))
	if req.Endpoint == "" && len(req.Rules) == 0 {
		for _, r := range allRules(l) {
			if r.Limiter == nil && lacking(req, r.Key) == "" && !shared(r.Key) {
				look.Rules = append(look.Rules, r.Name)
			}
		}
		if len(look.Rules) == 0 {
			return nil, usageError(fmt.Sprintf("no rule limits by what is given alone: give also %s", missingParts(l, req)))
		}
		return &look, nil
	}
	for _, name := range req.Rules {
		if !slices.ContainsFunc(allRules(l), func(r ratelimit.Rule) bool { return r.Name == name }) {
			return nil, fmt.Errorf("no rule is called %s", quote(name))
		}
	}
	e, err := l.Explain(context.Background(), look)
	if err != nil {
		return nil, err
	}
	var notes []string
	meant := 0
	for _, r := range e.Rules {
		named := slices.Contains(req.Rules, r.Name)
		switch flag := lacking(req, r.KeyType); {
		case flag != "":
			notes = append(notes, fmt.Sprintf("rule %s limits by %s: give %s", quote(r.Name), plain(string(r.KeyType)), flag))
		case named || !shared(r.KeyType):
			meant++
		}
	}
	switch {
	case meant == 0 && len(notes) > 0:
		return nil, usageError(strings.Join(notes, "; "))
	case meant == 0 && len(e.Rules) > 0:
		return nil, usageError("only budgets that clients share apply: name the rule with -rule")
	case meant == 0:
		return nil, fmt.Errorf("no rule applies to %s", quote(req.Endpoint))
	}
	for _, note := range notes {
		t.warn("note: not reset: %s", note)
	}
	return &look, nil
}

// shared reports whether all clients share the keys of this type, because no part of such a key says who sends a request.
func shared(key ratelimit.KeyType) bool {
	return !slices.ContainsFunc(replay.PartsOf(key), func(part string) bool { return part != "global" && part != "endpoint" })
}

// missingParts returns the flags that the request lacks for the keys of the rules.
func missingParts(l *ratelimit.RateLimiter, req *ratelimit.Request) string {
	var flags []string
	for _, r := range allRules(l) {
		if flag := lacking(req, r.Key); flag != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return strings.Join(append(flags, "-rule"), " or ")
}

// resetAll resets the keys of the request req, unless out.DryRun is set, and fills in out. The parameter look is the request
// that toReset has made from req. It names the rules to report.
func (s *server) resetAll(ctx context.Context, l *ratelimit.RateLimiter, req, look *ratelimit.Request, out *resetJSON) error {
	before, err := s.explain(ctx, l, look)
	if err != nil {
		return err
	}
	after := before
	if !out.DryRun {
		if err := s.reset(ctx, l, req); err != nil {
			return err
		}
		if after, err = s.explain(ctx, l, look); err != nil {
			return err
		}
	}
	for i := range before.Rules {
		r := &before.Rules[i]
		row := resetRow{Rule: r.Name, Key: r.Key, Limit: r.Rate.Requests}
		named := slices.Contains(req.Rules, r.Name)
		if row.Reset = lacking(req, r.KeyType) == "" && (named || !shared(r.KeyType)); !row.Reset && len(req.Rules)+len(req.Endpoint) == 0 {
			continue // look.Rules does not name it; rules that are Additional or in shadow mode always apply
		}
		if r.AnsweredBy != "uncounted" && r.AnsweredBy != "unheld" {
			was, is := freeIn(before, i), freeIn(after, i)
			row.Limit, row.Before, row.Now = r.Result.Limit, &was, &is
			j := slices.IndexFunc(out.unused.Rules, func(x ratelimit.RuleExplanation) bool { return x.Name == r.Name })
			if row.Reset && (j < 0 || was < freeIn(out.unused, j)) {
				out.Keys++
			}
		}
		out.Rules = append(out.Rules, row)
	}
	return nil
}

// remembered says that the processes keep the last denials of a key, see WithDenialCache of redisstore and of dbstore.
const remembered = "Processes may still deny for 1s."

// printReset prints, for each rule, how many units were left before and after a reset.
func printReset(t *terminal, out *resetJSON) error {
	p := &page{width: t.width}
	verb := map[bool]string{false: "reset", true: "would reset"}[out.DryRun]
	p.line("%s: %s %s of limiter %s", out.Server, verb, countText(out.Keys, "key"), plain(out.Limiter))
	unknown := false
	rows := [][]string{{"rule", "key", "left before", "now", "of"}}
	text := func(n *int) string {
		if n == nil {
			unknown = true
			return "-"
		}
		return number(*n)
	}
	for _, r := range out.Rules {
		now := text(r.Now)
		if out.DryRun {
			now = "-"
		}
		rows = append(rows, []string{name(r.Rule), name(r.Key), text(r.Before), now, number(r.Limit)})
	}
	p.table(rows, 1)
	for _, r := range out.Rules {
		if !r.Reset {
			p.line("%s: not reset, as clients share it; see -rule", name(r.Rule))
		}
	}
	if out.Keys > 0 && !out.DryRun {
		p.line(remembered)
	}
	if unknown {
		p.line("-: not known here, but reset too; see top")
	}
	_, err := fmt.Fprint(t.out, p.String())
	return err
}

// oneOfEach returns a cost of one unit for each kind of unit that the rules count. It returns at most 16 costs, because a
// request may not have more than 16.
func oneOfEach(rules []ratelimit.Rule) (costs []ratelimit.Cost) {
	for _, r := range rules {
		c := ratelimit.Cost{Unit: r.Unit, N: 1}
		if !slices.Contains(costs, c) && len(costs) < 16 {
			costs = append(costs, c)
		}
	}
	return costs
}

// The method reset resets the keys of the request req: their full limits are free again. If RateLimiter.Reset refuses the
// request, the method reset returns an error.
func (s *server) reset(ctx context.Context, l *ratelimit.RateLimiter, req *ratelimit.Request) error {
	var refused error
	err := s.within(ctx, func(ctx context.Context) error {
		err := l.Reset(ctx, *req)
		if errors.Is(err, ratelimit.ErrNotReset) || errors.Is(err, ratelimit.ErrUnknownRule) {
			refused, err = err, nil
		}
		return err
	})
	if refused != nil {
		return errors.New(plain(refused.Error()))
	}
	return err
}

// The method explain returns how the rules that apply to the request req would answer this request.
func (s *server) explain(ctx context.Context, l *ratelimit.RateLimiter, req *ratelimit.Request) (e ratelimit.Explanation, err error) {
	err = s.within(ctx, func(ctx context.Context) (err error) {
		e, err = l.Explain(ctx, *req)
		return err
	})
	return e, err
}

// freeIn returns how many units of a rule were free when the request that e explains was about to be decided. The
// parameter i is the index of the rule in e.Rules. The request must cost one unit. If all rules grant the request, e
// already counts this unit as used, and freeIn adds it again.
func freeIn(e ratelimit.Explanation, i int) int {
	r := e.Rules[i].Result
	if e.Result.Allowed && r.Allowed && r.Limit > 0 {
		return r.Remaining + 1
	}
	return r.Remaining
}
