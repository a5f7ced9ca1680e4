package verify

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// A ledger is an account that also remembers what it was granted, and at which rates.
type ledger struct {
	account
	bucket bool
	grants []grant
	bursts []int // burst in force at each of grants
	rates  []ratesince
}

// A ratesince is a rate, with the instant since which it is in force.
type ratesince struct {
	at   *big.Rat
	rate ratelimit.Rate
	gift *big.Rat // what the change gave: a token bucket that is full stays full
}

func newLedger(made time.Time, r bookRule, rate ratelimit.Rate) account {
	a := named(r.Algorithm)
	return &ledger{account: plain{a.model(made, rate)}, bucket: a.bucket, rates: []ratesince{{epoch(made), rate, rat(0)}}}
}

func (l *ledger) Ask(at time.Time, n int) ratelimit.Result {
	res := l.account.Ask(at, n)
	if res.Allowed && n > 0 {
		l.grants = append(l.grants, grant{at: epoch(at), n: rat(n)})
		l.bursts = append(l.bursts, res.Limit)
	}
	return res
}

func (l *ledger) SetRate(at time.Time, r ratelimit.Rate) {
	gift, was := rat(0), l.account.Ask(at, 0)
	l.account.SetRate(at, r)
	if is := l.account.Ask(at, 0); was.ResetAfter == 0 && is.ResetAfter == 0 {
		gift = rat(max(is.Limit-was.Limit, 0))
	}
	l.rates = append(l.rates, ratesince{epoch(at), r, gift})
}

func (l *ledger) Reset() {
	l.account.Reset()
	l.grants, l.bursts = nil, nil
}

// earned returns what the rates in force from a to b earn, and what the changes give in that
// time to a key that is full.
func (l *ledger) earned(a, b *big.Rat) *big.Rat {
	earned := rat(0)
	for i, r := range l.rates {
		from, to := r.at, b
		if i+1 < len(l.rates) && less(l.rates[i+1].at, b) {
			to = l.rates[i+1].at
		}
		if less(from, a) {
			from = a
		} else if !less(b, from) {
			earned = add(earned, r.gift)
		}
		if less(from, to) {
			earned = add(earned, div(sub(to, from), (&oracle{rate: r.rate}).perUnit()))
		}
	}
	return earned
}

// broken returns a text that says which interval holds more than the burst at its beginning
// and what the rates in force then earn, or "".
func (l *ledger) broken() string {
	if !l.bucket {
		return ""
	}
	for i, first := range l.grants {
		taken := rat(0)
		for _, last := range l.grants[i:] {
			taken = add(taken, last.n)
			if less(add(rat(l.bursts[i]), l.earned(first.at, last.at)), taken) {
				return fmt.Sprintf("%s units in an interval that begins at %s", taken.RatString(), first.at.RatString())
			}
		}
	}
	return ""
}

// setRate changes the rate of the rule r for all keys.
func (b *book) setRate(at time.Time, r *bookRule, rate ratelimit.Rate) {
	for _, a := range b.accounts[r.Name] {
		a.SetRate(at, rate)
	}
	r.Rate = rate
}

// A changer changes the rules of a table while the table is asked.
type changer struct {
	*table
	made int // number of rules that were added
	done map[string]int
}

// change makes one change of the rules, and compares what is left.
func (c *changer) change(t *rapid.T) {
	r := &c.book.rules[rapid.IntRange(0, len(c.book.rules)-1).Draw(t, "rule")]
	old, rate := r.Rate, drawRate(t, r.Algorithm)
	kind := rapid.SampledFrom([]string{"update", "update", "equal", "back", "replace", "replace", "default", "add", "remove", "wrong"}).Draw(t, "change")
	c.done[kind]++
	switch kind {
	case "update":
		c.update(t, r, rate)
	case "equal":
		before := c.looks(t, ratelimit.Request{})
		require.NoError(t, c.limiter.UpdateRate(r.Name, old))
		require.Equal(t, before, c.looks(t, ratelimit.Request{}))
	case "back":
		c.update(t, r, rate)
		c.update(t, r, old)
	case "replace":
		c.replace(t)
	case "default":
		c.setDefault(t)
	case "add":
		c.add(t)
	case "remove":
		c.remove(t, r)
	case "wrong":
		require.ErrorIs(t, c.limiter.UpdateRate(r.Name, ratelimit.Rate{}), ratelimit.ErrInvalidConfig)
		require.ErrorIs(t, c.limiter.UpdateRate("nobody", rate), ratelimit.ErrUnknownRule)
		require.ErrorIs(t, c.limiter.AddRule(ratelimit.Rule{Name: r.Name, Rate: rate}), ratelimit.ErrInvalidConfig)
		require.ErrorIs(t, c.limiter.Replace([]ratelimit.Rule{{Name: r.Name, Rate: rate}, {Rate: rate}}, nil), ratelimit.ErrInvalidConfig)
	}
}

