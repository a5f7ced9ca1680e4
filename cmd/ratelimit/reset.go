package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"

	"github.com/ratelimit-go/ratelimit"
)

var resetCommand = command{
	name:    "reset",
	summary: "give a client its limit back, in Redis",
	examples: `
ratelimit reset redis://127.0.0.1:6379 -config limits.json -name shop \
    -client alice -endpoint /search
ratelimit reset -config limits.json -name shop -client alice
ratelimit reset -config limits.json -name shop -ip 203.0.113.9 -rule /login
`,
	about: `
Makes the keys of one client as good as new, by Reset of the library: in the
rules that apply to -endpoint, or in those that -rule names, or in all rules.
A budget that clients share is reset only if -rule names the rule. A process
that remembers a denial may deny for one second more. The server is
redis://127.0.0.1:6379/0 if none is given.
`,
	run: runReset,
}

func runReset(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	config := fs.String("config", "", "the `file` of rules")
	req := requestFlags(fs)
	rules := listFlag{}
	fs.Var(&rules, "rule", "the `name` of a rule; may be repeated")
	how := newServerFlags(fs)
	urls, err := parse(fs, args, 0, 1)
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
	}
	if _, _, err := loadRules(*config); err != nil { // reports errors in the file of rules before connecting to the server
		return err
	}
	s, err := how.connect(ctx, urls)
	if err != nil {
		return err
	}
	defer s.close()
	_, l, err := loadRules(*config, ratelimit.WithStore(s.store), ratelimit.WithName(*how.name))
	if err != nil {
		return err
	}
	req.Costs = oneOfEach(allRules(l))
	before, err := s.explain(ctx, l, req)
	if err != nil {
		return err
	}
	if err := s.reset(ctx, l, req); err != nil {
		return err
	}
	after, err := s.explain(ctx, l, req)
	if err != nil {
		return err
	}
	return printReset(t, s.address, before, after)
}

// printReset prints the address of the server and, for each rule, how many units were left before and after a reset.
func printReset(t *terminal, address string, before, after ratelimit.Explanation) error {
	if len(before.Rules) == 0 {
		fmt.Fprintf(t.out, "%s: reset in all rules whose keys are made of what was given\n", address)
		return nil
	}
	p := &page{width: t.width}
	p.line("%s: reset", address)
	unknown := false
	rows := [][]string{{"rule", "key", "left before", "now", "of"}}
	for i, r := range before.Rules {
		if r.AnsweredBy == "uncounted" || r.AnsweredBy == "unheld" {
			rows = append(rows, []string{name(r.Name), name(r.Key), "-", "-", number(r.Rate.Requests)})
			unknown = true
			continue
		}
		rows = append(rows, []string{name(r.Name), name(r.Key), number(freeIn(before, i)), number(freeIn(after, i)), number(r.Result.Limit)})
	}
	p.table(rows, 1)
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

// The method explain returns how the rules that apply to the request req would answer this request. If the request names
// no endpoint and no rules, the Explanation is empty.
func (s *server) explain(ctx context.Context, l *ratelimit.RateLimiter, req *ratelimit.Request) (e ratelimit.Explanation, err error) {
	if req.Endpoint == "" && len(req.Rules) == 0 {
		return e, nil
	}
	err = s.within(ctx, func(ctx context.Context) (err error) {
		e, err = l.Explain(ctx, *req)
		if errors.Is(err, ratelimit.ErrUnknownRule) {
			return nil // this error is not reported here, because the method Reset also returns it
		}
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
