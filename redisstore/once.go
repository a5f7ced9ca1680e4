package redisstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// holdFor is for how long charges in other slots than that of the record can be given back.
const holdFor = time.Second

// A retryable is a request that is charged once.
type retryable struct {
	*ratelimit.Once
	store   *Store
	items   []item   // in an order that does not depend on that of the asks
	places  []int    // of the asks that items are of
	record  key      // where the answers are kept
	own     []int    // the items that the script with the record decides
	others  [][]int  // those of other slots
	answers []answer // one for each of items
	kept    []answer // those of the record, if the request was granted before
}

// Once charges asks as [Store.Take] does, but once for a request; see [ratelimit.Store]. The server
// keeps the answers for the TTL of the request, beside the states of its client. Where asks are in
// several slots of a Cluster, those of other slots are charged first, and are given back if the
// request was granted before or is denied; if it is not known what has become of the last call,
// they stay charged. Once makes use of no memory of denials, and of no units that were taken ahead.
//
// It fails with the same errors as Take, and with one that matches [ratelimit.ErrInvalidConfig] for
// an empty ID or a TTL that is not from a microsecond to 366 days.
func (s *Store) Once(ctx context.Context, once ratelimit.Once, asks []ratelimit.Ask) (results []ratelimit.Result, replayed bool, err error) {
	ctx, err = s.checkContext(ctx)
	if err != nil {
		return nil, false, err
	}
	switch {
	case once.ID == "":
		return nil, false, &ratelimit.ConfigError{Field: "id", Value: `""`, Reason: "must not be empty"}
	case once.TTL < time.Microsecond || once.TTL > maxTerm:
		return nil, false, &ratelimit.ConfigError{Field: "ttl", Value: once.TTL, Reason: "must be from a microsecond to 366 days"}
	}
	r, err := s.newRetryable(&once, asks)
	if err != nil || len(asks) == 0 {
		return nil, false, err
	}
	s.conn.stats.decisions.Add(1)
	if !once.Look {
		s.conn.denials.forget(asks)
	}
	if replayed, err = r.take(ctx); err != nil {
		return nil, false, err
	}
	results = make([]ratelimit.Result, len(asks))
	for i := range r.answers {
		results[r.places[i]] = r.answers[i].result(r.answers[i].limit)
	}
	return results, replayed, nil
}

// newRetryable prepares the request for asks.
func (s *Store) newRetryable(once *ratelimit.Once, asks []ratelimit.Ask) (*retryable, error) {
	r := &retryable{Once: once, store: s, answers: make([]answer, len(asks)), places: make([]int, len(asks))}
	for i := range asks {
		switch {
		case asks[i].N < 1:
			return nil, ratelimit.ErrInvalidCount
		case asks[i].Look:
			return nil, &ratelimit.ConfigError{Field: "look", Value: true, Reason: "must be false: Once has a Look of its own"}
		}
		r.places[i] = i
	}
	slices.SortFunc(r.places, func(i, j int) int {
		a, b := &asks[i], &asks[j]
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Algorithm, b.Algorithm))
	})
	for i, place := range r.places {
		u, err := s.item(&asks[place])
		if err != nil {
			return nil, err
		}
		r.items, r.answers[i].limit = append(r.items, u), u.limit
	}
	r.record = s.recordOf(once, r.items)
	where := s.routing.where(r.record)
	for _, part := range s.routing.parts(r.items) {
		if s.routing.where(r.items[part[0]].key) == where {
			r.own = part
		} else {
			r.others = append(r.others, part)
		}
	}
	return r, nil
}

// recordOf returns the name of the record of a request for items. It is in the slot of the client
// or, if there is none, in one of its own.
func (s *settings) recordOf(once *ratelimit.Once, items []item) key {
	h, size := sha256.New(), []byte(nil)
	write := func(parts ...string) {
		for _, part := range parts {
			size = binary.AppendUvarint(size[:0], uint64(len(part)))
			h.Write(size)
			h.Write([]byte(part))
		}
	}
	write(once.Client, once.ID)
	for i := range items {
		a := items[i].ask
		write(a.Rule, a.Key, string(a.Algorithm), strconv.Itoa(a.N), flag(a.Shadow))
	}
	sum := base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	if once.Client == "" {
		return key{s.prefix + ":{" + sum + "}:" + version + "i", sum}
	}
	var tag strings.Builder
	tag.WriteByte('c')
	writeText(&tag, once.Client)
	return key{s.prefix + ":{" + tag.String() + "}:" + version + "i:" + sum, tag.String()}
}

