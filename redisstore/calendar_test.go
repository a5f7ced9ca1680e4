package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

const fixed = ratelimit.AlgorithmFixedWindow

// monthly is a rate of n units in each month of Berlin, and firstUse one of n units in windows of an hour that begin with
// the first use.
func monthly(n int) ratelimit.Rate { return ratelimit.Rate{Requests: n, Window: "month Europe/Berlin"} }

func firstUse(n int) ratelimit.Rate {
	return ratelimit.Rate{Requests: n, Per: time.Hour, Window: "first"}
}

// berlin returns an instant of Berlin.
func berlin(t testing.TB, text string) time.Time {
	t.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	at, err := time.ParseInLocation("2006-01-02 15:04:05.999999", text, zone)
	require.NoError(t, err)
	return at
}

// TestWindowStored has what the server stores of a key that counts by a calendar, or from the first use. All windows of
// an algorithm have one name, so a key keeps its count when its Window changes.
func TestWindowStored(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(berlin(t, "2026-10-24 12:00:00.000007"))
	s := newStore(t, client, redisstore.WithClock(clock))
	key := "ratelimit:{ca}:1f:rule"
	stored := func() string { return client.Get(t.Context(), key).Val() }
	now := fmt.Sprintf("%d 7", clock.Now().Unix())
	begin, ends := berlin(t, "2026-10-01 00:00:00"), berlin(t, "2026-11-01 00:00:00")

	res := take(t, s, ask(fixed, monthly(10), 3))
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: ends.Sub(clock.Now())}, res)
	require.Equal(t, fmt.Sprintf("month_Europe/Berlin %s 3 %d %d", now, begin.Unix(), ends.Unix()), stored())
	res = take(t, s, ask(fixed, firstUse(10), 2))
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 5, ResetAfter: time.Hour}, res)
	require.Equal(t, "first:3600000000 "+now+" 5", stored())
	clock.Advance(10 * time.Minute)
	require.Equal(t, 4, take(t, s, ask(fixed, firstUse(10), 1)).Remaining)
	require.Equal(t, "first:3600000000 "+now+" 6", stored(), "the instant is that of the begin")
	day := ratelimit.Rate{Requests: 10, Window: "day Europe/Berlin"}
	require.Equal(t, 3, take(t, s, ask(fixed, day, 1)).Remaining)
	begin, ends = berlin(t, "2026-10-24 00:00:00"), berlin(t, "2026-10-25 00:00:00")
	require.Equal(t, fmt.Sprintf("day_Europe/Berlin %d 7 7 %d %d", clock.Now().Unix(), begin.Unix(), ends.Unix()), stored())
	require.Equal(t, 2, take(t, s, ask(fixed, ratelimit.PerDay(10), 1)).Remaining, "the rate has no Window any more")
	require.Equal(t, fmt.Sprintf("86400000000 %d 7 8", clock.Now().Unix()), stored())

	for _, zone := range []string{"Europe/London", "Pacific/Apia"} {
		take(t, s, ask(fixed, ratelimit.Rate{Requests: 10, Window: ratelimit.Calendar("day", zone)}, 0))
		require.Equal(t, fmt.Sprintf("86400000000 %d 7 8", clock.Now().Unix()), stored(), "a look changes nothing")
	}
	take(t, s, ask(fixed, day, 10))
	require.Regexp(t, "^day_Europe/Berlin .* 8 ", stored(), "a denial changes the windows")
	take(t, s, ask(fixed, ratelimit.Rate{Requests: 10, Window: "day Pacific/Apia"}, 10))
	require.Regexp(t, "^day_Pacific/Apia .* 8 ", stored())

	found, ok := s.Stored(key)
	require.True(t, ok)
	require.Equal(t, fixed, found.Ask.Algorithm)
	found.Ask.Rate = monthly(10)
	looked, err := s.Look(t.Context(), []redisstore.Stored{found})
	require.NoError(t, err)
	require.Equal(t, 2, looked[0].Remaining)

	for _, foreign := range []string{
		"month_Europe/Berlin 1 0 3", "month_Europe/Berlin 1 0 3 1", "first:60 1 0 3 1 2", "first: 1 0 3", "60 1 0 3 1", "0 1 0 3", "12a 1 0 3",
		"first:0 1 0 3", "60 1 0", "", "first:60 1 2000000 3",
	} {
		require.NoError(t, client.Set(t.Context(), key, foreign, 0).Err())
		for _, rate := range []ratelimit.Rate{monthly(10), firstUse(10), ratelimit.PerDay(10)} {
			_, err = s.Take(t.Context(), []ratelimit.Ask{ask(fixed, rate, 1)})
			var e *redisstore.Error
			require.ErrorAs(t, err, &e, foreign)
			require.Equal(t, redisstore.ClassCorrupt, e.Class, foreign)
		}
		require.Equal(t, foreign, stored())
	}
}

