package dbstore

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// A Stored is the state of one key of a rule, as a row of the database has it. [StoredIn] returns a Stored. It is for programs that show
// what a database has, such as the command ratelimit top.
type Stored struct {
	RowKey string // the key of the row; no other state has it

	// Ask has the Rule, the Key and the Algorithm of the state. The row does not name the other fields. If the rule has a Warmup or
	// a Penalty, set Ask.Warmup and Ask.Penalty before you call a method. Look also needs Ask.Rate.
	Ask ratelimit.Ask

	// Hashed is whether the names of the rule and the key are too long for a row: more than about 200 bytes together. The row then
	// has a hash in place of them, and Ask is empty.
	Hashed bool

	Warms bool // whether the rule of the state has a Warmup

	value []byte
}

// StoredIn returns the state in a row with this key and this value. The result ok is false if no state has such a key, for example if
// the row is the record of a request with an ID. StoredIn does not read the value.
func StoredIn(key, value []byte) (s Stored, ok bool) {
	s.RowKey, s.value = string(key), value
	if len(key) == 0 {
		return s, false
	}
	if s.Hashed = key[0] == '#'; s.Hashed {
		return s, len(key) == 1+32
	}
	letter := key[0]
	if s.Warms = 'A' <= letter && letter <= 'Z'; s.Warms {
		letter += 'a' - 'A'
	}
	for algorithm, l := range letters {
		if l == letter {
			s.Ask.Algorithm = algorithm
		}
	}
	n, size := binary.Uvarint(key[1:])
	if s.Ask.Algorithm == "" || size <= 0 || n > uint64(len(key)-1-size) || len(key) > maxKey {
		return s, false
	}
	rest := s.RowKey[1+size:]
	s.Ask.Rule, s.Ask.Key = rest[:n], rest[n:]
	return s, true
}

// Look returns the result that a request for one unit would get if only this state had to grant it. The parameter at is the time of that
// request, by the clock of the database. Look charges nothing, so Remaining still has that unit. The error matches
// [ratelimit.ErrInvalidConfig] if the Ask is wrong, and is an [*Error] if the value of the row is broken.
func (s *Stored) Look(at time.Time) (res ratelimit.Result, err error) {
	ask := s.Ask
	ask.N, ask.Look = 0, true
	if err := new(Store).Accepts(ask); err != nil {
		return res, err
	}
	s.with(at, &ask, func(d *decider, r *row) {
		if err = d.load(r, true); err != nil {
			return
		}
		var results []ratelimit.Result
		if results, err = d.store.Take(context.Background(), []ratelimit.Ask{ask}); err == nil {
			res = results[0]
		}
	})
	return res, err
}

// ChargedAt reports whether the key of the state was last charged at the given rate, or at one that decides the same. For a rule with
// Tiers, it tells which tier the client has. It returns false if the rate is not valid, or if the value of the row is broken.
func (s *Stored) ChargedAt(rate ratelimit.Rate) (is bool) {
	if new(Store).Accepts(ratelimit.Ask{Algorithm: s.Ask.Algorithm, Rate: rate}) != nil {
		return false
	}
	s.with(time.Unix(0, 0), &s.Ask, func(d *decider, r *row) {
		if d.load(r, false) == nil {
			r.charge.Rate = engine.Rate{Requests: rate.Requests, Per: rate.Per, Burst: rate.Burst, Window: string(rate.Window)}
			is = d.book.ChargedAt(&r.charge)
		}
	})
	return is
}

// with calls f with two arguments: a decider, whose clock shows the time in the parameter at, and the row of s.
func (s *Stored) with(at time.Time, ask *ratelimit.Ask, f func(*decider, *row)) {
	d := deciders.Get().(*decider)
	defer deciders.Put(d)
	d.time = at
	f(d, &row{key: s.RowKey, old: s.value, charge: chargeOf(ask)})
	d.book.Forget()
}
