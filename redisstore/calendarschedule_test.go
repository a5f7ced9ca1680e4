package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // for machines without time zone data

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestCalendarSchedules compares a rule whose rate has a Window with a model of each key, in random schedules of requests,
// reservations that are settled to less and to more, looks, and steps of the clock, also back. The rule decides in memory,
// on a MemoryStore, on one server and on a Cluster. The model finds windows by reading local dates.
func TestCalendarSchedules(t *testing.T) {
	n := soaked(300, 2000)
	t.Run("memory", func(t *testing.T) {
		playCalendars(t, n, time.Nanosecond, func(*ratelimit.FakeClock) ratelimit.Store { return nil })
	})
	t.Run("MemoryStore", func(t *testing.T) {
		playCalendars(t, n, time.Nanosecond, func(clock *ratelimit.FakeClock) ratelimit.Store {
			s, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			return s
		})
	})
	onServer := func(client redis.UniversalClient) func(*ratelimit.FakeClock) ratelimit.Store {
		return func(clock *ratelimit.FakeClock) ratelimit.Store {
			return newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
		}
	}
	t.Run("standalone", func(t *testing.T) { playCalendars(t, n, time.Microsecond, onServer(startReal(t).client(t))) })
	t.Run("cluster", func(t *testing.T) {
		_, client := startCluster(t)
		playCalendars(t, n, time.Microsecond, onServer(client))
	})
}

// playCalendars plays n schedules. The clock moves by whole ticks, and each schedule has a store of its own; with the store
// nil, the rule decides in memory.
func playCalendars(t *testing.T, n int, tick time.Duration, store func(*ratelimit.FakeClock) ratelimit.Store) {
	var sum calendarCounts
	windows := make(map[string]int)
	for i := range n {
		p := newCalendarPlay(t, i, tick, store)
		for range 30 {
			p.play()
		}
		sum.add(&p.calendarCounts)
		windows[p.kind]++
	}
	t.Logf("%d schedules of %v: %d grants, %d denials, %d looks, %d settlements, %d steps back, %d waits to the tick; 0 differences",
		n, windows, sum.grants, sum.denials, sum.looks, sum.settled, sum.back, sum.waits)
	require.Len(t, windows, 6, "all kinds of windows were drawn")
	for _, count := range []int{sum.grants, sum.denials, sum.looks, sum.settled, sum.waits} {
		require.Greater(t, count, n)
	}
	require.Greater(t, sum.back, n/2)
}

// calendarCounts says how often each thing happened in schedules.
type calendarCounts struct{ grants, denials, looks, settled, back, waits int }

func (c *calendarCounts) add(d *calendarCounts) {
	c.grants, c.denials, c.looks = c.grants+d.grants, c.denials+d.denials, c.looks+d.looks
	c.settled, c.back, c.waits = c.settled+d.settled, c.back+d.back, c.waits+d.waits
}

// oddEdges are instants at which the days of a zone begin or end in an unusual way.
var oddEdges = []struct{ zone, at string }{
	{"", "2028-02-29T00:00:00Z"}, {"", "2000-03-01T00:00:00Z"}, {"", "2026-12-28T00:00:00Z"},
	{"Europe/Berlin", "2026-03-28T23:00:00Z"}, {"Europe/Berlin", "2026-10-25T23:00:00Z"}, // days of 23 and 25 hours
	{"America/New_York", "2027-03-14T05:00:00Z"}, {"America/New_York", "2027-01-01T05:00:00Z"},
	{"Pacific/Apia", "2011-12-30T10:00:00Z"}, {"Pacific/Kiritimati", "1994-12-31T10:00:00Z"}, // a date is skipped
	{"Pacific/Kwajalein", "1993-08-21T12:00:00Z"},                                                // so it is here
	{"America/Sao_Paulo", "2018-11-04T03:00:00Z"}, {"America/Sao_Paulo", "2018-02-18T03:00:00Z"}, // no midnight, and two
	{"Asia/Beirut", "2022-03-26T22:00:00Z"}, {"Asia/Beirut", "2022-10-29T22:00:00Z"}, // no midnight, and two
	{"Asia/Gaza", "2021-03-26T22:00:00Z"}, {"Asia/Gaza", "2016-10-28T22:00:00Z"}, // no midnight, and two
	{"Africa/Cairo", "2024-04-25T22:00:00Z"}, {"Africa/Cairo", "2024-10-31T22:00:00Z"}, // no midnight, and two
	{"America/St_Johns", "2006-10-29T02:31:00Z"}, {"America/Havana", "2026-11-01T04:00:00Z"}, // a minute past midnight; one o'clock
	{"Australia/Lord_Howe", "2026-04-04T13:00:00Z"}, {"Antarctica/Casey", "2023-03-09T16:00:00Z"}, // half an hour; a day of 27 hours
	{"Africa/Casablanca", "2026-02-15T23:00:00Z"}, {"America/Scoresbysund", "2024-03-31T02:00:00Z"}, // summer time ends in spring
	{"Asia/Kolkata", "2026-04-14T18:30:00Z"}, {"Asia/Kathmandu", "1985-12-31T18:30:00Z"}, // quarters of an hour
	{"Africa/Monrovia", "1972-01-07T00:44:30Z"}, {"America/Anchorage", "1983-11-27T09:00:00Z"}, // seconds; three time zones
	{"Antarctica/Troll", "2026-03-29T01:00:00Z"}, {"Pacific/Auckland", "2026-09-26T12:00:00Z"}, // two hours
	{"America/Toronto", "1987-04-26T05:00:00Z"}, {"America/Godthab", "2023-03-26T01:00:00Z"}, // an old rule, and an old name
}

