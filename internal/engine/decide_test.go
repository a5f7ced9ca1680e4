package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A quota is the simplest Algorithm: a key is granted limit units, ever. A grant is to be
// held for a nanosecond for each unit granted before.
type quota struct{ limit int64 }

type quotaState struct {
	last keytable.Instant
	used int64
}

func (q *quota) Step(s *quotaState, _ *quota, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration) {
	now = max(now, s.last)
	v.Limit, v.Left = q.limit, q.limit-s.used
	switch {
	case n > v.Left:
		v.RetryAfter = Never
		return v, 0
	case charge:
		delay = time.Duration(s.used)
		s.last, s.used = now, s.used+n
		v.Left -= n
		return v, delay
	}
	return v, time.Duration(s.used)
}

func (q *quota) Carry(*quotaState, *quota, keytable.Instant)          {}
func (q *quota) Resize(*quotaState, *quota, bool) bool                { return false }
func (q *quota) Fills(*quota) bool                                    { return false }
func (q *quota) Slower(*quota) bool                                   { return false }
func (q *quota) Charged(s *quotaState) keytable.Instant               { return s.last }
func (q *quota) Reached(s *quotaState) keytable.Instant               { return s.last }
func (q *quota) Clone(s *quotaState) quotaState                       { return *s }
func (q *quota) GiveBack(s *quotaState, back Returned)                { s.used -= back.N }
func (q *quota) Exceed(s *quotaState, _ keytable.Instant, n int64)    { s.used += n }
func (q *quota) Idle(s *quotaState, _ keytable.Instant) bool          { return s.used == 0 }
func (q *quota) Inherit(s *quotaState, _ keytable.Instant) quotaState { return *s }

var errRate = errors.New("no such rate")

// quotas returns the keys of a rule that grants each key limit units. Rates below 1 are
// refused.
func quotas(t *testing.T, line *Timeline, limit int) *ratedKeys[quotaState, *quota] {
	t.Helper()
	return quotasOf(t, line, limit, 100)
}

// quotasOf is quotas for a number of keys.
func quotasOf(t *testing.T, line *Timeline, limit, maxKeys int) *ratedKeys[quotaState, *quota] {
	t.Helper()
	configure := func(r Rate, _ *Warmup) (*quota, error) {
		if r.Requests < 1 {
			return nil, errRate
		}
		return &quota{int64(r.Requests)}, nil
	}
	rates := Rates{Base: Rate{Requests: limit, Per: time.Second}, MayGrow: true}
	keys, err := NewKeys[quotaState](line, rates, maxKeys, configure, &Refusals{})
	require.NoError(t, err)
	return keys.(*ratedKeys[quotaState, *quota])
}

// handClock is a Clock that is set by hand, and panics if it is to.
type handClock struct {
	now    time.Time
	panics bool
}

func (c *handClock) Now() time.Time {
	if c.panics {
		panic("no time")
	}
	return c.now
}

var (
	alice = keytable.HashOf("alice")
	bob   = keytable.HashOf("bob")
)

// decideFor decides for n units of each part.
func decideFor(n int64, t *Timeline, parts []Part, order *Order, began keytable.Instant) Outcome {
	for i := range parts {
		parts[i].N = n
	}
	return DecideAll(t, parts, order, began)
}

// left returns what the key has left.
func left(k Keys, h keytable.Hash) int64 {
	v, _, _ := k.Ask(h, Wanted{}, keytable.Start, 1, Look)
	return v.Left
}