// TestFirstWindowBegins requires that a window begins with the first grant, and that neither a denial nor a look nor
// units that all come back begin one.
func TestFirstWindowBegins(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	rate := firstUse(10)
	require.Equal(t, denial(10, 10, ratelimit.Never, 0), take(t, s, ask(fixed, rate, 11)))
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 10}, take(t, s, ask(fixed, rate, 0)))
	require.Empty(t, dump(t, client), "a denial begins no window")

	clock.Advance(time.Minute)
	reserved := revocable(fixed, rate, 1, 7, time.Hour)
	require.Equal(t, time.Hour, take(t, s, reserved).ResetAfter)
	clock.Advance(50 * time.Minute)
	require.Equal(t, 10*time.Minute, take(t, s, ask(fixed, rate, 9)).ResetAfter)
	settle(t, s, reserved, 0)
	clock.Advance(5*time.Minute - time.Microsecond)
	left := 5*time.Minute + time.Microsecond
	require.Equal(t, denial(10, 1, left, left), take(t, s, ask(fixed, rate, 2)), "the window keeps its begin while anything is left in it")
	clock.Advance(5 * time.Minute)
	require.False(t, take(t, s, ask(fixed, rate, 2)).Allowed, "a microsecond early")
	clock.Advance(time.Microsecond)
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 8, ResetAfter: time.Hour}, take(t, s, ask(fixed, rate, 2)))

	clock.Advance(time.Hour)
	reserved.Receipt = 8
	require.True(t, take(t, s, reserved).Allowed)
	clock.Advance(20 * time.Minute)
	settle(t, s, reserved, 0)
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 10}, take(t, s, ask(fixed, rate, 0)))
	clock.Advance(-10 * time.Minute)
	require.Equal(t, time.Hour, take(t, s, ask(fixed, rate, 1)).ResetAfter, "the window to which all came back has not begun")
}

// calls returns how many commands s has sent since the last call of the function that calls returns.
func calls(s *redisstore.Store) func() int {
	last := s.Stats().Calls
	return func() int {
		before := last
		last = s.Stats().Calls
		return int(last - before)
	}
}

