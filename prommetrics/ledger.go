package prommetrics

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
)

const (
	usualLimiter  = "default" // the name of a limiter that has none
	usualMaxRules = 500
	others        = "_other" // the name of all rules beyond the bound on their number

	maxName = 200      // bytes of a name that are shown
	cut     = "\u2026" // stands after a name that has more
)

// counts are what a rule has counted.
type counts struct {
	allowed, denied, shadowDenied, degraded, errors, overflowed, evicted uint64
}

// fields returns the fields of c, in their order.
func (c *counts) fields() [7]*uint64 {
	return [...]*uint64{&c.allowed, &c.denied, &c.shadowDenied, &c.degraded, &c.errors, &c.overflowed, &c.evicted}
}

// add adds to c what has been counted from last to now. A field that is lower now has begun
// again at zero, because the rule was made anew in between.
func (c *counts) add(now, last counts) {
	sums, since := c.fields(), last.fields()
	for i, n := range now.fields() {
		if *n < *since[i] {
			*since[i] = 0
		}
		*sums[i] += *n - *since[i]
	}
}

// A series is what is shown under one name: one rule, or several together.
type series struct {
	name   string
	counts counts
	keys   int
	rule   *ratelimit.Rule // the first rule; nil for the sum of others, or if it was removed just now
}

// A ledger has the counts of a limiter's rules, by the names under which they are shown.
//
// The counts that are shown never decrease while their name is shown, whatever becomes of the
// rules: each read adds what the rules have counted since the read before. The sum over all
// names is therefore right also when a rule moves to the sum of others, or back.
//
// This file is the same in prommetrics and otelmetrics, but for the name of the package.
type ledger struct {
	limiter  *ratelimit.RateLimiter
	maxRules int

	mu     sync.Mutex
	last   map[string]counts // of each rule at the last read, by its whole name; guarded by mu
	totals map[string]counts // by shown name; guarded by mu
}

func newLedger(l *ratelimit.RateLimiter, maxRules int) *ledger {
	if maxRules == 0 {
		maxRules = usualMaxRules
	}
	return &ledger{limiter: l, maxRules: maxRules}
}

// read returns what is to be shown now, in the order of the rules. The sum of others stands where
// the first of them does.
func (g *ledger) read() []series {
	g.mu.Lock()
	defer g.mu.Unlock()
	stats, rules := g.limiter.Stats(), g.rules()
	var all []series
	at := make(map[string]int)
	last, totals := make(map[string]counts, len(stats)), make(map[string]counts)
	for i := range stats {
		s := &stats[i]
		name, rule := shown(s.Rule), rules[s.Rule]
		n, known := at[name]
		if !known && i >= g.maxRules {
			name, rule = others, nil
			if n, known = at[name]; known {
				all[n].rule = nil // it may be that of a rule with this very name
			}
		}
		if !known {
			n = len(all)
			at[name] = n
			all = append(all, series{name: name, counts: g.totals[name], rule: rule})
		}
		now := counts{s.Allowed, s.Denied, s.ShadowDenied, s.Degraded, s.Errors, s.Overflowed, s.Evicted}
		all[n].counts.add(now, g.last[s.Rule])
		all[n].keys += s.LiveKeys
		last[s.Rule], totals[name] = now, all[n].counts
	}
	g.last, g.totals = last, totals
	return all
}

// rules returns the rules of the limiter by name.
func (g *ledger) rules() map[string]*ratelimit.Rule {
	list, defaultRule := g.limiter.Rules()
	rules := make(map[string]*ratelimit.Rule, len(list)+1)
	for i := range list {
		rules[list[i].Name] = &list[i]
	}
	if defaultRule != nil {
		rules[defaultRule.Name] = defaultRule
	}
	return rules
}

// shown returns name as it is shown. Bytes that are not UTF-8 are replaced. Of a long name the
// beginning is shown, and a hash, so that long names stay different.
func shown(name string) string {
	if len(name) <= maxName {
		return strings.ToValidUTF8(name, string(utf8.RuneError))
	}
	end := maxName
	for end > maxName-utf8.UTFMax && !utf8.RuneStart(name[end]) {
		end--
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:end], string(utf8.RuneError)) + cut + hex.EncodeToString(sum[:4])
}

// problems returns what is wrong with a limiter and the bound on its rules.
func problems(l *ratelimit.RateLimiter, maxRules int) (errs []error) {
	if l == nil {
		errs = append(errs, &ratelimit.ConfigError{Field: "limiter", Value: "nil", Reason: "must be made by ratelimit.New or configfile.Open"})
	}
	if maxRules < 0 {
		errs = append(errs, &ratelimit.ConfigError{Field: "maxRules", Value: maxRules, Reason: "must not be negative; 0 means 500"})
	}
	return errs
}