// TestSettle plays decisions of three rules, the last of which is a shadow: two of them
// grant alice 5 units, 3 units and, the shadow, 2.
func TestSettle(t *testing.T) {
	for _, row := range []struct {
		n                      int64 // how many units the request wants of each rule
		order                  Order
		used                   int64 // units of the second rule that alice has had before
		want                   Outcome
		leftA, leftB, leftS    int64 // after the decision
		tallyA, tallyB, tallyS string
		why                    string
	}{
		{2, Order{Within: AnyDelay}, 0, Outcome{Passes: true}, 3, 1, 0, "a", "a", "a", "all grant, and all are charged"},
		{3, Order{Within: AnyDelay}, 0, Outcome{Passes: true}, 2, 0, 2, "a", "a", "s", "a shadow that does not fit denies nobody"},
		{4, Order{Within: AnyDelay}, 0, Outcome{}, 5, 3, 2, "", "d", "s", "one denies, and none is charged; the first has no part in it"},
		{2, Order{Within: AnyDelay}, 2, Outcome{}, 5, 1, 2, "", "d", "", "a shadow is charged only with the request"},
		{2, Order{Mode: ModeLook, Within: AnyDelay}, 0, Outcome{Passes: true}, 5, 3, 2, "", "", "", "a look charges and counts nothing"},
		{4, Order{Mode: ModeLook, Within: AnyDelay}, 0, Outcome{}, 5, 3, 2, "", "", "", "nor does a look that would be denied"},
		{1, Order{Within: 0}, 1, Outcome{Passes: true, Uncharged: Uncharged{Late: true}}, 5, 2, 2, "", "", "", "a long Delay takes nothing"},
		{1, Order{Within: 1}, 1, Outcome{Passes: true}, 4, 1, 1, "a", "a", "a", "one that is just short enough does"},
		{4, Order{Mode: ModeRetry, Within: AnyDelay}, 0, Outcome{}, 5, 3, 2, "", "", "", "a denial that is no decision is not counted"},
	} {
		for _, machine := range []bool{false, true} {
			clock := &handClock{now: time.Unix(1, 0)}
			line := NewTimeline(clock, nil)
			if machine {
				line = NewTimeline(nil, nil)
			}
			a, b, s := quotas(t, &line, 5), quotas(t, &line, 3), quotas(t, &line, 2)
			if row.used > 0 {
				b.Ask(alice, Wanted{}, keytable.Start, row.used, Take)
			}
			of := Question{Hash: alice}
			parts := []Part{{Keys: a, Question: of}, {Keys: b, Question: of}, {Keys: s, Question: Question{Hash: alice, Shadow: true}}}
			got := decideFor(row.n, &line, parts, &row.order, 0)
			if !machine {
				require.Equal(t, keytable.Start, got.Now, row.why)
			}
			got.Now = 0
			require.Equal(t, row.want, got, row.why)
			require.Equal(t, []int64{row.leftA, row.leftB, row.leftS}, []int64{left(a, alice), left(b, alice), left(s, alice)}, row.why)
			require.Equal(t, []string{row.tallyA, row.tallyB, row.tallyS}, []string{tallies(a), tallies(b), tallies(s)}, row.why)
			require.EqualValues(t, 5, left(a, bob), "%s: another key has its own", row.why)
		}
	}
}

// tallies says what k has counted: a for allowed, d for denied, s for shadowed.
func tallies(k Keys) (s string) {
	c := k.Counts()
	for range c.Allowed {
		s += "a"
	}
	for range c.Denied {
		s += "d"
	}
	for range c.Shadowed {
		s += "s"
	}
	return s
}

// TestSettleWithOthers has parts that something else has answered for.
func TestSettleWithOthers(t *testing.T) {
	line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
	k := quotas(t, &line, 5)
	denial := Part{Answer: Answer{Verdict: Verdict{Limit: 1, RetryAfter: time.Second}}}
	parts := []Part{{Keys: k, Question: Question{Hash: alice}}, denial}
	out := decideFor(1, &line, parts, &Order{Within: AnyDelay}, 0)
	assert.False(t, out.Passes, "it denies like any other")
	assert.Equal(t, denial.Verdict, parts[1].Verdict, "and keeps its answer")
	assert.EqualValues(t, 5, left(k, alice), "so nothing is charged")

	grant := Part{Answer: Answer{Verdict: Verdict{Limit: -1, Left: -1}}}
	parts = []Part{{Keys: k, Question: Question{Hash: alice}}, grant}
	out = decideFor(1, &line, parts, &Order{Within: AnyDelay, Revocable: true, Unsettled: true}, 0)
	assert.True(t, out.Passes)
	assert.EqualValues(t, 4, parts[0].Left)
	v, _ := k.Revoke(alice, parts[0].Receipt, Wanted{}, out.Now, 1)
	assert.EqualValues(t, 5, v.Left)
	assert.EqualValues(t, 5, left(k, alice))
	assert.Empty(t, tallies(k), "what was given back was not allowed")
}