// TestProcessClockIsOff has processes whose clock differs from that of the server. The server decides by its own clock,
// and a process whose windows are others pays one call more, once.
func TestProcessClockIsOff(t *testing.T) {
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		server := ratelimit.NewFakeClock(berlin(t, "2026-10-25 12:00:00"))
		rate := ratelimit.Rate{Requests: 1000, Window: "day Europe/Berlin"}
		ends := berlin(t, "2026-10-26 00:00:00")
		for i, row := range []struct {
			off  time.Duration
			more int
			why  string
		}{
			{0, 0, "the clocks agree"},
			{11 * time.Hour, 0, "the day is the same"},
			{-24 * time.Hour, 0, "the server is in the next day"},
			{-37 * time.Hour, 0, "at midnight, because the server's day has 25 hours"},
			{-37*time.Hour - time.Microsecond, 1, "the server is in the day after the next"},
			{12*time.Hour - time.Microsecond, 0, "still the same day"},
			{12 * time.Hour, 1, "the server is in the day before"},
			{-50 * 366 * 24 * time.Hour, 1, "a process that believes that it is 1976"},
			{50 * 366 * 24 * time.Hour, 1, "or 2076"},
		} {
			process := ratelimit.NewFakeClock(server.Now().Add(row.off))
			first := newStore(t, connect(), redisstore.WithClock(server))
			take(t, first, ask(fixed, rate, 0)) // its client knows the servers now, and the servers know the script
			s := newStore(t, first.Client(), redisstore.WithClock(server), redisstore.WithProcessClock(process))
			sent := calls(s)
			u := ask(fixed, rate, 1)
			u.Rule = fmt.Sprint(i)
			want := ratelimit.Result{Allowed: true, Limit: 1000, Remaining: 999, ResetAfter: ends.Sub(server.Now())}
			require.Equal(t, want, take(t, s, u), row.why)
			require.Equal(t, 1+row.more, sent(), row.why)
			for _, rule := range []string{"", " too"} {
				u.Rule += rule
				want.Remaining = 998
				if rule != "" {
					want.Remaining = 999
				}
				require.Equal(t, want, take(t, s, u), row.why)
				require.Equal(t, 1, sent(), "%s: the difference is known", row.why)
			}
			process.Set(server.Now()) // the clock of the process is corrected
			u.Rule += " and corrected"
			require.Equal(t, want, take(t, s, u), row.why)
			require.LessOrEqual(t, sent(), 2)
			take(t, s, u)
			require.Equal(t, 1, sent())
			require.Empty(t, s.Stats().Errors, row.why)
		}
	})
}

// ownAndAllMonthly are asks for units of a client's own state and of one that all clients share, which are in two slots of
// a Cluster, and of two states that have no calendar.
func ownAndAllMonthly(n int) []ratelimit.Ask {
	asks := append(ownAndAll(n), ownAndAll(n)...)
	for i := range asks[2:] {
		a := &asks[2+i]
		a.Rule, a.Algorithm, a.Rate = a.Rule+" monthly", fixed, monthly(1000)
	}
	return asks
}

// remaining returns how many units are left of each ask.
func remaining(t *testing.T, s *redisstore.Store, asks []ratelimit.Ask) (left []int) {
	t.Helper()
	for _, a := range asks {
		a.N = 0
		left = append(left, take(t, s, a).Remaining)
	}
	return left
}