// drawWindow draws a rate with a Window, and an instant from which one edge of it is often not far.
func drawWindow(r *rand.Rand) (rate ratelimit.Rate, kind string, start time.Time) {
	edge := oddEdges[r.IntN(len(oddEdges))]
	at, err := time.Parse(time.RFC3339, edge.at)
	if err != nil {
		panic(err)
	}
	start = at.Add(time.Duration(r.IntN(40*60)-30*60) * time.Minute)
	if r.IntN(4) == 0 {
		const years = 68 * 365 * 24 * 60 * 60
		start = time.Unix(r.Int64N(years), 0) // until 2037
	}
	rate.Requests = 1 + r.IntN(9)
	kind = []string{"day", "day", "week", "month", "billing", "billing", "year", "first"}[r.IntN(8)]
	switch kind {
	case "first":
		rate.Per, rate.Window = time.Duration(1+r.IntN(40))*time.Hour, "first"
	case "billing":
		day := 1 + r.IntN(28)
		if zone, err := time.LoadLocation(edge.zone); err == nil && r.IntN(2) == 0 {
			day = min(at.In(zone).Day(), 28) // the month begins on the unusual day
		}
		rate.Window = ratelimit.Monthly(day, edge.zone)
	default:
		rate.Window = ratelimit.Calendar(kind, edge.zone)
	}
	return rate, kind, start
}

// A calendarPlay is a schedule under way.
type calendarPlay struct {
	t       *testing.T
	r       *rand.Rand
	round   int
	tick    time.Duration
	kind    string
	rate    ratelimit.Rate
	clock   *ratelimit.FakeClock
	limiter *ratelimit.RateLimiter
	keys    []windowKey
	open    []openReservation
	calendarCounts
}

// A windowKey is the model of one key. The method Reserve decides on n units and, if it grants some, also returns what
// settles them.
type windowKey interface {
	Reserve(at time.Time, n int) (ratelimit.Result, func(at time.Time, n int))
}

type openReservation struct {
	*ratelimit.Reservation
	settle func(at time.Time, n int)
	n      int
	until  time.Time // the end of the term
}

const reservedFor = 24 * time.Hour // the longest term

func newCalendarPlay(t *testing.T, round int, tick time.Duration, store func(*ratelimit.FakeClock) ratelimit.Store) *calendarPlay {
	p := &calendarPlay{t: t, r: rand.New(rand.NewPCG(uint64(round), 6)), round: round, tick: tick}
	var start time.Time
	p.rate, p.kind, start = drawWindow(p.r)
	p.clock = ratelimit.NewFakeClock(start)
	opts := []ratelimit.Option{ratelimit.WithClock(p.clock)}
	if s := store(p.clock); s != nil {
		opts = append(opts, ratelimit.WithStore(s), ratelimit.WithName("calendars"))
	}
	var err error
	p.limiter, err = ratelimit.New([]ratelimit.Rule{
		{Name: fmt.Sprint("rule", round), Endpoint: "/", Algorithm: fixed, Rate: p.rate},
	}, nil, opts...)
	require.NoError(t, err)
	for range 2 {
		if p.kind == "first" {
			p.keys = append(p.keys, &firstKey{limit: p.rate.Requests, per: p.rate.Per})
		} else {
			p.keys = append(p.keys, datedKey{ratelimittest.NewAccount(fixed, start, p.rate)})
		}
	}
	return p
}

