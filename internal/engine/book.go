package engine

import (
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A Book holds the keys of many rules, by the names of the rules. It is the state of a store that
// keeps its data in memory. Goroutines may call its methods concurrently; it serves one call at a
// time.
type Book struct {
	time      *Timeline
	open      func(algorithm string, r Rate, w *Warmup) (*Ledger, error)
	onRestart func()
	maxKeys   int // the largest number of keys of a rule whose denials (strikes) are counted

	mu      sync.Mutex
	rules   map[ruleName]*Ledger        // guarded by mu
	strikes map[ruleName]*penalty.Table // denials of the keys of rules with a Penalty; guarded by mu

	loaded []loaded                    // the keys that were loaded or dumped since the last call of Forget; guarded by mu
	keep   map[loaded]keytable.Instant // until when the strikes of each loaded key have an effect; guarded by mu
}

// A ruleName identifies a rule in a Book. A rule with a Warmup (a lower limit for new keys) and a rule
// of the same name without a Warmup are different rules: each has keys of its own.
type ruleName struct {
	rule, algorithm string
	warms           bool
}

// A Charge is one request to a Book for units of one key, and the answer of the Book.
type Charge struct {
	Rule, Algorithm string // names of the rule that the key belongs to, and of its algorithm
	Key             string // the key to charge

	Rate    Rate          // the limit by which the Book decides on this Charge
	Warmup  *Warmup       // how the limits of new keys of the rule grow from now on; nil if new keys have the full limit
	N       int64         // how many units to charge; with 0, Take charges nothing. For Settle: how many units stay charged
	Charged int64         // for Settle: how many units were charged before
	Shadow  bool          // whether the rule only observes (is in shadow): its denial does not deny the request
	Look    bool          // whether the method Take only computes the answer and charges nothing
	ID      uint64        // the number by which the charge can be given back; 0 if it cannot be given back
	HoldFor time.Duration // for how long the charge can be given back

	Penalty   penalty.Rule // after how many denials, and for how long, the key is blocked; zero if denials do not block it
	NoStrike  bool         // if set, the Penalty does not count a denial of this Charge
	Penalized bool         // part of the answer: whether the key is blocked by the Penalty

	Verdict               // the answer of the Book
	Delay   time.Duration // how long to delay the request, if it is granted
}

func (c *Charge) name() ruleName { return ruleName{c.Rule, c.Algorithm, c.Warmup != nil} }

// NewBook returns an empty Book. For a rule that is new to the Book, the Book calls the function open,
// which makes the rule's Ledger for the algorithm, the rate and the Warmup of the first charge. The Book
// calls onRestart when it forgets all states. The denials (strikes) of at most maxKeys keys of a rule are
// counted for its Penalty.
func NewBook(t *Timeline, maxKeys int, open func(algorithm string, r Rate, w *Warmup) (*Ledger, error), onRestart func()) *Book {
	b := &Book{time: t, open: open, onRestart: onRestart, maxKeys: maxKeys,
		rules: make(map[ruleName]*Ledger), strikes: make(map[ruleName]*penalty.Table), keep: make(map[loaded]keytable.Instant)}
	t.OnRestart(b.restart)
	return b
}

// restart forgets what every key has used. The Timeline calls restart if the clock first showed a time
// outside the years 1678 to 2262, and now shows a time inside these years.
func (b *Book) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onRestart()
	clear(b.strikes)
	for _, keys := range b.rules {
		keys.Clear()
		keys.Restart()
	}
}

// Take decides on one request that consists of several charges, and writes the answer of each rule into
// its charge. The request passes if every rule that is not in shadow grants its charge. (A rule in
// shadow only observes.) If the request passes, Take makes all charges that are granted, including those
// to rules in shadow. Otherwise, it makes no charge.
//
// If the parameter look is set, or if the Record r says that the request was granted earlier, Take
// charges nothing. The result found reports whether the request was granted earlier.
func (b *Book) Take(charges []Charge, r Record, look bool) (found bool, err error) {
	b.time.Renew()
	b.mu.Lock()
	defer b.mu.Unlock()
	now, passes := b.time.Now(), true
	for i := range charges {
		if err := b.enter(&charges[i]); err != nil {
			return false, err
		}
	}
	if r != nil && r.Find(now) {
		return true, nil
	}
	for i := range charges {
		c := &charges[i]
		c.Verdict, c.Delay, _ = b.rules[c.name()].Ask(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, max(c.N, 1), Look)
		if t := b.penalties(c); t != nil {
			c.penalize(t.Rest(keytable.HashOf(c.Key), now))
		}
		passes = passes && (c.Shadow || c.Granted())
	}
	if look {
		return false, nil
	}
	for i := range charges {
		c := &charges[i]
		if t := b.penalties(c); t != nil && !passes && !c.Granted() && !c.NoStrike && !c.Look && c.N > 0 {
			rest, _ := t.Strike(keytable.HashOf(c.Key), penalty.Whose{}, now)
			c.penalize(rest)
		}
	}
	for i := range charges {
		switch c := &charges[i]; {
		case !passes || c.N == 0 || !c.Granted():
			if c.N > 0 && !c.Look { // even a denied request may give its rate to the key
				_, _, _ = b.rules[c.name()].Ask(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, c.N, Probe)
			}
		case c.Look:
			c.Verdict, c.Delay, _ = b.rules[c.name()].Ask(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, c.N, DryRun)
		default:
			c.Verdict, c.Delay = b.rules[c.name()].Charge(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, c.N, c.ID, c.HoldFor)
		}
	}
	if r != nil && passes {
		r.Add(now)
	}
	return false, nil
}