// TestNothingIsChargedOutside has scripts that learn that the server's time is in none of the windows that the caller
// names. They charge nothing of any of their asks, so that each is charged once, also if a request has an ID, or if a
// settlement charges further units.
func TestNothingIsChargedOutside(t *testing.T) {
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		server := ratelimit.NewFakeClock(berlin(t, "2026-03-31 23:59:59.999999"))
		right := newStore(t, connect(), redisstore.WithClock(server), redisstore.WithDenialCache(0))
		const most = 1 << 20
		used := 0
		check := func(n int, res []ratelimit.Result) {
			t.Helper()
			used += n
			for i, r := range res {
				require.True(t, r.Allowed)
				require.Equal(t, max(most*(1-i/2), 1000)-used, r.Remaining)
			}
			require.Equal(t, []int{most - used, most - used, 1000 - used, 1000 - used}, remaining(t, right, ownAndAllMonthly(0)))
		}
		off := func() *redisstore.Store {
			process := ratelimit.NewFakeClock(server.Now().AddDate(0, 2, 0))
			return newStore(t, connect(), redisstore.WithClock(server), redisstore.WithProcessClock(process))
		}
		res, err := off().Take(t.Context(), ownAndAllMonthly(2))
		require.NoError(t, err)
		check(2, res)

		once := ratelimit.Attempt{Client: "alice", ID: "1", TTL: time.Hour}
		res, replayed, err := off().Once(t.Context(), once, ownAndAllMonthly(3))
		require.NoError(t, err)
		require.False(t, replayed)
		check(3, res)
		again, replayed, err := off().Once(t.Context(), once, ownAndAllMonthly(3))
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, res, again)
		check(0, nil)

		reserved := ownAndAllMonthly(4)
		for i := range reserved {
			reserved[i].Receipt, reserved[i].HoldFor = 7, time.Hour
		}
		res, err = off().Take(t.Context(), reserved)
		require.NoError(t, err)
		check(4, res)
		for i := range reserved {
			reserved[i].N, reserved[i].Charged = 9, 4
		}
		require.NoError(t, off().Settle(t.Context(), reserved))
		check(5, nil)

		denied := ownAndAllMonthly(1)
		denied[3].N = 1000
		for range 2 {
			res, err = off().Take(t.Context(), denied)
			require.NoError(t, err)
			require.False(t, res[3].Allowed)
			require.Equal(t, time.Microsecond, res[3].RetryAfter)
			check(0, nil)
		}
		res, _, err = off().Once(t.Context(), ratelimit.Attempt{Client: "alice", ID: "2", TTL: time.Hour}, denied)
		require.NoError(t, err)
		require.False(t, res[3].Allowed)
		check(0, nil)

		server.Advance(time.Microsecond)
		once.ID = "3"
		res, _, err = off().Once(t.Context(), once, ownAndAllMonthly(1))
		require.NoError(t, err)
		require.Equal(t, 999, res[2].Remaining, "it is April")
		require.Equal(t, berlin(t, "2026-05-01 00:00:00").Sub(server.Now()), res[3].ResetAfter)
		for i := range reserved {
			reserved[i].N, reserved[i].Charged = 20, 0
		}
		require.NoError(t, off().Settle(t.Context(), reserved))
		require.Equal(t, []int{979, 979}, remaining(t, right, ownAndAllMonthly(0))[2:], "further units are charged in April")
		server.Set(berlin(t, "2026-05-01 00:00:00"))
		require.NoError(t, off().Settle(t.Context(), reserved))
		require.Equal(t, []int{most - 20, most - 20, 980, 980}, remaining(t, right, ownAndAllMonthly(0)), "and in May, once")
		carried := ask(fixed, firstUse(1000), 0)
		carried.Rule, carried.Key, carried.Client = reserved[3].Rule, reserved[3].Key, reserved[3].Client
		require.Equal(t, 980, take(t, right, carried).Remaining, "the server knows the window in which they are charged")
	})
}

// TestWindowKeysExpire checks that the keys of windows expire by the server's clock when their window ends, whatever the
// process believes.
func TestWindowKeysExpire(t *testing.T) {
	client := startReal(t).client(t)
	process := ratelimit.NewFakeClock(time.Unix(0, 0))
	s := newStore(t, client, redisstore.WithProcessClock(process))
	for _, row := range []struct {
		rate    ratelimit.Rate
		longest time.Duration
	}{
		{monthly(10), 31*24*time.Hour + time.Hour},
		{ratelimit.Rate{Requests: 10, Window: "year"}, 366 * 24 * time.Hour},
		{firstUse(10), time.Hour},
		{ratelimit.Rate{Requests: 10, Per: time.Millisecond, Window: "first"}, time.Millisecond},
	} {
		for _, warmup := range []ratelimit.Warmup{{}, {From: 5, Over: time.Hour}} {
			u := ask(fixed, row.rate, 1)
			u.Rule, u.Warmup = row.rate.String(), warmup
			res := take(t, s, u)
			require.Positive(t, res.ResetAfter)
			require.LessOrEqual(t, res.ResetAfter, max(row.longest, warmup.Over))
			ttl, err := client.PTTL(t.Context(), s.KeyOf(u)).Result()
			require.NoError(t, err)
			require.Greater(t, ttl, res.ResetAfter, "%v: the key expires a second late, and the test takes less than that", row.rate)
			require.LessOrEqual(t, ttl, min(res.ResetAfter, row.longest)+warmup.Over+2*time.Second, row.rate)
		}
	}
}

