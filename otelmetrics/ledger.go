package otelmetrics

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
)

const (
	defaultLimiter  = "default" // the name of a limiter without a name
	defaultMaxRules = 500
	others          = "_other" // all rules beyond the first maxRules are exported together under this name

	maxName  = 200      // a longer name is cut to at most this number of bytes
	ellipsis = "\u2026" // follows a name that was cut
)

// counters describes the counters that each rule has.
var counters = ratelimit.Counters()

// help returns the help text of the metric with this name. If the metric has a counter for each of several
// results, the text explains each result.
func help(name string) string {
	var texts []string
	for _, c := range counters {
		if c.Name == name {
			texts = append(texts, strings.TrimPrefix(c.Result+": "+c.Help, ": "))
		}
	}
	return strings.Join(texts, " ")
}

// counts contains the value of each counter, in the order of ratelimit.Counters().
type counts []uint64

// add adds to c what a rule has counted since the previous read of its statistics. The parameter last has the values of the
// previous read. The parameter now has the values of this read. A value may be lower than at the previous read: then a new
// rule with the same name has replaced the rule, and its counters began at zero. For such a counter, add adds the whole
// value of this read.
func (c counts) add(now, last *ratelimit.RuleStats) {
	for i, counter := range counters {
		n, since := counter.Value(now), counter.Value(last)
		if n < since {
			since = 0
		}
		c[i] += n - since
	}
}

// A series contains what is exported under one name: the values of one rule, or the sums of the values of
// several rules.
type series struct {
	name   string
	counts counts
	keys   int

	// rule is the first rule of the series. It is nil if the series adds up all rules beyond the first
	// maxRules, or if the rule was removed during the read.
	rule *ratelimit.Rule
}

// A ledger keeps what the rules of a limiter have counted, by the names under which the counts are
// exported.
//
// A count never decreases while its name is exported, even if rules are removed and added: each read adds
// what the rules have counted since the read before. So the sum over all names counts each request once,
// even if its rule is exported first under its own name and later under "_other".
//
// This file is the same in prommetrics and otelmetrics, except for the name of the package.
type ledger struct {
	limiter  *ratelimit.RateLimiter
	maxRules int

	mu sync.Mutex

	// last has the statistics of each rule at the last read, by the name of the rule; guarded by mu. The names here are
	// whole, even if they are exported truncated.
	last map[string]ratelimit.RuleStats

	// totals has the counts by the names under which they are exported; guarded by mu. Each read makes
	// new slices of counts, because the slices of an earlier read may still be in use.
	totals map[string]counts
}

func newLedger(l *ratelimit.RateLimiter, maxRules int) *ledger {
	if maxRules == 0 {
		maxRules = defaultMaxRules
	}
	return &ledger{limiter: l, maxRules: maxRules}
}

// read returns the series to export now, in the order of the rules. The series "_other", which adds up
// several rules, has the place of the first of them.
func (g *ledger) read() []series {
	g.mu.Lock()
	defer g.mu.Unlock()
	stats, rules := g.limiter.Stats(), g.rules()
	var all []series
	at := make(map[string]int)
	last, totals := make(map[string]ratelimit.RuleStats, len(stats)), make(map[string]counts)
	for i := range stats {
		s := &stats[i]
		name, rule := truncate(s.Rule), rules[s.Rule]
		n, known := at[name]
		if !known && i >= g.maxRules {
			name, rule = others, nil
			if n, known = at[name]; known {
				all[n].rule = nil // the series has the values of several rules, so it describes no single rule
			}
		}
		if !known {
			n = len(all)
			at[name] = n
			sums := make(counts, len(counters))
			copy(sums, g.totals[name])
			all = append(all, series{name: name, counts: sums, rule: rule})
		}
		before := g.last[s.Rule]
		all[n].counts.add(s, &before)
		all[n].keys += s.LiveKeys
		last[s.Rule], totals[name] = *s, all[n].counts
	}
	g.last, g.totals = last, totals
	return all
}

// rules returns the rules of the limiter, by name.
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

// truncate returns a name as it is exported. It replaces bytes that are not UTF-8. It cuts a long name and
// adds a hash of the whole name, so that different long names stay different.
func truncate(name string) string {
	if len(name) <= maxName {
		return strings.ToValidUTF8(name, string(utf8.RuneError))
	}
	end := maxName
	for end > maxName-utf8.UTFMax && !utf8.RuneStart(name[end]) {
		end--
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:end], string(utf8.RuneError)) + ellipsis + hex.EncodeToString(sum[:4])
}

// problems returns an error for each of its arguments that is invalid.
func problems(l *ratelimit.RateLimiter, maxRules int) (errs []error) {
	if l == nil {
		errs = append(errs, &ratelimit.ConfigError{Field: "limiter", Value: "nil", Reason: "must be made by ratelimit.New or configfile.Open"})
	}
	if maxRules < 0 {
		errs = append(errs, &ratelimit.ConfigError{Field: "maxRules", Value: maxRules, Reason: "must not be negative; 0 means 500"})
	}
	return errs
}
