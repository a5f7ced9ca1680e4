package verify

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A held is one reservation, and its charge in the account of its key.
type held struct {
	*ratelimit.Reservation
	account *replay
	entry   *ratelimittest.Entry
	n       int
	until   time.Time
	changed int  // how often the rate had changed before
	final   bool // whether it is not given back, because it is of a debt that keys share
}

// A replay is the account of a key.
type replay struct {
	*ratelimittest.Account
	charged []charged
	weak    bool // whether the key may have less left than the account
}

// A charged is what became of one charge: units that were granted, used beyond them and given back.
type charged struct{ granted, beyond, back int }

// A reserving is a nested schedule of reservations.
type reserving struct {
	*nested
	noise   bool // whether there are so many other keys at times that those that owe nothing are forgotten
	keys    map[string]*replay
	open    []*held
	changed int // how often the rate has changed
	settled int
	back    int // units that reservations gave back
}

// account returns the account of a key.
func (s *reserving) account(key string) *replay {
	key = s.accountOf(key)
	if s.keys[key] == nil {
		k := &replay{Account: ratelimittest.NewAccount(ratelimit.Algorithm(s.a.name), starts[0], s.first())}
		if s.keys[key] = k; s.rate != s.first() {
			k.SetRate(s.clock.now, s.rate)
		}
	}
	return s.keys[key]
}

// agree requires that each key has what its account says, and that no unit is lost: those that
// were granted and used beyond, less those given back, are charged.
func (s *reserving) agree() {
	for key, k := range s.keys {
		got, err := s.l.Peek(context.Background(), ratelimit.Request{Client: clientOf(key), Rules: []string{"ours"}})
		require.NoError(s.t, err)
		want := k.Ask(s.clock.now, 0)
		sum := 0
		for _, c := range k.charged {
			sum += c.granted + c.beyond - c.back
		}
		require.Equal(s.t, k.Units(), sum, "granted + overshoot - given back = charged")
		if k.weak {
			require.LessOrEqual(s.t, got.Remaining, want.Remaining, "%s never has more than in the replayed history", key)
			continue
		}
		require.Equal(s.t, []any{want.Allowed, want.Remaining, want.RetryAfter}, []any{got.Allowed, got.Remaining, got.RetryAfter},
			"%s at %v: as in the replayed history", key, s.clock.now.Sub(starts[0]))
	}
}

// granted notes that n units were granted to key, or denied.
func (s *reserving) granted(key string, n int, allowed bool) *held {
	k := s.account(key)
	res, entry := k.Reserve(s.clock.now, n)
	if allowed || !k.weak {
		require.Equal(s.t, res.Allowed, allowed, "%s, %d units", key, n)
	}
	if !allowed {
		if entry != nil {
			k.Settle(s.clock.now, entry, 0) // of a key that may have less
		}
		return nil
	}
	k.charged = append(k.charged, charged{granted: n})
	return &held{account: k, entry: entry, n: n, changed: s.changed, final: s.full && key != "holder"}
}

// give makes the charge of h one of n units in its account, and returns how many units came back. A
// revoked charge is one that was never granted.
func (s *reserving) give(h *held, n int, revoked bool) (back int) {
	at, k := s.clock.now, h.account
	if n > h.n {
		if !s.live(k) {
			return 0
		}
		k.Exceed(at, n-h.n)
		k.charged = append(k.charged, charged{beyond: n - h.n})
		return 0
	}
	if h.final || !s.live(k) || !revoked && at.After(h.until) {
		return 0
	}
	back = k.Settle(at, h.entry, n)
	k.charged = append(k.charged, charged{back: back})
	switch {
	case back == 0:
	case s.a.name == "LeakyBucket" && s.changes > 0: // the queue of those who keep their place takes room
		k.weak = true
	case s.a.bucket && s.changes == 2: // a key may be full without the charge when its burst is raised
		k.weak = k.weak || s.changed > h.changed
	}
	return back
}