// TestWindowsSurviveTheServer kills a server and starts it again with what it has stored.
func TestWindowsSurviveTheServer(t *testing.T) {
	srv := startReal(t, "--appendonly", "yes", "--appendfsync", "always")
	clock := ratelimit.NewFakeClock(berlin(t, "2026-02-28 23:00:00"))
	s := newStore(t, srv.client(t), redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	first := firstUse(10)
	first.Per = 2 * time.Hour
	for _, rate := range []ratelimit.Rate{monthly(10), first} {
		u := ask(fixed, rate, 6)
		u.Rule = rate.String()
		take(t, s, u)
	}
	srv.kill(t)
	srv.run(t)
	srv.await(t)
	clock.Advance(59 * time.Minute)
	for _, row := range []struct {
		rate ratelimit.Rate
		wait time.Duration
	}{{monthly(10), time.Minute}, {first, time.Hour}} {
		u := ask(fixed, row.rate, 5)
		u.Rule = row.rate.String()
		require.Equal(t, denial(10, 4, row.wait, row.wait), take(t, s, u))
		clock.Advance(row.wait)
		require.Equal(t, 5, take(t, s, u).Remaining)
	}
}

// TestWindowsKeepNothingInTheProcess has a store that takes units ahead and remembers denials. It takes no units of a
// window with an edge ahead, and it remembers a denial until the edge.
func TestWindowsKeepNothingInTheProcess(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(berlin(t, "2026-02-28 23:59:59.9"))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithLeases(100), redisstore.WithDenialCache(time.Minute))
	for _, rate := range []ratelimit.Rate{monthly(50), {Requests: 50, Per: 100 * time.Millisecond, Window: "first"}} {
		u := ask(fixed, rate, 1)
		u.Rule = rate.String()
		for range 50 {
			require.True(t, take(t, s, u).Allowed)
		}
		require.Zero(t, s.Stats().Leased)
		end := 100 * time.Millisecond
		want := denial(50, 0, end, end)
		require.Equal(t, want, take(t, s, u))
		clock.Advance(end - time.Microsecond)
		before := s.Stats()
		want.RetryAfter, want.ResetAfter = time.Microsecond, time.Microsecond
		require.Equal(t, want, take(t, s, u))
		res, denied := s.Denied(u)
		require.True(t, denied)
		require.Equal(t, want, res)
		require.Equal(t, before.Calls, s.Stats().Calls, "the denial is remembered")
		other := u
		other.Rate.Window = "day"
		other.Rate.Per = 0
		_, denied = s.Denied(other)
		require.False(t, denied, "it is that of this Window")
		clock.Advance(time.Microsecond)
		require.Equal(t, 49, take(t, s, u).Remaining, "at the edge")
		clock.Set(berlin(t, "2026-02-28 23:59:59.9"))
	}
	reserved := revocable(fixed, monthly(1), 1, 7, time.Hour)
	reserved.Rule = "r"
	require.True(t, take(t, s, reserved).Allowed)
	u := ask(fixed, monthly(1), 1)
	u.Rule = "r"
	require.False(t, take(t, s, u).Allowed)
	settle(t, s, reserved, 0)
	require.True(t, take(t, s, u).Allowed, "a settlement forgets the denial")

	u = ask(fixed, monthly(5), 3)
	u.Rule = "several"
	require.Equal(t, 2, take(t, s, u).Remaining)
	require.False(t, take(t, s, u).Allowed)
	u.N = 1
	require.Equal(t, 1, take(t, s, u).Remaining, "the denial was one of three units")
	u.Rule, u.N, u.Penalty = "struck", 5, ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Minute}
	require.True(t, take(t, s, u).Allowed)
	u.N = 1
	require.Equal(t, ratelimit.ReasonLimit, take(t, s, u).Reason)
	require.Equal(t, ratelimit.ReasonPenalty, take(t, s, u).Reason, "each denial is a strike")
}