// update changes one rate. In a bucket, no key may have more than before.
func (c *changer) update(t *rapid.T, r *bookRule, rate ratelimit.Rate) {
	before := c.looks(t, ratelimit.Request{})
	require.NoError(t, c.limiter.UpdateRate(r.Name, rate))
	c.book.setRate(c.clock.now, r, rate)
	for i, is := range c.looks(t, ratelimit.Request{}) {
		was := before[i]
		if c.book.rules[i].Name == r.Name && named(r.Algorithm).bucket && was.Remaining < was.Limit {
			require.LessOrEqual(t, is.Remaining, was.Remaining, "a change grants nothing")
		}
	}
}

// replace changes any of the rules, their order, or what they are.
func (c *changer) replace(t *rapid.T) {
	rules := slices.Clone(c.book.rules)
	for i := range rules {
		r := &rules[i]
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0, 1:
			c.book.setRate(c.clock.now, r, drawRate(t, r.Algorithm))
		case 2:
			if r.Mode = ratelimit.ModeEnforce; rapid.Bool().Draw(t, "shadow") {
				r.Mode = ratelimit.ModeShadow
			}
		case 3:
			c.renew(t, r)
		}
	}
	last := len(rules)
	if rules[last-1].isDefault {
		last--
	}
	order := rapid.Permutation(rules[:last]).Draw(t, "order")
	c.book.rules = slices.Concat(order, rules[last:])
	list, defaultRule := written(c.book.rules)
	require.NoError(t, c.limiter.Replace(list, defaultRule))
}

// renew changes r into a rule that counts differently, so that its keys begin anew.
func (c *changer) renew(t *rapid.T, r *bookRule) {
	algorithm, key := r.Algorithm, r.Key
	r.Algorithm = rapid.SampledFrom(algorithmNames).Draw(t, "algorithm")
	r.Key = rapid.SampledFrom(keyTypes).Draw(t, "key")
	if r.Algorithm == algorithm && r.Key == key {
		return
	}
	r.Rate = drawRate(t, r.Algorithm)
	c.book.add(r.Name)
}

// setDefault changes the default rule, or makes one.
func (c *changer) setDefault(t *rapid.T) {
	last := len(c.book.rules) - 1
	if !c.book.rules[last].isDefault {
		r := bookRule{isDefault: true}
		r.Name, r.Algorithm, r.Key, r.Mode = "default", ratelimit.AlgorithmTokenBucket, ratelimit.KeyUser, ratelimit.ModeEnforce
		r.Rate = drawRate(t, r.Algorithm)
		c.book.rules, last = append(c.book.rules, r), last+1
		c.book.add(r.Name)
	}
	r := &c.book.rules[last]
	if rapid.Bool().Draw(t, "renewed") {
		c.renew(t, r)
	} else {
		c.book.setRate(c.clock.now, r, drawRate(t, r.Algorithm))
	}
	_, defaultRule := written(c.book.rules)
	require.NoError(t, c.limiter.SetDefaultRule(*defaultRule))
}

// add adds a rule after all others except the default rule.
func (c *changer) add(t *rapid.T) {
	if len(c.book.rules) > 6 {
		return
	}
	added := drawRules(t)[0]
	c.made++
	added.Name, added.Tiers, added.Resolve = fmt.Sprint("added", c.made), nil, nil
	require.NoError(t, c.limiter.AddRule(added.Rule))
	at := len(c.book.rules)
	if at > 0 && c.book.rules[at-1].isDefault {
		at--
	}
	c.book.rules = slices.Insert(c.book.rules, at, added)
	c.book.add(added.Name)
}

func (c *changer) remove(t *rapid.T, r *bookRule) {
	if len(c.book.rules) == 1 {
		return
	}
	name := r.Name
	require.NoError(t, c.limiter.RemoveRule(name))
	c.book.rules = slices.DeleteFunc(c.book.rules, func(r bookRule) bool { return r.Name == name })
	delete(c.book.accounts, name)
	delete(c.book.stats, name)
}

// TestPropertiesOfChanges plays random schedules with changes of the rules. Every answer
// must be that of models that are told of each change of a rate. No bucket may grant more
// in any interval than the burst at its beginning and what the rates earn, unless it is full
// when its burst is raised.
func TestPropertiesOfChanges(t *testing.T) {
	t.Parallel()
	schedules, calls, total := 0, 0, make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		rules := drawRules(t)
		for i := range rules {
			rules[i].Tiers, rules[i].Resolve = nil, nil
		}
		c := &changer{newTable(t, rapid.SampledFrom(starts[:5]).Draw(t, "made"), rules), 0, total}
		c.book.open = newLedger
		c.few, c.free = true, rapid.Bool().Draw(t, "back")
		for range stepsEach {
			c.ask(t)
			if rapid.IntRange(0, 5).Draw(t, "change") == 5 {
				c.change(t)
			}
			calls++
		}
		for name, accounts := range c.book.accounts {
			for _, a := range accounts {
				if !c.free {
					require.Empty(t, a.(*ledger).broken(), name)
				}
			}
		}
		schedules++
	})
	t.Logf("%d schedules, %d calls, changes %v: 0 counterexamples, worst excess 0", schedules, calls, total)
	require.GreaterOrEqual(t, schedules, wantChecks())
}