// take decides the request, and reports whether it was granted before.
func (r *retryable) take(ctx context.Context) (replayed bool, err error) {
	mode := 0
	if r.Look {
		mode = denied | looking
	}
	err = r.takeOthers(ctx, mode)
	passes := err == nil && r.pass(r.others...)
	if !passes {
		mode |= denied
	}
	// The record is looked at in any case: a request that was granted before is answered, also
	// if its keys have no units left now.
	replayed, failed := r.takeOwn(ctx, mode)
	passes = passes && failed == nil && !replayed && r.pass(r.own)
	switch {
	case passes || r.Look || len(r.others) == 0:
	case err == nil && failed != nil && !unrun(failed):
		// The charges of the others stay: they may be of a request that was granted.
	default:
		r.store.giveBack(ctx, r.items, r.answers, r.others)
	}
	switch {
	case replayed && failed == nil:
		r.answers = r.kept
		return true, nil
	case err != nil:
		return false, err
	case failed != nil && len(r.others) > 0:
		return false, joinFailures(ctx, []error{failed}, []item{{key: r.record}}, [][]int{{0}})
	case failed != nil:
		return false, failed
	case !passes:
		for i := range r.answers {
			if a := &r.answers[i]; a.charged() {
				a.left, a.reset = a.leftBefore, a.resetBefore
			}
		}
	}
	return false, nil
}

// unrun reports whether a script that has failed with err has certainly changed nothing.
func unrun(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.NotSent() || e.Class != ClassTimeout && e.Class != ClassConnection && e.Class != ClassOther)
}

// pass reports whether all items of parts that deny have been granted.
func (r *retryable) pass(parts ...[]int) bool {
	for _, part := range parts {
		for _, i := range part {
			if !r.items[i].shadow && !r.answers[i].granted {
				return false
			}
		}
	}
	return true
}

// some returns the items of part.
func (r *retryable) some(part []int) []item {
	some := make([]item, len(part))
	for i, place := range part {
		some[i] = r.items[place]
	}
	return some
}

// set makes answers those of part.
func (r *retryable) set(part []int, answers []answer) {
	for i, place := range part {
		answers[i].limit = r.items[place].limit
		r.answers[place] = answers[i]
	}
}

// takeOthers charges the items that are not in the slot of the record, so that they can be given
// back. When the request is granted their receipts stay until they expire: no script about the record
// reaches them, and to drop them would take one call more for each slot.
func (r *retryable) takeOthers(ctx context.Context, mode int) error {
	for _, part := range r.others {
		for _, i := range part {
			if u := &r.items[i]; u.id == 0 && !r.Look {
				u.id, u.term = max(rand.Uint64(), 1), holdFor.Microseconds()
			}
		}
	}
	errs := make([]error, len(r.others))
	inParallel(len(r.others), func(i int) {
		some := r.some(r.others[i])
		reply, err := r.store.take(ctx, some, mode|returnable)
		var answers []answer
		if err == nil {
			answers, err = answersIn(reply, len(some), true)
		}
		if errs[i] = err; err == nil {
			r.set(r.others[i], answers)
		}
	})
	return joinFailures(ctx, errs, r.items, r.others)
}

// takeOwn runs the script that looks at the record, decides the items in its slot, and makes the
// record.
func (r *retryable) takeOwn(ctx context.Context, mode int) (replayed bool, err error) {
	some := r.some(r.own)
	keys, args, needs := r.store.arguments(some, mode|withReceipts)
	args = append(args, r.TTL.Microseconds(), r.toKeep())
	reply, err := r.store.conn.run(ctx, onceScripts[needs], append(keys, r.record.text), args)
	if err != nil {
		return false, err
	}
	if text, ok := reply.(string); ok {
		return true, r.replay(text)
	}
	answers, err := answersIn(reply, len(some), false)
	if err == nil {
		r.set(r.own, answers)
	}
	return false, err
}

// toKeep returns what the record is to keep, with a ? for each answer that is not known yet.
func (r *retryable) toKeep() string {
	var b strings.Builder
	own := make(map[int]bool, len(r.own))
	for _, i := range r.own {
		own[i] = true
	}
	for i := range r.answers {
		a := &r.answers[i]
		if b.WriteString(strconv.FormatInt(a.limit, 10)); own[i] {
			b.WriteString(" ? ")
			continue
		}
		fmt.Fprintf(&b, " %s %d %d %d %d ", flag(a.granted), a.left, inMicros(a.retry), inMicros(a.reset), inMicros(a.delay))
	}
	return strings.TrimSuffix(b.String(), " ")
}

// inMicros returns d as a script sends it.
func inMicros(d time.Duration) int64 {
	if d == ratelimit.Never {
		return -1
	}
	return d.Microseconds()
}

// replay reads the answers that text, the reply of a record, has.
func (r *retryable) replay(text string) error {
	fields := strings.Fields(text)
	if len(fields) != 1+6*len(r.answers) {
		return newError(ClassOther, fmt.Errorf("a record has %d numbers for %d asks", len(fields)-1, len(r.answers)))
	}
	read := reader{}
	for _, f := range fields {
		read.items = append(read.items, f)
	}
	since := read.duration()
	for range r.answers {
		limit := read.number()
		a := read.answer()
		a.limit, a.delay = limit, max(a.delay-since, 0)
		if a.reset < ratelimit.Never {
			a.reset = max(a.reset-since, 0)
		}
		r.kept = append(r.kept, a)
	}
	if read.err != nil {
		return newError(ClassOther, read.err)
	}
	return nil
}