// TestFurtherUnitsAfterTheCalendarChanged charges further units at another Window than that of the state. They go into the
// window of the state while it lasts, and then into one of the new Window.
func TestFurtherUnitsAfterTheCalendarChanged(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(berlin(t, "2026-10-24 12:00:00"))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	day := ratelimit.Rate{Requests: 10, Window: "day Europe/Berlin"}
	for _, rate := range []ratelimit.Rate{monthly(10), firstUse(10), ratelimit.PerDay(10)} {
		clock.Set(berlin(t, "2026-10-24 12:00:00"))
		take(t, s, ask(fixed, day, 3))
		more := ask(fixed, rate, 2)
		more.Receipt = 7
		require.NoError(t, s.Settle(t.Context(), []ratelimit.Ask{more}))
		require.Equal(t, 5, left(t, s, ask(fixed, day, 0)))
		clock.Set(berlin(t, "2026-10-25 00:00:01"))
		off := newStore(t, client, redisstore.WithClock(clock), redisstore.WithProcessClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
		require.NoError(t, off.Settle(t.Context(), []ratelimit.Ask{more}))
		if rate == monthly(10) {
			edges := fmt.Sprint(berlin(t, "2026-10-01 00:00:00").Unix(), berlin(t, "2026-11-01 00:00:00").Unix())
			require.Contains(t, fmt.Sprint(dump(t, client)), edges, "the clock of the process is off")
		}
		require.Equal(t, 8, left(t, s, ask(fixed, rate, 0)), rate)
		require.Equal(t, 8, left(t, s, ask(fixed, day, 0)), "%v: the count is carried", rate)
		require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{more}))
	}
}

// TestFurtherUnitsOfAnUnusedKey charges further units to a key whose units were all given back, from a process whose clock is
// off. The key keeps its window: with the edges of the process, it would have had one without a length, and no answer.
func TestFurtherUnitsOfAnUnusedKey(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(berlin(t, "2026-10-24 12:00:00").Add(-time.Microsecond))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	u := ask(fixed, ratelimit.Rate{Requests: 10, Window: "day Europe/Berlin"}, 4)
	u.Receipt, u.HoldFor = 5, time.Hour
	take(t, s, u)
	u.Charged, u.N = 4, 0
	require.NoError(t, s.Settle(t.Context(), []ratelimit.Ask{u}))
	off := newStore(t, client, redisstore.WithClock(clock), redisstore.WithProcessClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
	u.Receipt, u.Charged, u.N, u.HoldFor = 7, 0, 3, 0
	require.NoError(t, off.Settle(t.Context(), []ratelimit.Ask{u}))
	require.Equal(t, 7, left(t, s, ask(fixed, u.Rate, 0)))
}

// TestFurtherUnitsOfAWarmKey charges further units to a key that still warms up, after its window has ended: at the same calendar,
// and at another one. What was charged in the window before counts no more.
func TestFurtherUnitsOfAWarmKey(t *testing.T) {
	client := startReal(t).client(t)
	day := ratelimit.Rate{Requests: 10, Window: "day Europe/Berlin"}
	for _, rate := range []ratelimit.Rate{day, monthly(10)} {
		warm := func(rate ratelimit.Rate, n int) []ratelimit.Ask {
			a := ask(fixed, rate, n)
			a.Warmup = ratelimit.Warmup{From: 5, Over: 72 * time.Hour}
			return []ratelimit.Ask{a}
		}
		clock := ratelimit.NewFakeClock(time.Time{})
		memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		var answers [2][]ratelimit.Result
		for i, s := range []interface {
			ratelimit.Store
			ratelimit.StoreSettler
		}{memory, newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))} {
			clock.Set(berlin(t, "2026-10-24 12:00:00"))
			require.NoError(t, s.Reset(t.Context(), warm(day, 0)))
			_, err := s.Take(t.Context(), warm(day, 3))
			require.NoError(t, err)
			clock.Set(berlin(t, "2026-10-25 00:00:01"))
			more := warm(rate, 2)
			more[0].Receipt = 7
			require.NoError(t, s.Settle(t.Context(), more))
			clock.Advance(time.Second)
			answers[i], err = s.Take(t.Context(), warm(rate, 0))
			require.NoError(t, err)
		}
		require.Equal(t, answers[0], answers[1], rate)
		require.Equal(t, 5-2, answers[1][0].Remaining, "%v: after 12 of 72 hours, the limit is still 5", rate)
	}
}