// live reports whether k is still the account of a key: it is not once the key was reset.
func (s *reserving) live(k *replay) bool {
	for _, other := range s.keys {
		if other == k {
			return true
		}
	}
	return false
}

// ask asks for n units, beside the custom limiter if inner is not nil.
func (s *reserving) ask(key string, n int, inner func() bool) {
	var h *held
	rules := []string{"ours"}
	if inner != nil {
		rules = append(rules, "custom")
	}
	s.decide = func() bool {
		h = s.granted(key, n, true)
		return inner()
	}
	res, err := s.l.Check(context.Background(), ratelimit.Request{Client: key, Rules: rules, Cost: n})
	require.NoError(s.t, err)
	switch {
	case h == nil:
		s.granted(key, n, res.Allowed)
	case !res.Allowed:
		s.give(h, 0, true)
	}
}

// reserve reserves n units.
func (s *reserving) reserve(key string, n int) {
	term := time.Duration(1+s.r.IntN(4*receiptPer)) * time.Microsecond
	if s.r.IntN(3) == 0 {
		term = time.Microsecond
	}
	r, err := s.l.Reserve(context.Background(), ratelimit.Request{Client: key, Rules: []string{"ours"}, Cost: n}, term)
	require.NoError(s.t, err)
	h := s.granted(key, n, r.Result().Allowed)
	if h == nil {
		require.NoError(s.t, r.Settle(s.r.IntN(9)), "denied: nothing is charged")
		return
	}
	if h.Reservation, h.until = r, s.clock.now.Add(term); s.full && !h.final {
		for _, other := range s.open {
			other.final = true // of one key, one reservation is open
		}
	}
	s.open = append(s.open, h)
}

// settle settles one of the open reservations.
func (s *reserving) settle() {
	i := s.r.IntN(len(s.open))
	h := s.open[i]
	s.open = slices.Delete(s.open, i, i+1)
	n := s.r.IntN(h.n + 1)
	if s.r.IntN(4) == 0 {
		n += s.r.IntN(4)
	}
	if n > h.n && !s.live(h.account) {
		n = h.n // a key that was reset would be charged
	}
	if s.settled++; n == 0 && s.r.IntN(2) == 0 {
		require.NoError(s.t, h.Cancel())
	} else {
		require.NoError(s.t, h.Settle(n))
	}
	require.Equal(s.t, ratelimit.ErrSettled, h.Settle(n))
	s.back += s.give(h, n, false)
}

// step does one thing at random.
func (s *reserving) step() {
	if s.steps == 0 {
		return
	}
	s.steps--
	key := s.key()
	switch act := s.r.IntN(24); {
	case act < 3 && s.depth < 3:
		s.depth++
		grant, steps := s.r.IntN(3) == 0, s.r.IntN(4)
		s.ask(key, 1+s.r.IntN(3), func() bool {
			for range steps {
				s.step()
			}
			return grant
		})
		s.depth--
	case act < 6:
		s.ask(key, 1+s.r.IntN(3), nil)
	case act < 11:
		s.reserve(key, 1+s.r.IntN(4))
	case act < 17 && len(s.open) > 0:
		s.settle()
	case act < 20:
		s.clock.now = s.clock.now.Add(time.Duration(s.r.IntN(receiptPer)))
	case act == 20 && !s.full:
		require.NoError(s.t, resetOwn(s.l, key))
		delete(s.keys, key)
	case act == 21 && s.noise:
		s.crowd()
	case act == 22 && s.changes > 0 && !s.full:
		if s.change() {
			for _, k := range s.keys {
				k.SetRate(s.clock.now, s.rate)
			}
			s.changed++
		}
	}
	if s.full && s.account("holder").Ask(s.clock.now, 0).ResetAfter < receiptPer {
		s.ask("holder", 1, nil) // so that it keeps the only slot
	}
	s.agree()
}

