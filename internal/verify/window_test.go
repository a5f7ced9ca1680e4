package verify

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A windowKey is the model of one key of a fixed window with a Window: a calendar, or "first". It knows what
// was charged, and finds windows by reading local dates.
type windowKey struct {
	limit   int
	per     time.Duration  // for "first"
	zone    *time.Location // of a calendar
	unit    string
	charges []windowCharge
	begin   time.Time // for "first": the begin of the window; zero if there is none
	last    time.Time // the instant before which no request counts
}

type windowCharge struct {
	at time.Time
	n  int
}

// id returns a number for the window of the calendar that contains the time u. A date begins at the least
// instant from which on the local date is never before it, so the date at u is the least that a clock shows from u on.
func (k *windowKey) id(u time.Time) int64 {
	least := dayOf(u.In(k.zone))
	next := u.Truncate(15 * time.Minute)
	for range 14 { // clocks are set at whole quarters of an hour, and at most three hours back
		next = next.Add(15 * time.Minute)
		least = min(least, dayOf(next.In(k.zone)))
	}
	t := time.Unix(least*86400, 0).UTC()
	switch k.unit {
	case "week":
		return (least + 3) / 7
	case "month":
		return int64(t.Year()*12) + int64(t.Month())
	case "year":
		return int64(t.Year())
	}
	return least
}

// dayOf returns the local date of t as a number of days.
func dayOf(t time.Time) int64 {
	return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400
}

// count returns the time at which a request at now counts, and the units in its window.
func (k *windowKey) count(now time.Time) (u time.Time, used int) {
	if u = now; u.Before(k.last) {
		u = k.last
	}
	for _, c := range k.charges {
		switch {
		case k.zone != nil && k.id(c.at) == k.id(u), k.zone == nil && u.Sub(k.begin) < k.per:
			used += c.n
		}
	}
	return u, used
}

// ask decides on n units, and charges them if they are granted. The result index names the charge.
func (k *windowKey) ask(now time.Time, n int) (granted bool, left, index int) {
	u, used := k.count(now)
	if used+n > k.limit {
		return false, max(k.limit-used, 0), 0
	}
	if k.zone == nil && used == 0 {
		k.begin, k.charges = u, nil
	}
	k.charges = append(k.charges, windowCharge{u, n})
	k.last = u
	if k.zone == nil {
		k.last = k.begin
	}
	return true, k.limit - used - n, len(k.charges) - 1
}

// settle makes a charge one of n units.
func (k *windowKey) settle(at time.Time, index, n int) {
	if index >= len(k.charges) || k.zone == nil && !at.Equal(k.begin) {
		return
	}
	k.charges[index].n = min(k.charges[index].n, n)
	sum := 0
	for _, c := range k.charges {
		sum += c.n
	}
	if k.zone == nil && sum == 0 {
		k.charges, k.begin = nil, time.Time{} // k.last stays: no window begins before another
	}
}

// windowEdges are times near which windows of some zone begin in an unusual way, with a Window that has an edge there.
var windowEdges = []struct{ window, zone, at string }{
	{"day Europe/Berlin", "Europe/Berlin", "2026-03-29T00:00:00Z"}, // 23 hours
	{"day Europe/Berlin", "Europe/Berlin", "2026-10-25T23:00:00Z"}, // 25 hours
	{"day Pacific/Apia", "Pacific/Apia", "2011-12-30T10:00:00Z"},   // the 30th is skipped
	{"day", "UTC", "2028-02-29T00:00:00Z"},
	{"month", "UTC", "2028-03-01T00:00:00Z"},
	{"day America/Sao_Paulo", "America/Sao_Paulo", "2018-11-04T03:00:00Z"}, // no midnight
	{"day America/Sao_Paulo", "America/Sao_Paulo", "2018-02-18T03:00:00Z"}, // two midnights
	{"day Asia/Beirut", "Asia/Beirut", "2022-03-26T22:00:00Z"},
	{"day Asia/Beirut", "Asia/Beirut", "2022-10-29T22:00:00Z"},
	{"day Asia/Gaza", "Asia/Gaza", "2021-03-26T22:00:00Z"},
	{"day Africa/Cairo", "Africa/Cairo", "2024-04-25T22:00:00Z"},
	{"day Africa/Cairo", "Africa/Cairo", "2024-10-31T22:00:00Z"},
	{"week Europe/Berlin", "Europe/Berlin", "2026-03-29T22:00:00Z"},
	{"year America/New_York", "America/New_York", "2027-01-01T05:00:00Z"},
	{"first", "", "2026-01-01T00:00:00Z"},
}