// TestWindowsAheadOfTheServer sets the server's clock back by days after a key was charged, and then asks by a calendar. The
// state counts in the day of its last charge, which is neither the server's day nor the next one.
func TestWindowsAheadOfTheServer(t *testing.T) {
	clock := ratelimit.NewFakeClock(berlin(t, "2026-10-24 12:00:00"))
	s := newStore(t, startReal(t).client(t), redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	take(t, s, ask(fixed, firstUse(10), 3))
	clock.Set(berlin(t, "2026-10-20 12:00:00"))
	day := ratelimit.Rate{Requests: 10, Window: "day Europe/Berlin"}
	left := 4*24*time.Hour + 12*time.Hour
	require.Equal(t, ratelimit.Result{Allowed: true, Limit: 10, Remaining: 3, ResetAfter: left}, take(t, s, ask(fixed, day, 4)))
}

// TestWindowClockHeals sets the server's clock ahead by mistake, and back. A key that was charged meanwhile is moved to now:
// its units stay used, but for no longer than a window.
func TestWindowClockHeals(t *testing.T) {
	client := startReal(t).client(t)
	right := berlin(t, "2026-10-24 12:00:00")
	clock := ratelimit.NewFakeClock(right)
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithHealing(), redisstore.WithDenialCache(0))
	for _, row := range []struct {
		rate  ratelimit.Rate
		reset time.Duration
	}{
		{firstUse(4), time.Hour},
		{monthly(4), berlin(t, "2026-11-01 00:00:00").Sub(right)},
	} {
		u := ask(fixed, row.rate, 3)
		clock.Set(right.AddDate(10, 0, 0))
		require.True(t, take(t, s, u).Allowed)
		clock.Set(right)
		require.Equal(t, denial(4, 1, row.reset, row.reset), take(t, s, u))
		clock.Advance(row.reset - time.Microsecond)
		require.Equal(t, denial(4, 1, time.Microsecond, time.Microsecond), take(t, s, u))
		clock.Advance(time.Microsecond)
		require.Equal(t, 1, take(t, s, u).Remaining)

		clock.Set(right.AddDate(10, 0, 0))
		more := u
		more.Receipt, more.Charged, more.N = 1, 0, 1
		require.NoError(t, s.Settle(t.Context(), []ratelimit.Ask{more}))
		clock.Set(right)
		more.N = 2
		require.NoError(t, s.Settle(t.Context(), []ratelimit.Ask{more}))
		u.N = 0
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: 4, Remaining: 1, ResetAfter: row.reset}, take(t, s, u))
		require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{u}))
	}
}

// TestWindowSupports has which Windows the store refuses.
func TestWindowSupports(t *testing.T) {
	s := nowhere(t)
	for _, row := range []struct {
		algorithm ratelimit.Algorithm
		rate      ratelimit.Rate
		says      string
	}{
		{fixed, monthly(10), ""},
		{fixed, firstUse(10), ""},
		{ratelimit.AlgorithmSlidingWindowLog, firstUse(10), "window needs the algorithm FixedWindow: no other counts in such windows"},
		{ratelimit.AlgorithmTokenBucket, monthly(10), "window needs the algorithm FixedWindow: no other counts in such windows"},
		{ratelimit.AlgorithmInFlight, firstUse(10), "window needs the algorithm FixedWindow: no other counts in such windows"},
		{fixed, ratelimit.Rate{Requests: 1, Per: 1500, Window: "first"}, "whole microseconds"},
		{fixed, ratelimit.Rate{Requests: 1, Per: time.Hour, Window: "month"}, "per must be 0"},
		{fixed, ratelimit.Rate{Requests: 1, Window: "month Europe/Brelin"}, "Europe/Berlin"},
		{fixed, ratelimit.Rate{Requests: 1, Burst: 2, Window: "month"}, "burst must be 0"},
		{fixed, ratelimit.Rate{Requests: 1, Window: "first"}, "per must be longer than zero"},
	} {
		err := s.Supports(row.algorithm, row.rate)
		if row.says == "" {
			require.NoError(t, err)
			require.NoError(t, s.Accepts(ratelimit.Ask{Algorithm: row.algorithm, Rate: row.rate}))
			continue
		}
		require.ErrorContains(t, err, row.says)
		_, err = s.Take(t.Context(), []ratelimit.Ask{ask(row.algorithm, row.rate, 1)})
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	}
}
