package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestWindowsAsMemory compares random schedules on servers with a MemoryStore: keys with Windows, whose rates and Windows
// change, and whose units are given back. The clock of the process is off, and changes. In every other schedule the keys
// warm up.
func TestWindowsAsMemory(t *testing.T) {
	t.Run("standalone", func(t *testing.T) { windowSchedules(t, startReal(t).client(t), soaked(300, 2000)) })
	t.Run("cluster", func(t *testing.T) {
		_, client := startCluster(t)
		windowSchedules(t, client, soaked(100, 2000))
	})
}

// windowSchedules plays n schedules.
func windowSchedules(t *testing.T, client redis.UniversalClient, n int) {
	steps, settled := 0, 0
	for i := range n {
		p := newWindowPlay(t, client, i)
		for p.step < 60 {
			p.play()
			if t.Failed() {
				return
			}
		}
		steps, settled = steps+p.step, settled+p.settled
	}
	t.Logf("%d schedules, %d steps, %d settlements, 0 mismatches", n, steps, settled)
}

// windowStarts are a few hours before unusual edges: the clocks of Berlin are set forward and back, a year ends, Samoa skips
// a day, and midnight is skipped in Sao Paulo.
var windowStarts = []string{
	"2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-12-31T20:00:00Z", "2011-12-29T06:00:00Z", "2018-11-03T22:00:00Z",
	"2028-02-28T20:00:00Z",
}

// A windowPlay is a schedule under way.
type windowPlay struct {
	t       *testing.T
	r       *rand.Rand
	round   int
	step    int
	settled int

	clock, process *ratelimit.FakeClock
	memory         *ratelimit.MemoryStore
	there          *redisstore.Store
	asks           []ratelimit.Ask
	open           []ratelimit.Ask
	wait           time.Duration // a wait of the last answer, short enough that no HoldFor ends
}

func newWindowPlay(t *testing.T, client redis.UniversalClient, round int) *windowPlay {
	p := &windowPlay{t: t, round: round, r: rand.New(rand.NewPCG(uint64(round), 24))}
	at, err := time.Parse(time.RFC3339, windowStarts[p.r.IntN(len(windowStarts))])
	require.NoError(t, err)
	p.clock, p.process = ratelimit.NewFakeClock(at), ratelimit.NewFakeClock(at)
	p.memory, err = ratelimit.NewMemoryStore(ratelimit.WithClock(p.clock))
	require.NoError(t, err)
	p.there = newStore(t, client, redisstore.WithClock(p.clock), redisstore.WithProcessClock(p.process), redisstore.WithDenialCache(0))
	var warmup ratelimit.Warmup
	if round%2 == 1 {
		warmup = ratelimit.Warmup{From: 1 + p.r.IntN(3), Over: time.Duration(1+p.r.IntN(100)) * time.Hour}
	}
	for i := range 3 {
		key := fmt.Sprint(round, i)
		a := ratelimit.Ask{Rule: "rule", Key: key, Algorithm: fixed, Rate: p.rate(), Warmup: warmup}
		if i < 2 {
			a.Client = fmt.Sprint("client", round)
		}
		p.asks = append(p.asks, a)
	}
	return p
}

// rate draws a rate.
func (p *windowPlay) rate() ratelimit.Rate {
	r := ratelimit.Rate{Requests: 4 + p.r.IntN(5)}
	zone := []string{"", "Europe/Berlin", "Pacific/Apia", "America/Sao_Paulo"}[p.r.IntN(4)]
	switch p.r.IntN(9) {
	case 0:
		r.Per = time.Duration(1+p.r.IntN(30)) * time.Hour
	case 1, 2, 3:
		r.Per, r.Window = time.Duration(1+p.r.IntN(30))*time.Hour, "first"
	case 4, 5:
		r.Window = ratelimit.Calendar("day", zone)
	case 6:
		r.Window = ratelimit.Calendar([]string{"week", "year"}[p.r.IntN(2)], zone)
	default:
		r.Window = ratelimit.Monthly(1+p.r.IntN(28), zone)
	}
	return r
}

