package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestLogHoles compares a Redis server with a MemoryStore, while hundreds of charges of a log are open and
// come back in any order, fully or in part, and entries leave the window. It checks that the log has at
// most 16 records of holes meanwhile, and none when no charge is open any more.
func TestLogHoles(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	there := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	header := regexp.MustCompile(`^\d+ \d+ \d+( -\d+(?: \d{16} \d{16} \d{16}){1,16})?( \+)?$`)
	rate := ratelimit.Rate{Requests: 1500, Per: time.Millisecond}
	steps, most, merged := 0, 0, 0
	for round := range schedules(12) {
		r := rand.New(rand.NewPCG(uint64(round), 6))
		var open []ratelimit.Ask
		both := func(u ratelimit.Ask) bool {
			want, err := memory.Take(t.Context(), []ratelimit.Ask{u})
			require.NoError(t, err)
			want[0].RetryAfter, want[0].ResetAfter = ceil(want[0].RetryAfter), ceil(want[0].ResetAfter)
			got, err := there.Take(t.Context(), []ratelimit.Ask{u})
			require.NoError(t, err)
			require.Equal(t, want[0], got[0], "round %d, step %d", round, steps)
			return want[0].Allowed
		}
		settled := func(i, n int) {
			u := open[i]
			u.Charged, u.N = u.N, n
			require.NoError(t, memory.Settle(t.Context(), []ratelimit.Ask{u}))
			require.NoError(t, there.Settle(t.Context(), []ratelimit.Ask{u}))
			open = append(open[:i], open[i+1:]...)
		}
		of := func(n int, id uint64) ratelimit.Ask {
			u := revocable(ratelimit.AlgorithmSlidingWindowLog, rate, n, id, time.Hour)
			u.Key = fmt.Sprint(round)
			return u
		}
		// Charges come quickly at first. Then more come back than are made, from one part of the log or from all.
		for step := range 700 {
			steps++
			many := step%350 < 200
			switch p := r.IntN(10); {
			case p < 1:
				clock.Advance(time.Duration(r.IntN(60)) * time.Microsecond)
			case p < 2:
				both(of(1+r.IntN(1500), 0))
			case many && p < 8 || p < 4:
				clock.Advance(time.Microsecond)
				if u := of(1+r.IntN(9), uint64(steps)*uint64(min(1, r.IntN(6)))); both(u) && u.Receipt > 0 {
					open = append(open, u)
				}
			case len(open) > 0:
				i := r.IntN(len(open))
				if round%3 == 1 {
					i = len(open) / 2
				}
				settled(i, max(0, r.IntN(2*open[i].N)-open[i].N))
			}
			look := of(0, 0)
			look.Receipt, look.HoldFor = 0, 0
			both(look)
			text := client.LIndex(t.Context(), there.KeyOf(look), 0).Val()
			if text == "" {
				continue // nothing was granted yet
			}
			require.Regexp(t, header, text)
			records := len(header.FindStringSubmatch(text)[1]) / 51
			if records < most-2 {
				merged++
			}
			most = max(most, records)
		}
		for len(open) > 0 {
			settled(r.IntN(len(open)), 0)
		}
		both(of(1, 0))
		assert.NotRegexp(t, ` [-+]`, client.LIndex(t.Context(), there.KeyOf(of(1, 0)), 0).Val(), "the fast way again")
	}
	assert.Equal(t, 16, most)
	assert.Positive(t, merged)
	t.Logf("%d steps, 0 mismatches", steps)
}