// TestPropertiesOfReservations plays random interleavings of reservations, settlements for less and
// for more, cancellations, terms that end, resets, changes of the rate, keys that are forgotten, a
// table that is full, plain requests, and charges that a custom limiter revokes. After each step,
// each key must be as its account: the list of what was charged, in which a settlement changes the
// number of units, replayed.
//
// Where the burst of a bucket changes, or the rate of a leaky bucket, a key must never have more
// than its account; see TestPropertiesOfReceipts.
func TestPropertiesOfReservations(t *testing.T) { reserveAtRandom(t, false) }

// TestPropertiesOfReservationsInAStore is the same with a MemoryStore, at rates that do not change.
func TestPropertiesOfReservationsInAStore(t *testing.T) { reserveAtRandom(t, true) }

func reserveAtRandom(t *testing.T, stored bool) {
	schedules := 120
	switch {
	case os.Getenv("RATELIMIT_SOAK") == "1":
		schedules = 2000
	case raceEnabled || testing.Short() || stored:
		schedules = 60
	}
	each(t, func(t *testing.T, a algorithm) {
		steps, settled, back := 0, 0, 0
		for seed := range uint64(schedules) {
			s := &reserving{nested: newNested(t, a, seed, 12, stored), keys: make(map[string]*replay)}
			if s.noise = seed%2 == 1 && !s.full; s.full {
				s.ask("holder", 1, nil)
			}
			for steps += s.steps; s.steps > 0; {
				s.step()
			}
			switch given := int(s.l.Stats()[0].GivenBack); {
			case stored: // also what the store has not found
				require.GreaterOrEqual(t, given, s.back)
			case s.noise: // nothing is given back to a key that was forgotten: it owed nothing
				require.LessOrEqual(t, given, s.back)
			default:
				require.Equal(t, s.back, given)
			}
			settled, back = settled+s.settled, back+s.back
		}
		t.Logf("%d schedules, %d steps, %d settlements, %d units given back: 0 differences", schedules, steps, settled, back)
		require.Positive(t, back)
	})
}

// TestReservationsQueue requires that a reservation does not overtake those who wait for its key,
// and that it is counted.
func TestReservationsQueue(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.PerDay(10)})
			require.NoError(t, err)
			reserve := func(n int) bool {
				r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "c", Cost: n}, time.Hour)
				require.NoError(t, err)
				return r.Result().Allowed
			}
			require.True(t, reserve(6))
			require.False(t, reserve(5))
			ctx, cancel := context.WithCancel(t.Context())
			waits := make(chan error)
			go func() {
				_, err := l.Wait(ctx, ratelimit.Request{Client: "c", Cost: 8})
				waits <- err
			}()
			synctest.Wait()
			require.False(t, reserve(1), "4 are left, but another waits for 8")
			cancel()
			require.ErrorIs(t, <-waits, context.Canceled)
			require.True(t, reserve(1))
			s := l.Stats()[0]
			require.Equal(t, []uint64{2, 2}, []uint64{s.Allowed, s.Denied})
		})
	})
}

