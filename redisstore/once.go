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

// holdFor is how long charges of a request with an ID can be given back if its keys are in several slots of a
// Cluster. The slots without the record of the answers are charged first, and these charges are undone if the
// request is then denied. A charge with a Receipt, by which the caller can give it back, has its own HoldFor.
const holdFor = time.Second

// A retryable is a request that is charged only once, even if the client sends it several times. A record
// in the server keeps the answers to the request.
type retryable struct {
	*ratelimit.Attempt
	store    *Store
	items    []item   // one item for each ask, sorted, so that the order of the asks has no influence
	places   []int    // for each item, the index of its ask in the list of asks
	record   key      // the key of the record in the server
	own      []int    // the indexes of the items that are in the slot of the record
	others   [][]int  // for each further slot, the indexes of the items in it
	answers  []answer // one answer for each item
	recorded []answer // if the request was granted before: the answers in the record
}

// Once charges asks as [Store.Take] does, but a request that is sent several times is charged only once; see
// [ratelimit.Store]. The server keeps the answers for the TTL of the request, in the Cluster slot of the
// client, and gives them to at most 100 repetitions of the request. If the keys of some asks are in other
// slots, Once charges these asks first. It gives these charges back if the request was granted before or is
// denied. If the reply to the last call is lost, these charges stay. Once uses neither the denial cache nor
// units that were taken for later requests.
//
// If the asks are in several slots, Once makes two calls, one after the other, and a third to give units back.
// The time of [WithTimeout] applies to each.
//
// Once fails with the same errors as Take. An empty ID, or a TTL that is not from a microsecond to 366
// days, is an error that matches [ratelimit.ErrInvalidConfig].
func (s *Store) Once(
	ctx context.Context, once ratelimit.Attempt, asks []ratelimit.Ask,
) (results []ratelimit.Result, replayed bool, err error) {
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

// newRetryable returns a retryable (a request that is charged only once) for the asks. The argument once has
// the ID of the request, and for how long its answers are kept.
func (s *Store) newRetryable(once *ratelimit.Attempt, asks []ratelimit.Ask) (*retryable, error) {
	r := &retryable{Attempt: once, store: s, answers: make([]answer, len(asks)), places: make([]int, len(asks))}
	for i := range asks {
		switch {
		case asks[i].N < 0:
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
		it, err := s.item(&asks[place])
		if err != nil {
			return nil, err
		}
		r.items, r.answers[i].limit = append(r.items, it), it.limit
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

// recordOf returns the key of the record for a request. If the request has a client, the record is in the slot
// of this client. Otherwise a hash of the request decides the slot.
func (s *settings) recordOf(once *ratelimit.Attempt, items []item) key {
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

// An ending says how an attempt to charge a request with an ID has ended.
type ending uint8

const (
	endGranted  ending = iota // all charges were made
	endDenied                 // no call failed, and at least one of the asks was denied
	endReplayed               // the request was granted before: the record had the answers
	endFailed                 // a call failed, and the script that writes the record has certainly charged nothing
	endUnknown                // a call failed, and the script that writes the record may have charged units
)

// The method take decides the request r. It returns replayed = true if the request was granted before.
func (r *retryable) take(ctx context.Context) (replayed bool, err error) {
	mode := 0
	if r.Look {
		mode = denied | looking
	}
	othersErr := r.takeOthers(ctx, mode)
	if othersErr != nil || !r.pass(r.others...) {
		mode |= denied
	}
	// The record is read even if a call for another slot has denied or failed. So a request that was
	// granted before gets the same answers again, even if its keys have no units left now.
	replayed, ownErr := r.takeOwn(ctx, mode)
	end := r.ending(replayed, othersErr, ownErr)
	if end == endGranted && !r.Look {
		err = r.store.keepHolds(ctx, r.items, r.answers, r.others)
	}
	if end != endGranted && end != endUnknown && !r.Look && len(r.others) > 0 {
		r.store.giveBack(ctx, r.items, r.answers, r.others)
	}
	if !r.Look && (end == endGranted || end == endDenied) {
		r.learnOthers(ctx, end == endDenied)
	}
	switch end {
	case endReplayed:
		r.answers = r.recorded
		return true, nil
	case endFailed, endUnknown:
		return false, r.failure(ctx, othersErr, ownErr)
	case endDenied:
		for i := range r.answers {
			if a := &r.answers[i]; a.charged() {
				a.left, a.reset = a.leftBefore, a.resetBefore
			}
		}
		if !r.Look {
			r.strikeOthers(ctx)
		}
	}
	return false, err
}

// ending returns how the attempt has ended. The parameters replayed and ownErr are the results of takeOwn,
// which reads or writes the record of the answers. The parameter othersErr is the error of the calls for the
// slots without this record.
func (r *retryable) ending(replayed bool, othersErr, ownErr error) ending {
	switch {
	case replayed && ownErr == nil:
		return endReplayed
	case othersErr == nil && ownErr != nil && !unrun(ownErr):
		return endUnknown
	case othersErr != nil || ownErr != nil:
		return endFailed
	case !r.pass(r.others...) || !r.pass(r.own):
		return endDenied
	}
	return endGranted
}

// failure returns the error of an attempt in which a call has failed. If the keys are in several slots, the error
// names the parts of the Cluster that have failed.
func (r *retryable) failure(ctx context.Context, othersErr, ownErr error) error {
	switch {
	case othersErr != nil:
		return othersErr
	case len(r.others) > 0:
		return joinFailures(ctx, []error{ownErr}, []item{{key: r.record}}, [][]int{{0}})
	}
	return ownErr
}

// unrun reports whether a script that failed with this error has certainly changed nothing.
func unrun(err error) bool {
	var e *Error
	return errors.As(err, &e) && (e.NotSent() || e.Class != ClassTimeout && e.Class != ClassConnection && e.Class != ClassOther)
}

// The method pass reports whether all items whose indexes are in parts were granted. Items in shadow mode are
// left out, because their denials do not count.
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

// The method some returns the items whose indexes are in the slice part.
func (r *retryable) some(part []int) []item {
	some := make([]item, len(part))
	for i, place := range part {
		some[i] = r.items[place]
	}
	return some
}

// The method set stores in r.answers the answers for the items whose indexes are in the slice part.
func (r *retryable) set(part []int, answers []answer) {
	for i, place := range part {
		answers[i].limit = r.items[place].limit
		r.answers[place] = answers[i]
	}
}

// takeOthers charges the items whose keys are not in the Cluster slot of the record (the stored answers to the
// request). For each charge, it stores a receipt in the server, by which the charge can be given back. After a
// grant, the receipts stay until they expire: to delete them would take one more call for each slot.
func (r *retryable) takeOthers(ctx context.Context, mode int) error {
	for _, part := range r.others {
		for _, i := range part {
			if it := &r.items[i]; it.id == 0 && !r.Look {
				it.id, it.term = max(rand.Uint64(), 1), holdFor.Microseconds()
			}
		}
	}
	errs := make([]error, len(r.others))
	inParallel(len(r.others), func(i int) {
		some := r.some(r.others[i])
		for j := range some {
			some[j].strikes = false // count no denials yet: if the record has the answers, these denials have no effect
		}
		reply, err := r.store.take(ctx, some, mode|returnable|tentative)
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

// learnOthers looks at the keys that are not in the Cluster slot of the record (the stored answers to the request). If
// such a key still has an older rate and is not charged, learnOthers gives it the rate of the request. Usually even a
// denied request does this at once, see docs/stores.md. But the calls that decided on these keys did not know yet
// whether the request has a record. learnOthers is called when it is known that there was none. The parameter denies
// is true if the request is denied: then no key stays charged. Errors are ignored.
func (r *retryable) learnOthers(ctx context.Context, denies bool) {
	inParallel(len(r.others), func(i int) {
		var some []item
		for _, place := range r.others[i] {
			if a := &r.answers[place]; a.keeps && (denies || !a.charged()) {
				it := r.items[place]
				it.id, it.strikes = 0, false
				some = append(some, it)
			}
		}
		if len(some) > 0 {
			_, _ = r.store.take(ctx, some, denied)
		}
	})
}

// takeOwn runs the script in the Cluster slot of the record (the stored answers to the request). The script looks
// for the record. If there is no record, the script decides the items in that slot and writes the record. The
// result replayed is true if there was a record.
func (r *retryable) takeOwn(ctx context.Context, mode int) (replayed bool, err error) {
	some := r.some(r.own)
	keys, args, edges, needs := r.store.arguments(some, mode|withReceipts)
	args = append(args, r.TTL.Microseconds(), r.toRecord())
	reply, err := r.store.conn.runAt(ctx, onceScripts.of(needs), append(keys, r.record.text), args, edges)
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

// toRecord returns the text of the record to write. In place of each answer that the script itself
// decides, it has a question mark, which the script replaces.
func (r *retryable) toRecord() string {
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
		fmt.Fprintf(&b, " %s %d %d %d %d ", a.verdict(), a.left, inMicros(a.retry), inMicros(a.reset), inMicros(a.delay))
	}
	return strings.TrimSuffix(b.String(), " ")
}

// inMicros returns a duration in microseconds, or -1 for Never. The scripts write durations in the same
// way.
func inMicros(d time.Duration) int64 {
	if d == ratelimit.Never {
		return -1
	}
	return d.Microseconds()
}

// The method replay reads the recorded answers from the argument text, the reply of a script that found a
// record.
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
		r.recorded = append(r.recorded, a)
	}
	if read.err != nil {
		return newError(ClassOther, read.err)
	}
	return nil
}