// play makes one step.
func (p *calendarPlay) play() {
	p.move()
	key := p.r.IntN(len(p.keys))
	switch draw := p.r.IntN(10); {
	case draw < 2:
		p.look(key)
	case draw < 4 && len(p.open) > 0:
		p.settle()
	default:
		n := 1 + p.r.IntN(p.rate.Requests)
		if p.r.IntN(20) == 0 {
			n = p.rate.Requests + 1
		}
		res := p.take(key, n)
		if !res.Allowed && res.RetryAfter != ratelimit.Never && p.r.IntN(2) == 0 {
			p.waits++
			p.clock.Advance(res.RetryAfter - p.tick)
			require.False(p.t, p.take(key, n).Allowed, "%s a tick early", p)
			p.clock.Advance(p.tick)
			require.True(p.t, p.take(key, n).Allowed, "%s after RetryAfter", p)
		}
	}
	p.look(p.r.IntN(len(p.keys)))
}

// expire drops the reservations whose term is over. A term that is over stays so when the clock steps back.
func (p *calendarPlay) expire() {
	now := p.clock.Now()
	p.open = slices.DeleteFunc(p.open, func(o openReservation) bool { return now.After(o.until) })
}

// move moves the clock, sometimes.
func (p *calendarPlay) move() {
	p.expire() // the clock may have moved since the last step, too
	defer p.expire()
	random := func(most time.Duration) time.Duration { return time.Duration(p.r.Int64N(int64(most/p.tick))) * p.tick }
	switch p.r.IntN(12) {
	case 0, 1:
		p.clock.Advance(random(time.Hour))
	case 2, 3:
		p.clock.Advance(random(20 * time.Hour))
	case 4:
		p.clock.Advance(random(400 * time.Hour))
	case 5:
		p.clock.Advance(p.tick)
	case 6:
		p.back++
		p.clock.Advance(-p.tick * time.Duration(1+p.r.IntN(2)))
	case 7:
		p.back++
		p.clock.Advance(-random([]time.Duration{time.Hour, 30 * time.Hour, 1000 * time.Hour}[p.r.IntN(3)]))
	}
}

// take reserves n units of a key, and requires the answer of the model.
func (p *calendarPlay) take(key, n int) ratelimit.Result {
	now := p.clock.Now()
	reserved, err := p.limiter.Reserve(p.t.Context(), ratelimit.Request{Client: fmt.Sprint(key), Endpoint: "/", Cost: n}, reservedFor)
	require.NoError(p.t, err)
	want, settle := p.keys[key].Reserve(now, n)
	p.same(want, reserved.Result(), "%d units", n)
	if !want.Allowed {
		p.denials++
		return want
	}
	p.grants++
	p.open = append(p.open, openReservation{reserved, settle, n, now.Add(reservedFor)})
	return want
}

// look requires that the limiter and the model say the same of a key.
func (p *calendarPlay) look(key int) {
	p.looks++
	got, err := p.limiter.Peek(p.t.Context(), ratelimit.Request{Client: fmt.Sprint(key), Endpoint: "/"})
	require.NoError(p.t, err)
	want, _ := p.keys[key].Reserve(p.clock.Now(), 0)
	p.same(want, got, "a look")
}

// settle settles one of the reservations: it gives some or all units back, or charges more.
func (p *calendarPlay) settle() {
	p.settled++
	i := p.r.IntN(len(p.open))
	o := p.open[i]
	p.open = slices.Delete(p.open, i, i+1)
	n := p.r.IntN(o.n + 1)
	switch p.r.IntN(4) {
	case 0:
		n = o.n + p.r.IntN(3)
	case 1:
		n = 0
	}
	require.NoError(p.t, o.Settle(n))
	o.settle(p.clock.Now(), n)
}

func (p *calendarPlay) same(want, got ratelimit.Result, what string, args ...any) {
	if want.Rule = fmt.Sprint("rule", p.round); !want.Allowed {
		want.Reason = ratelimit.ReasonLimit
	}
	if got != want {
		require.Equal(p.t, want, got, "%s: %s", p, fmt.Sprintf(what, args...))
	}
}

func (p *calendarPlay) String() string {
	return fmt.Sprintf("schedule %d: %v at %v", p.round, p.rate, p.clock.Now().UTC())
}

// A datedKey is the model of a key that counts in the windows of a calendar.
type datedKey struct{ account *ratelimittest.Account }

func (k datedKey) Reserve(at time.Time, n int) (ratelimit.Result, func(at time.Time, n int)) {
	res, entry := k.account.Reserve(at, n)
	return res, func(at time.Time, n int) { k.account.Settle(at, entry, n) }
}