// TestReservationsEnd requires that the units of a reservation come back once, within its term, and
// only while there are not too many younger reservations; and that of what was used beyond them
// nothing is forgotten.
func TestReservationsEnd(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		clock := &manualClock{starts[0]}
		var l *ratelimit.RateLimiter
		begin := func(opts ...ratelimit.Option) {
			var err error
			l, err = ratelimit.New(nil, &ratelimit.Rule{Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.PerDay(5000)}, append(opts, ratelimit.WithClock(clock))...)
			require.NoError(t, err)
		}
		reserve := func(client string, n int, term time.Duration) *ratelimit.Reservation {
			r, err := l.Reserve(context.Background(), ratelimit.Request{Client: client, Cost: n}, term)
			require.NoError(t, err)
			require.True(t, r.Result().Allowed)
			return r
		}
		left := func(client string) int {
			res, err := l.Peek(context.Background(), ratelimit.Request{Client: client})
			require.NoError(t, err)
			return res.Remaining
		}

		begin()
		r, late := reserve("c", 5, time.Second), reserve("c", 5, time.Second)
		clock.now = clock.now.Add(time.Second)
		require.NoError(t, r.Settle(2))
		require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
		require.Equal(t, 4993, left("c"), "the last instant of the term")
		clock.now = clock.now.Add(1)
		require.NoError(t, late.Cancel())
		require.Equal(t, 4993, left("c"), "the term is over")
		require.NoError(t, reserve("c", 1, time.Second).Settle(11))
		require.Equal(t, 4982, left("c"))
		require.EqualValues(t, 3, l.Stats()[0].GivenBack)

		begin()
		var open []*ratelimit.Reservation
		for range 1026 {
			open = append(open, reserve("c", 1, time.Minute))
		}
		for i, want := range []int{5000 - 1026, 5000 - 1026, 5000 - 1025} {
			require.NoError(t, open[i].Cancel())
			require.Equal(t, want, left("c"), "of a key, 1,024 are open")
		}

		begin(ratelimit.WithMaxKeys(3))
		open = []*ratelimit.Reservation{reserve("a", 5, time.Hour), reserve("b", 5, time.Hour), reserve("b", 5, time.Hour), reserve("c", 5, time.Hour)}
		require.NoError(t, open[0].Cancel())
		require.Equal(t, 4995, left("a"), "of a rule, as many as it may have keys")
		require.NoError(t, open[1].Cancel())
		require.Equal(t, 4995, left("b"))
		again := reserve("a", 4, time.Hour)
		require.NoError(t, open[2].Cancel())
		require.NoError(t, open[3].Cancel())
		require.NoError(t, again.Cancel())
		require.Equal(t, []int{4995, 5000, 5000}, []int{left("a"), left("b"), left("c")})

		begin(ratelimit.WithMaxKeys(1))
		reserve("holder", 1, time.Hour)
		require.NoError(t, reserve("b", 5, time.Hour).Settle(2))
		require.NoError(t, reserve("b", 5, time.Hour).Settle(7))
		require.Equal(t, 4988, left("c"), "the budget that keys share")

		begin()
		r = reserve("c", 5, time.Hour)
		require.NoError(t, l.RemoveRule("default"))
		require.NoError(t, r.Settle(9))
		require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.PerDay(5000)}))
		require.Equal(t, 5000, left("c"))
	})
}

// TestReservationsOfOtherRules requires that a rule that was removed, and one in shadow that has
// denied, are settled by nobody.
func TestReservationsOfOtherRules(t *testing.T) {
	t.Run("by endpoint", func(t *testing.T) { reserveOfOtherRules(t) })
	t.Run("by name", func(t *testing.T) { reserveOfOtherRules(t, "big", "small") })
}

func reserveOfOtherRules(t *testing.T, names ...string) {
	rules := []ratelimit.Rule{
		{Name: "big", Endpoint: "/", Rate: ratelimit.PerDay(100)},
		{Name: "small", Endpoint: "/", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerDay(3)},
		{Name: "gone", Endpoint: "/", Rate: ratelimit.PerDay(50)},
	}
	l, err := ratelimit.New(rules, nil, ratelimit.WithClock(&manualClock{starts[0]}))
	require.NoError(t, err)
	req := ratelimit.Request{Client: "c", Endpoint: "/", Cost: 5, Rules: names}
	r, err := l.Reserve(context.Background(), req, time.Hour)
	require.NoError(t, err)
	require.NoError(t, l.RemoveRule("gone"))
	require.NoError(t, r.Settle(9))
	denied := func() uint64 { return l.Stats()[1].ShadowDenied }
	before := denied()
	require.True(t, l.Allow("c", "/").Allowed)
	require.Equal(t, before, denied(), "the small rule has charged nothing, so it has units left")
	require.Zero(t, l.Stats()[0].GivenBack)

	r, err = l.Reserve(context.Background(), req, time.Hour)
	require.NoError(t, err)
	require.NoError(t, l.AddRule(rules[2]))
	require.NoError(t, l.RemoveRule("big"))
	require.NoError(t, l.AddRule(rules[0]))
	require.NoError(t, r.Cancel())
	for _, s := range l.Stats() {
		require.Zero(t, s.GivenBack, s.Rule)
	}
}