// play makes one step.
func (p *windowPlay) play() {
	p.step++
	u := &p.asks[p.r.IntN(len(p.asks))]
	switch draw := p.r.IntN(20); {
	case draw < 7:
		p.take(p.some())
	case draw < 8:
		p.clock.Advance(p.wait - time.Microsecond)
	case draw < 10:
		p.clock.Advance(p.wait)
	case draw < 12:
		p.clock.Advance(time.Duration(p.r.Int64N(int64(20*time.Hour/time.Microsecond))) * time.Microsecond)
	case draw < 13:
		p.clock.Advance(-time.Duration(p.r.Int64N(int64(50*time.Hour/time.Microsecond))) * time.Microsecond)
	case draw < 14:
		p.process.Set(p.clock.Now().Add(time.Duration(p.r.IntN(200)-100) * time.Hour))
	case draw < 15:
		if words := strings.Fields(string(u.Rate.Window)); p.r.IntN(3) > 0 && u.Rate.Per == 0 && words[0] == "month" {
			zone := words[len(words)-1]
			if !strings.Contains(zone, "/") {
				zone = ""
			}
			u.Rate.Window = ratelimit.Monthly(1+p.r.IntN(28), zone) // begins on another day
		} else {
			u.Rate = p.rate()
		}
		p.convert(*u)
	case draw < 16:
		u.Rate.Requests = 3 + p.r.IntN(6)
	case draw < 17 && p.r.IntN(4) == 0:
		require.NoError(p.t, p.memory.Reset(p.t.Context(), []ratelimit.Ask{*u}))
		require.NoError(p.t, p.there.Reset(p.t.Context(), []ratelimit.Ask{*u}))
	case len(p.open) > 0:
		p.settle()
	}
	looks := p.some()
	for i := range looks {
		looks[i].N, looks[i].Receipt, looks[i].HoldFor = 0, 0, 0
	}
	p.take(looks)
}

// convert asks for more units than the rate grants, so that the state counts in the windows of the rate from now on. If
// further units were charged before that, a MemoryStore would still charge them to a window of the old calendar. A server
// does not know that calendar, and charges them to a window of the new rate.
func (p *windowPlay) convert(a ratelimit.Ask) {
	a.N = 100
	p.take([]ratelimit.Ask{a})
}

// some returns asks for units of some of the keys.
func (p *windowPlay) some() (asks []ratelimit.Ask) {
	for _, i := range p.r.Perm(len(p.asks))[:1+p.r.IntN(len(p.asks))] {
		a := p.asks[i]
		a.N, a.Shadow = 1+p.r.IntN(4), p.r.IntN(8) == 0
		if p.r.IntN(2) == 0 {
			a.Receipt, a.HoldFor = uint64(p.step), 365*24*time.Hour
		}
		asks = append(asks, a)
	}
	return asks
}

// take takes asks of both stores, and requires the same answers.
func (p *windowPlay) take(asks []ratelimit.Ask) {
	want, err := p.memory.Take(p.t.Context(), asks)
	require.NoError(p.t, err)
	got, err := p.there.Take(p.t.Context(), asks)
	require.NoError(p.t, err)
	for i := range want {
		want[i].RetryAfter, want[i].ResetAfter = ceil(want[i].RetryAfter), ceil(want[i].ResetAfter)
		require.Equal(p.t, want[i], got[i], "schedule %d, step %d at %v: ask %d of %+v", p.round, p.step, p.clock.Now(), i, asks)
		if p.wait = got[i].RetryAfter; p.wait <= 0 || p.wait > 400*time.Hour {
			p.wait = min(got[i].ResetAfter, 400*time.Hour)
		}
	}
	for _, a := range asks {
		if a.Receipt != 0 && a.N > 0 {
			p.open = append(p.open, a)
		}
	}
}

// settle settles one of the charges, or of the asks that were denied.
func (p *windowPlay) settle() {
	p.settled++
	u := p.open[p.r.IntN(len(p.open))]
	u.Charged, u.N, u.Shadow, u.HoldFor = u.N, p.r.IntN(u.N+2), false, 0
	if p.r.IntN(3) > 0 {
		u.N = 0
	}
	for _, a := range p.asks {
		if a.Key == u.Key {
			u.Rate = a.Rate
		}
	}
	require.NoError(p.t, p.memory.Settle(p.t.Context(), []ratelimit.Ask{u}))
	require.NoError(p.t, p.there.Settle(p.t.Context(), []ratelimit.Ask{u}))
}
