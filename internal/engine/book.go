package engine

import (
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Book is the keys of many rules, by name: the state of a store in memory. It serves one call
// at a time.
type Book struct {
	time *Timeline
	open func(algorithm string, r Rate, w *Warmup) (*Ledger, error)
	anew func()

	mu    sync.Mutex
	rules map[ruleName]*Ledger // guarded by mu
}

// A ruleName says which keys a charge is about. Those that warm up are others than those that do
// not.
type ruleName struct {
	rule, algorithm string
	warms           bool
}

// A Charge is what a Book is asked about one key, and its answer.
type Charge struct {
	Rule, Algorithm string // whose keys
	Key             string // which of them

	Rate   Rate          // the limit from now on
	Warmup *Warmup       // how that of a new key grows from now on; nil if it has all of it
	N      int64         // units; 0 looks. For Settle: how many are charged in the end
	Was    int64         // for Settle: how many were charged
	Shadow bool          // whether it never causes the others to be denied
	Look   bool          // whether it is not made, and answered as if it were
	ID     uint64        // the number under which the charge is open, or 0
	Term   time.Duration // for how long

	Verdict               // the answer
	Delay   time.Duration // how long to hold the request, if it is granted
}

func (c *Charge) name() ruleName { return ruleName{c.Rule, c.Algorithm, c.Warmup != nil} }

// NewBook returns an empty Book. open makes the keys of a rule that the Book has not had yet, from
// the algorithm, the rate and the Warmup of the first charge. anew is called when all keys are made
// as new.
func NewBook(t *Timeline, open func(algorithm string, r Rate, w *Warmup) (*Ledger, error), anew func()) *Book {
	b := &Book{time: t, open: open, anew: anew, rules: make(map[ruleName]*Ledger)}
	t.OnRestart(b.restart)
	return b
}

// restart makes every key as new, after the clock was set to a usual time.
func (b *Book) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.anew()
	for _, keys := range b.rules {
		keys.Clear()
		keys.Restart()
	}
}

// Take makes all charges, if all that are no shadows are granted, or none, and answers each. A
// shadow is charged if it is granted and the others are made. If look is set, Take makes no charge.
// It makes none either if r is not nil and has the request, and then returns true.
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
		c, do := &charges[i], Look
		if c.N > 0 && !c.Look && !look {
			do = Probe
		}
		c.Verdict, c.Delay, _ = b.rules[c.name()].Ask(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, max(c.N, 1), do)
		passes = passes && (c.Shadow || c.Granted())
	}
	if look {
		return false, nil
	}
	for i := range charges {
		switch c := &charges[i]; {
		case !passes || c.N == 0 || !c.Granted():
		case c.Look:
			c.Verdict, c.Delay, _ = b.rules[c.name()].Ask(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, c.N, Rehearse)
		default:
			c.Verdict, c.Delay = b.rules[c.name()].Charge(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, c.N, c.ID, c.Term)
		}
	}
	if r != nil && passes {
		r.Keep(now)
	}
	return false, nil
}

// enter makes the keys that c is about, if there are none yet, and gives them the Warmup of c.
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
		return keys.Warm(*c.Warmup)
	}
	return nil
}

// Settle makes each charge one of N units, not Was. If N is less, it gives back the others, as long
// as the charge is open under its ID. If it is more, they are charged in any case.
func (b *Book) Settle(charges []Charge) error {
	b.time.Renew()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.time.Now()
	for i := range charges {
		if c := &charges[i]; c.N > c.Was {
			if err := b.enter(c); err != nil {
				return err
			}
		}
	}
	for i := range charges {
		c, h := &charges[i], keytable.HashOf(charges[i].Key)
		keys := b.rules[c.name()]
		if keys != nil {
			keys.Close(h, c.ID, c.N, now)
		}
		if c.N > c.Was {
			keys.Exceed(h, Wanted{Rate: &c.Rate}, now, c.N-c.Was)
		}
	}
	return nil
}

// Reset makes the keys that charges are about as if they had never been used. It returns the
// rules of those that share a debt with others, and cannot be reset.
func (b *Book) Reset(charges []Charge) (not []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		c := &charges[i]
		if keys := b.rules[c.name()]; keys != nil && !keys.Reset(keytable.HashOf(c.Key), Wanted{}) {
			not = append(not, c.Rule)
		}
	}
	return not
}