// TestSettleAtOtherRates asks for rates that the rule has, and for one that it has not.
func TestSettleAtOtherRates(t *testing.T) {
	line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
	k := quotas(t, &line, 5)
	for _, row := range []struct {
		rate *Rate
		left int64
		err  error
		why  string
	}{
		{nil, 4, nil, "the rule's own"},
		{&Rate{Requests: 9, Per: time.Second}, 7, nil, "a rate that is asked for"},
		{&Rate{Per: time.Second}, 2, errRate, "an invalid one means the rule's own, and an error"},
	} {
		parts := []Part{{Keys: k, Question: Question{Hash: alice, Want: Wanted{Rate: row.rate}}}}
		require.True(t, decideFor(1, &line, parts, &Order{Within: AnyDelay}, 0).Passes, row.why)
		require.Equal(t, row.left, parts[0].Left, row.why)
		require.Equal(t, row.err, parts[0].Err, row.why)
	}
}

// TestSettleHandsTheLatestReadingOn checks that time follows the locks of all rules of a
// decision: where one shard has seen a later reading than the decision's own, that is the
// decision's time, and all its shards have seen it from then on.
func TestSettleHandsTheLatestReadingOn(t *testing.T) {
	line := NewTimeline(nil, nil)
	later := line.Now().Add(time.Hour)
	var a *ratedKeys[quotaState, *quota]
	for _, first := range []bool{true, false} {
		a = quotas(t, &line, 5)
		b := quotas(t, &line, 5)
		s := a.table.Lock(alice)
		s.Latest(later)
		s.Unlock()
		parts := []Part{{Keys: a, Question: Question{Hash: alice}}, {Keys: b, Question: Question{Hash: alice}}}
		if !first {
			parts[0], parts[1] = parts[1], parts[0]
		}
		out := decideFor(1, &line, parts, &Order{Within: AnyDelay}, 0)
		require.Equal(t, later, out.Now)
		s = b.table.Lock(alice)
		require.Equal(t, later, s.Latest(0), "the other rule's shard has seen it too")
		s.Unlock()
	}
	began := later.Add(time.Hour)
	out := decideFor(1, &line, []Part{{Keys: a, Question: Question{Hash: alice}}}, &Order{Mode: ModeLook, Within: AnyDelay}, began)
	require.Equal(t, began, out.Now, "a reading that was made before serves")
}

// TestSettleWhenTheClockPanics checks that no shard stays locked.
func TestSettleWhenTheClockPanics(t *testing.T) {
	clock := &handClock{now: time.Unix(1, 0)}
	line := NewTimeline(clock, nil)
	a, b := quotas(t, &line, 5), quotas(t, &line, 5)
	parts := []Part{{Keys: a, Question: Question{Hash: alice}}, {Keys: b, Question: Question{Hash: alice}}}
	clock.panics = true
	require.Panics(t, func() { decideFor(1, &line, parts, &Order{Within: AnyDelay}, 0) })
	clock.panics = false
	require.EqualValues(t, 5, left(a, alice))
	require.EqualValues(t, 5, left(b, alice))
	require.Empty(t, tallies(a)+tallies(b))
}

