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
	open func(algorithm string, r Rate) (*Ledger, error)

	mu    sync.Mutex
	rules map[ruleName]*Ledger // guarded by mu
}

// A ruleName says which keys a charge is about.
type ruleName struct{ rule, algorithm string }

// A Charge is what a Book is asked about one key, and its answer.
type Charge struct {
	Rule, Algorithm string // whose keys
	Key             string // which of them

	Rate   Rate          // the limit from now on
	N      int64         // units; 0 looks. For Settle: how many stay charged
	Shadow bool          // whether it never causes the others to be denied
	Look   bool          // whether it is not made, and answered as if it were
	ID     uint64        // the number under which the charge is open, or 0
	Term   time.Duration // for how long

	Verdict               // the answer
	Delay   time.Duration // how long to hold the request, if it is granted
}

func (c *Charge) name() ruleName { return ruleName{c.Rule, c.Algorithm} }

// NewBook returns an empty Book. open makes the keys of a rule that the Book has not had yet, from
// the algorithm and the rate of the first charge.
func NewBook(t *Timeline, open func(algorithm string, r Rate) (*Ledger, error)) *Book {
	b := &Book{time: t, open: open, rules: make(map[ruleName]*Ledger)}
	t.OnRestart(b.restart)
	return b
}

// restart makes every key as new, after the clock was set to a usual time.
func (b *Book) restart() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, keys := range b.rules {
		keys.Clear()
		keys.Restart()
	}
}

// Take makes all charges, if all that are no shadows are granted, or none, and answers each. A
// shadow is charged if it is granted and the others are made.
func (b *Book) Take(charges []Charge) error {
	b.time.Renew()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range charges {
		if c := &charges[i]; b.rules[c.name()] == nil {
			keys, err := b.open(c.Algorithm, c.Rate)
			if err != nil {
				return err
			}
			b.rules[c.name()] = keys
		}
	}
	now, passes := b.time.Now(), true
	for i := range charges {
		c, do := &charges[i], Look
		if c.N > 0 && !c.Look {
			do = Probe
		}
		c.Verdict, c.Delay, _ = b.rules[c.name()].Ask(keytable.HashOf(c.Key), Wanted{Rate: &c.Rate}, now, max(c.N, 1), do)
		passes = passes && (c.Shadow || c.Granted())
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
	return nil
}

// Settle gives back all units but N of each charge that is open under its ID.
func (b *Book) Settle(charges []Charge) {
	b.time.Renew()
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.time.Now()
	for i := range charges {
		c := &charges[i]
		if keys := b.rules[c.name()]; keys != nil {
			keys.Close(keytable.HashOf(c.Key), c.ID, c.N, now)
		}
	}
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