// TestFinalReservationsAreMerged has reservations become final because there are too many, of this
// key and of others, and then gives back what is left.
func TestFinalReservationsAreMerged(t *testing.T) {
	clock := &manualClock{starts[0]}
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "ours", Rate: ratelimit.PerSecond(10)}, {Name: "custom", Limiter: waitsFor{}}}, nil,
		ratelimit.WithClock(clock), ratelimit.WithMaxKeys(2))
	require.NoError(t, err)
	reserve := func(client string, n int) *ratelimit.Reservation {
		r, err := l.Reserve(context.Background(), ratelimit.Request{Client: client, Rules: []string{"ours"}, Cost: n}, time.Hour)
		require.NoError(t, err)
		require.True(t, r.Result().Allowed)
		return r
	}
	left := func(client string) int {
		res, err := l.Peek(context.Background(), ratelimit.Request{Client: client, Rules: []string{"ours"}})
		require.NoError(t, err)
		return res.Remaining
	}
	// A custom limiter is asked about five units of a, which are charged and may be given back. All
	// of them drain; a reservation after that notices, and becomes final.
	asked := make(chan func(allow bool))
	waits := context.WithValue(context.Background(), waitsFor{}, asked)
	done := make(chan error)
	go func() {
		_, err := l.Check(waits, ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}, Cost: 5})
		done <- err
	}()
	answer := <-asked
	clock.now = clock.now.Add(100 * time.Millisecond)
	first := reserve("a", 1)
	clock.now = clock.now.Add(time.Second)
	second := reserve("a", 2)
	reserve("b", 1) // first is final
	reserve("b", 1) // and second
	clock.now = clock.now.Add(0)
	require.Equal(t, 8, left("a"))
	require.NoError(t, first.Cancel())
	require.NoError(t, second.Cancel())
	require.Equal(t, 8, left("a"), "final")
	answer(false)
	require.NoError(t, <-done)
	require.Equal(t, 8, left("a"), "the five had drained before")

}

// TestChainsOfOtherKeys requires that the receipts of a key, whose terms are over, are not taken
// for those of the key that has their place now.
func TestChainsOfOtherKeys(t *testing.T) {
	clock := &manualClock{starts[0]}
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerDay(10)}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	reserve := func(client string, n int) *ratelimit.Reservation {
		r, err := l.Reserve(context.Background(), ratelimit.Request{Client: client, Cost: n}, time.Second)
		require.NoError(t, err)
		return r
	}
	reserve("a", 1)
	clock.now = clock.now.Add(2 * time.Second)
	reserve("b", 1) // makes that of a final
	c := reserve("c", 5)
	require.Equal(t, 8, l.Allow("a", "").Remaining)
	require.NoError(t, c.Cancel())
	require.Equal(t, 9, l.Allow("c", "").Remaining)
	require.Equal(t, 8, l.Allow("c", "").Remaining)
}

// TestReservationsOfTwoRulesEnd requires that the term of a reservation holds for each of its rules.
func TestReservationsOfTwoRulesEnd(t *testing.T) {
	clock := &manualClock{starts[0]}
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "own", Endpoint: "/", Rate: ratelimit.PerDay(10)},
		{Name: "all", Endpoint: "/", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerDay(10)},
	}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	reserve := func() *ratelimit.Reservation {
		r, err := l.Reserve(context.Background(), ratelimit.Request{Client: "c", Endpoint: "/", Cost: 4}, time.Second)
		require.NoError(t, err)
		return r
	}
	first, late := reserve(), reserve()
	clock.now = clock.now.Add(time.Second)
	require.NoError(t, first.Cancel())
	clock.now = clock.now.Add(1)
	require.NoError(t, late.Cancel())
	for _, s := range l.Stats()[:2] {
		require.EqualValues(t, 4, s.GivenBack, s.Rule)
	}
}