// penalties returns the table that counts the denials (strikes) of the keys of c's rule. It returns nil
// if denials of c are not counted: if the rule has no Penalty, or if it only observes (is in shadow).
func (b *Book) penalties(c *Charge) *penalty.Table {
	if c.Shadow || c.Penalty.After == 0 {
		return nil
	}
	t := b.strikes[c.name()]
	if t == nil {
		t = penalty.New(c.Penalty, b.maxKeys)
		b.strikes[c.name()] = t
	}
	t.SetRule(c.Penalty)
	return t
}

// penalize makes the answer of c a denial for the time rest, because its key is blocked. If rest is 0, it
// does nothing.
func (c *Charge) penalize(rest time.Duration) {
	if rest > 0 {
		c.Penalized, c.Delay = true, 0
		c.deny(rest)
	}
}

// Pardon forgets, for the key of each charge, the denials that were counted for the Penalty, and ends a
// block of the key.
func (b *Book) Pardon(charges []Charge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		if t := b.strikes[charges[i].name()]; t != nil {
			t.Forget(keytable.HashOf(charges[i].Key))
		}
	}
}

// enter makes the Ledger for the rule of the Charge c if the Book has none yet. Otherwise, if c has a
// Warmup, enter gives this Warmup to the keys of the rule. It returns an error if the rule already has
// so many different rates that the rate of c cannot be added.
func (b *Book) enter(c *Charge) error {
	keys := b.rules[c.name()]
	switch {
	case keys == nil:
		opened, err := b.open(c.Algorithm, c.Rate, c.Warmup)
		if err != nil {
			return err
		}
		b.rules[c.name()] = opened
	case c.Warmup != nil:
		if err := keys.Warm(*c.Warmup); err != nil {
			return err
		}
	}
	return b.rules[c.name()].Admit(&c.Rate)
}

// Settle corrects charges that were made earlier. In each charge, the field Charged says how many units
// were charged, and the field N says how many units stay charged. If N is less, Settle gives back the
// difference, as long as the charge with the number in the field ID can still be given back. If N is
// more, Settle charges the difference, whatever the limit.
//
// If the charges are holds (units in use by running work, see [NewInFlight]), a hold with N = 0 ends, and
// any other hold lasts for Rate.Per from now. The result over is true if one of these other holds has run
// out already, so that it cannot last longer.
func (b *Book) Settle(charges []Charge) (over bool, err error) {
	b.time.Renew()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.time.Now()
	for i := range charges {
		if c := &charges[i]; c.N > c.Charged {
			if err := b.enter(c); err != nil {
				return false, err
			}
		}
	}
	for i := range charges {
		c, h := &charges[i], keytable.HashOf(charges[i].Key)
		keys := b.rules[c.name()]
		switch {
		case keys == nil:
		case keys.holds && c.N > 0:
			over = !keys.Extend(h, c.ID, now, &c.Rate) || over
			continue
		default:
			keys.Close(h, c.ID, c.N, now)
		}
		if c.N > c.Charged {
			keys.Exceed(h, Wanted{Rate: &c.Rate}, now, c.N-c.Charged)
		}
	}
	return over, nil
}

// Reset forgets what the key of each charge has used. It returns the names of the rules in which it
// cannot reset the key. Such a key has no state of its own, because the table of keys was full: what
// it has used is counted together with what other keys have used.
func (b *Book) Reset(charges []Charge) (not []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if t := b.strikes[c.name()]; t != nil {
			t.Forget(keytable.HashOf(c.Key))
		}
		if keys := b.rules[c.name()]; keys != nil && !keys.Reset(keytable.HashOf(c.Key), Wanted{}) {
			not = append(not, c.Rule)
		}
	}
	return not
}