// A firstKey is the model of a key whose windows begin with the first use. It lists its windows with their charges. A
// window that has got all its units back is over, and the next one may begin; but no window begins before another.
type firstKey struct {
	limit   int
	per     time.Duration
	windows []*firstWindow
}

type firstWindow struct {
	begin   time.Time
	charges []int
}

// current returns the instant at which a request at this time counts, the window that contains it, or nil, and the units
// that are used in it.
func (k *firstKey) current(at time.Time) (u time.Time, w *firstWindow, used int) {
	if len(k.windows) == 0 {
		return at, nil, 0
	}
	w = k.windows[len(k.windows)-1]
	if at.Before(w.begin) {
		at = w.begin
	}
	for _, n := range w.charges {
		used += n
	}
	if used == 0 || at.Sub(w.begin) >= k.per {
		return at, nil, 0
	}
	return at, w, used
}

// charge charges n units at this time, even past the limit. It returns what settles them.
func (k *firstKey) charge(at time.Time, n int) func(at time.Time, n int) {
	u, w, _ := k.current(at)
	if w == nil {
		w = &firstWindow{begin: u}
		k.windows = append(k.windows, w)
	}
	i := len(w.charges)
	w.charges = append(w.charges, n)
	return func(at time.Time, actual int) {
		if actual > n {
			k.charge(at, actual-n)
			return
		}
		w.charges[i] = actual
	}
}

func (k *firstKey) Reserve(at time.Time, n int) (res ratelimit.Result, settle func(at time.Time, n int)) {
	u, w, used := k.current(at)
	res.Limit = k.limit
	end := u.Add(k.per)
	if w != nil {
		end = w.begin.Add(k.per)
	}
	switch want := max(n, 1); {
	case want > k.limit:
		res.RetryAfter = ratelimit.Never
	case used+want > k.limit:
		res.RetryAfter = end.Sub(at)
	default:
		res.Allowed = true
		if n > 0 {
			settle = k.charge(at, n)
			used += n
		}
	}
	res.Remaining = max(k.limit-used, 0)
	if used > 0 {
		res.ResetAfter = end.Sub(at)
	}
	return res, settle
}

// TestZoneDataChanges is the attack on a key that lives across a change of zone data: a process with older data has charged
// it, by which clocks are not set in Cairo. The older end of a window holds for a key that was charged in it, if it is later
// than the newer one; if it is sooner, the newer one holds. So no key is granted more than the limit in a day.
func TestZoneDataChanges(t *testing.T) {
	client := startReal(t).client(t)
	for _, c := range []struct{ begin, oldEnd, newEnd, denied, granted, why string }{
		{"2024-04-25T22:00:00Z", "2024-04-26T22:00:00Z", "2024-04-26T21:00:00Z", "2024-04-26T21:59:59.999999Z", "2024-04-26T22:00:00Z",
			"the day has 23 hours by the newer data"},
		{"2024-10-30T21:00:00Z", "2024-10-31T21:00:00Z", "2024-10-31T22:00:00Z", "2024-10-31T21:59:59.999999Z", "2024-10-31T22:00:00Z",
			"the day has 25 hours by the newer data"},
	} {
		at := func(text string) time.Time {
			u, err := time.Parse(time.RFC3339Nano, text)
			require.NoError(t, err)
			return u
		}
		clock := ratelimit.NewFakeClock(at(c.begin).Add(time.Hour))
		s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
		rate := ratelimit.Rate{Requests: 3, Window: "day Africa/Cairo"}
		u := ask(fixed, rate, 1)
		u.Rule = c.why
		state := fmt.Sprintf("day_Africa/Cairo %d 0 3 %d %d", clock.Now().Unix(), at(c.begin).Unix(), at(c.oldEnd).Unix())
		require.NoError(t, client.Set(t.Context(), s.KeyOf(u), state, 0).Err())
		clock.Set(at(c.denied))
		wait := time.Microsecond
		require.Equal(t, denial(3, 0, wait, wait), take(t, s, u), c.why)
		clock.Set(at(c.granted))
		require.Equal(t, 2, take(t, s, u).Remaining, c.why)

		other := u
		other.Rule += ", another key"
		clock.Set(at(c.newEnd).Add(-time.Microsecond))
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: 3, Remaining: 2, ResetAfter: wait}, take(t, s, other), c.why)
		clock.Set(at(c.newEnd))
		require.Equal(t, 2, take(t, s, other).Remaining, "%s: a key without a state has the newer edges", c.why)
	}
}