// A waitsFor is a custom limiter that answers when its caller is told to.
type waitsFor struct{}

func (w waitsFor) Take(ctx context.Context, _ string, _ int) (ratelimit.Result, error) {
	answer := make(chan bool)
	ctx.Value(w).(chan func(bool)) <- func(allow bool) { answer <- allow }
	if <-answer {
		return ratelimit.Result{Allowed: true, Limit: 9, Remaining: 9}, nil
	}
	return ratelimit.Result{Limit: 9, RetryAfter: time.Hour}, nil
}

// Allow is not used.
func (waitsFor) Allow(string) ratelimit.Result { return ratelimit.Result{} }

// TestBeyondTheLimit requires that units beyond a bucket's burst stand in the queue, and outlive
// changes of the burst.
func TestBeyondTheLimit(t *testing.T) {
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		clock := &manualClock{starts[0]}
		l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: a, Rate: ratelimit.PerSecond(1).WithBurst(10)}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		req := ratelimit.Request{Client: "c", Cost: 1}
		r, err := l.Reserve(context.Background(), req, time.Hour)
		require.NoError(t, err)
		require.NoError(t, r.Settle(6))
		res, err := l.Check(context.Background(), req)
		require.NoError(t, err)
		if a == ratelimit.AlgorithmLeakyBucket {
			require.Equal(t, 6*time.Second, res.Delay)
		}
		r, err = l.Reserve(context.Background(), req, time.Hour)
		require.NoError(t, err)
		require.NoError(t, r.Settle(23)) // 30 are owed
		for _, burst := range []int{10, 20, 5, 10} {
			require.NoError(t, l.UpdateRate("default", ratelimit.PerSecond(1).WithBurst(burst)))
		}
		res, err = l.Check(context.Background(), req)
		require.NoError(t, err)
		require.Equal(t, 21*time.Second, res.RetryAfter, a)

		for _, later := range []time.Duration{5 * time.Second, 10 * time.Second} { // one unit is still owed, or none
			req.Client = "drained after " + later.String()
			req.Cost = 5
			first, err := l.Reserve(context.Background(), req, time.Hour)
			require.NoError(t, err)
			req.Cost = 1
			second, err := l.Reserve(context.Background(), req, time.Hour)
			require.NoError(t, err)
			clock.now = clock.now.Add(later)
			require.NoError(t, second.Settle(8))
			require.NoError(t, first.Cancel())
			res, err = l.Peek(context.Background(), req)
			require.NoError(t, err)
			require.Equal(t, 3, res.Remaining, "what the first one had reserved is drained or given back, and the seven beyond are owed")
		}
	}
}

// TestBeyondTheLimitKeepsItsPlace requires that a leaky bucket's queue does not shrink before units
// beyond, when an earlier reservation is cancelled.
func TestBeyondTheLimitKeepsItsPlace(t *testing.T) {
	l, err := ratelimit.New(nil, &ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(20)}, ratelimit.WithClock(&manualClock{starts[0]}))
	require.NoError(t, err)
	reserve := func(n int) *ratelimit.Reservation {
		r, err := l.Reserve(context.Background(), ratelimit.Request{Cost: n}, time.Hour)
		require.NoError(t, err)
		return r
	}
	first, second := reserve(2), reserve(3)
	require.NoError(t, first.Settle(4))
	require.NoError(t, second.Cancel())
	require.Equal(t, 7*time.Second, l.Allow("", "").Delay)
}