// TestWindowSchedules compares a fixed window with a Window, in memory and on a MemoryStore, with the model, in random
// schedules of requests, reservations and steps of the clock, also back, around unusual edges. A denied request is asked
// again one nanosecond before its RetryAfter and at it.
func TestWindowSchedules(t *testing.T) {
	oneGoroutine(t)
	rounds := 2000
	if testing.Short() {
		rounds = 300
	}
	for _, stored := range []bool{false, true} {
		denials := 0
		for seed := range rounds {
			denials += playWindow(t, uint64(seed), stored)
		}
		t.Log("stored:", stored, "schedules:", rounds, "denials:", denials)
		require.Greater(t, denials, rounds/2)
	}
}

func playWindow(t *testing.T, seed uint64, stored bool) (denials int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 24))
	edge := windowEdges[r.IntN(len(windowEdges))]
	at, err := time.Parse(time.RFC3339, edge.at)
	require.NoError(t, err)
	rate := ratelimit.Rate{Requests: 1 + r.IntN(6), Window: ratelimit.Window(edge.window)}
	k := &windowKey{limit: rate.Requests}
	if edge.zone == "" {
		rate.Per = time.Duration(1+r.IntN(100)) * time.Minute
		k.per = rate.Per
	} else {
		k.zone, err = time.LoadLocation(edge.zone)
		require.NoError(t, err)
		for _, unit := range []string{"day", "week", "month", "year"} {
			if len(edge.window) >= len(unit) && edge.window[:len(unit)] == unit {
				k.unit = unit
			}
		}
	}
	clock := ratelimit.NewFakeClock(at.Add(-time.Duration(r.IntN(200)) * time.Minute))
	opts := []ratelimit.Option{ratelimit.WithClock(clock)}
	if stored {
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("x"))
	}
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "r", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: rate}}, nil, opts...)
	require.NoError(t, err)
	req := ratelimit.Request{Client: "c", Endpoint: "/"}
	type held struct {
		res   *ratelimit.Reservation
		begin time.Time
		index int
		until time.Time // when the reservation becomes final
	}
	var open []held
	for step := range 30 {
		switch r.IntN(6) {
		case 0:
			clock.Advance(time.Duration(r.IntN(90)) * time.Minute)
		case 1:
			clock.Advance(time.Duration(r.IntN(3)))
		case 2:
			if r.IntN(4) == 0 {
				clock.Set(clock.Now().Add(-time.Duration(r.IntN(40)) * time.Minute))
			}
		}
		now, n := clock.Now(), 1+r.IntN(rate.Requests)
		if len(open) > 0 && r.IntN(4) == 0 {
			h := open[len(open)-1]
			open = open[:len(open)-1]
			require.NoError(t, h.res.Cancel())
			if k.zone != nil {
				h.begin = time.Time{}
			}
			if !clock.Now().After(h.until) {
				k.settle(h.begin, h.index, 0)
			}
			continue
		}
		req.Cost = n
		reserved, err := l.Reserve(t.Context(), req, 24*time.Hour)
		require.NoError(t, err)
		res := reserved.Result()
		granted, left, index := k.ask(now, n)
		require.Equal(t, granted, res.Allowed, "seed %d step %d: %s at %s, %d units", seed, step, rate, now, n)
		require.Equal(t, left, res.Remaining, "seed %d step %d: %s at %s, %d units", seed, step, rate, now, n)
		if granted {
			if r.IntN(2) == 0 {
				open = append(open, held{reserved, k.begin, index, now.Add(24 * time.Hour)})
			}
			continue
		}
		denials++
		for _, wait := range []time.Duration{res.RetryAfter - 1, res.RetryAfter} {
			later := *k
			later.charges = append([]windowCharge(nil), k.charges...)
			granted, _, _ := later.ask(now.Add(wait), n)
			require.Equal(t, wait == res.RetryAfter, granted, "seed %d step %d: %s at %s: RetryAfter %s", seed, step, rate, now, res.RetryAfter)
		}
		if r.IntN(3) == 0 {
			clock.Advance(res.RetryAfter - 1)
			peek, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			require.False(t, peek.Allowed)
			clock.Advance(1)
		}
	}
	return denials
}