// TestGivenBackWhileAShardSplits checks that a charge has a receipt also if the key's state makes
// its shard split, that a key without a state has none, and that no receipt stays behind.
func TestGivenBackWhileAShardSplits(t *testing.T) {
	clock := &handClock{now: time.Unix(1, 0)}
	line := NewTimeline(clock, nil)
	for _, maxKeys := range []int{100, 1 << 20} {
		k := quotasOf(t, &line, 5, maxKeys)
		var parts []Part
		for i := range 300 {
			clock.now = clock.now.Add(time.Second)
			one := []Part{{Keys: k, Question: Question{Hash: keytable.HashOf(fmt.Sprint("client", i))}}}
			if decideFor(1, &line, one, &Order{Within: AnyDelay, Revocable: true, Unsettled: true}, 0).Passes {
				require.Equal(t, len(parts) < maxKeys, one[0].Receipt != 0, "client %d", i)
				parts = append(parts, one...)
			}
		}
		require.Equal(t, min(maxKeys, 300), k.Len())
		require.Equal(t, min(maxKeys, 300), k.receipts.get().open)
		for i, p := range parts {
			v, _ := k.Revoke(p.Hash, p.Receipt, Wanted{}, line.Now(), 1)
			require.Equal(t, i < maxKeys, v.Left == 5, "client %d", i)
		}
		require.Zero(t, k.receipts.get().open)
	}
}

// TestGivenBackLeavesNoReceipts gives a million charges back, of keys that are forgotten and
// reset meanwhile, and checks that the receipts take no memory beyond those open at a time.
func TestGivenBackLeavesNoReceipts(t *testing.T) {
	clock := &handClock{now: time.Unix(1, 0)}
	line := NewTimeline(clock, nil)
	k := quotasOf(t, &line, 1000, 100)
	open := make([]Part, 7)
	for i := range 1_000_000 {
		at := &open[i%len(open)]
		switch {
		case at.Receipt == 0:
		case i%3 == 0:
			k.Reset(at.Hash, Wanted{})
			fallthrough
		case i%3 == 1:
			k.Revoke(at.Hash, at.Receipt, Wanted{}, line.Now(), 1)
		default:
			k.Settle(at.Hash, at.Receipt, 1, 0)
		}
		*at = Part{Keys: k, Question: Question{Hash: keytable.HashOf(fmt.Sprint(i % 150))}}
		one := []Part{*at}
		decideFor(1, &line, one, &Order{Within: AnyDelay, Revocable: true, Unsettled: true}, 0)
		*at = one[0]
	}
	require.LessOrEqual(t, k.receipts.get().open, len(open))
	require.LessOrEqual(t, len(k.receipts.get().all), 1+len(open))
}

// TestGivenBackOnce settles a receipt twice, and one that there never was.
func TestGivenBackOnce(t *testing.T) {
	line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
	k := quotas(t, &line, 5)
	parts := []Part{{Keys: k, Question: Question{Hash: alice}}}
	for range 2 {
		decideFor(2, &line, parts, &Order{Within: AnyDelay, Revocable: true, Unsettled: true}, 0)
	}
	k.Settle(alice, parts[0].Receipt, 0, 0)
	k.Settle(alice, parts[0].Receipt, 0, 0)
	k.Settle(alice, 1<<32|99, 0, 0)
	k.Settle(alice, 0, 0, 0)
	require.EqualValues(t, 3, left(k, alice), "two of four units were given back, once")
}

// TestRememberLessThanNothing has a store say that less than nothing remains, and then drops
// the rate that the key was at.
func TestRememberLessThanNothing(t *testing.T) {
	line := NewTimeline(&handClock{now: time.Unix(1, 0)}, nil)
	k := quotas(t, &line, 5)
	rate := Rate{Requests: 9, Per: time.Second}
	k.Ask(alice, Wanted{Rate: &rate}, keytable.Start, 1, Take)
	k.Remember(alice, Wanted{Rate: &rate}, -3, 0)
	v, _, _ := k.Ask(alice, Wanted{Rate: &rate}, keytable.Start, 1, Look)
	require.Zero(t, v.Left, "nothing is left")
	commit, err := k.Change(Rates{Base: Rate{Requests: 4, Per: time.Second}})
	require.NoError(t, err)
	commit(keytable.Start)
	require.NotPanics(t, func() { k.Ask(alice, Wanted{}, keytable.Start, 1, Take) })
}
