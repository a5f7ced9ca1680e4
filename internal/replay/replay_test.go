package replay

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

func id(n int) keytable.Hash { return keytable.HashOf(fmt.Sprint(n)) }

// granted returns the answers of two parts. left tells records apart.
func granted(left int64) []engine.Part {
	parts := make([]engine.Part, 2)
	parts[0].Verdict, parts[0].Delay = engine.Verdict{Limit: 100, Left: left, ResetAfter: 70}, 30
	parts[1].Verdict = engine.Verdict{Limit: -1, Left: left + 1, RetryAfter: 9, ResetAfter: engine.Never}
	return parts
}

// TestFind finds a record at several instants. The times in its answers become shorter, and it
// answers until its ttl has passed.
func TestFind(t *testing.T) {
	for _, row := range []struct {
		now          keytable.Instant
		found        bool
		delay, reset time.Duration
		why          string
	}{
		{1000, true, 30, 70, "at once"},
		{900, true, 30, 70, "the clock has stepped back: no time has passed"},
		{1029, true, 1, 41, "before the end of the delay"},
		{1031, true, 0, 39, "after it"},
		{1071, true, 0, 0, "after the reset"},
		{1499, true, 0, 0, "the last instant"},
		{1500, false, 0, 0, "the ttl has passed"},
		{math.MaxInt64, false, 0, 0, "the end of time"},
	} {
		l := New(10)
		l.Add(id(1), 1000, 500, granted(7))
		parts := make([]engine.Part, 2)
		parts[0].Err = assert.AnError
		require.Equal(t, row.found, l.Find(id(1), row.now, parts, true), row.why)
		require.False(t, l.Find(id(2), row.now, parts, true), "%s: another request", row.why)
		if !row.found {
			require.Equal(t, assert.AnError, parts[0].Err, "%s: nothing is changed", row.why)
			continue
		}
		want := granted(7)
		want[0].ResetAfter, want[0].Delay = row.reset, row.delay
		require.Equal(t, want, parts, row.why)
		require.True(t, l.Find(id(1), row.now, nil, true), "%s: without parts", row.why)
	}
}

// TestARecordAnswersSoOften counts the answers of a record. A look is not counted, and a newer record
// starts from zero.
func TestARecordAnswersSoOften(t *testing.T) {
	l := New(1)
	for range 2 {
		l.Add(id(1), 0, time.Hour, granted(1))
		for range MaxReplays {
			require.True(t, l.Find(id(1), 0, nil, false))
			require.True(t, l.Find(id(1), 0, nil, true))
		}
		require.False(t, l.Find(id(1), 0, nil, false))
		require.False(t, l.Find(id(1), 0, nil, true))
	}
}

// A kept is a record in the model of a Log.
type kept struct {
	id      int
	at      keytable.Instant
	ttl     time.Duration
	left    int64
	replays int
}

// age returns the time since k at now.
func (k *kept) age(now keytable.Instant) time.Duration { return time.Duration(max(now, k.at) - k.at) }

// TestAgainstAList compares random calls with a list of records, the oldest first. The oldest record
// is dropped if there are too many, or if its ttl has passed when another is added.
func TestAgainstAList(t *testing.T) {
	for schedule := range 300 {
		r := rand.New(rand.NewPCG(uint64(schedule), 1))
		most := 1 + r.IntN(70)
		l, list, now := New(most), []*kept(nil), keytable.Instant(1000)
		for step := range 600 {
			now += keytable.Instant(r.IntN(12))
			now -= keytable.Instant(r.IntN(3)) // the clock may step back
			n := r.IntN(2 * most)
			switch p := r.IntN(300); {
			case p == 0:
				l.Clear()
				list = nil
			case p < 150:
				k := &kept{n, now, time.Duration(1 + r.IntN(5*most)), int64(step), 0}
				l.Add(id(n), now, k.ttl, granted(k.left))
				for len(list) > 0 && list[0].age(now) >= list[0].ttl {
					list = list[1:]
				}
				if list = append(list, k); len(list) > most {
					list = list[1:]
				}
			default:
				var last *kept
				for _, k := range list {
					if k.id == n {
						last = k
					}
				}
				counts, parts := r.IntN(2) == 0, make([]engine.Part, 2)
				want := last != nil && last.age(now) < last.ttl && last.replays < MaxReplays
				require.Equal(t, want, l.Find(id(n), now, parts, counts), "schedule %d, step %d", schedule, step)
				if !want {
					continue
				}
				require.Equal(t, last.left, parts[0].Left, "schedule %d, step %d: the newest record", schedule, step)
				if counts {
					last.replays++
				}
			}
			require.Equal(t, len(list), l.Len(), "schedule %d, step %d", schedule, step)
			require.LessOrEqual(t, len(l.ring), most)
			require.LessOrEqual(t, len(l.places), l.Len())
		}
	}
}

// TestBegin calls Begin from many goroutines at once. One decides, and the others get its record. If
// it ends without a record, the next one decides.
func TestBegin(t *testing.T) {
	for _, charges := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l := New(10)
			var flying, flights, replays atomic.Int64
			now := func() keytable.Instant { return 5 }
			for range 20 {
				go func() {
					parts := make([]engine.Part, 2)
					at, found, err := l.Begin(t.Context(), id(1), now, parts)
					assert.NoError(t, err)
					assert.EqualValues(t, 5, at)
					if found {
						replays.Add(1)
						assert.EqualValues(t, 7, parts[0].Left)
						return
					}
					flights.Add(1)
					assert.EqualValues(t, 1, flying.Add(1), "one at a time")
					<-time.After(time.Second)
					flying.Add(-1)
					if charges {
						l.Add(id(1), at, time.Hour, granted(7))
					}
					l.End(id(1))
				}()
			}
			synctest.Wait()
			require.EqualValues(t, 1, flights.Load())
			_, found, err := l.Begin(t.Context(), id(2), now, nil)
			require.NoError(t, err, "another request flies at once")
			require.False(t, found)
			l.End(id(2))
			<-time.After(time.Minute)
			synctest.Wait()
			if charges {
				require.EqualValues(t, 1, flights.Load())
				require.EqualValues(t, 19, replays.Load())
			} else {
				require.EqualValues(t, 20, flights.Load())
			}
			require.Empty(t, l.pending)
		})
	}
}

// TestBeginEndsWithItsContext ends the context of a caller that waits while another one decides.
func TestBeginEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, now := New(10), func() keytable.Instant { return 5 }
		_, found, err := l.Begin(t.Context(), id(1), now, nil)
		require.NoError(t, err)
		require.False(t, found)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, found, err = l.Begin(ctx, id(1), now, nil)
		require.Equal(t, context.DeadlineExceeded, err)
		require.False(t, found)
		l.Add(id(1), 5, time.Hour, granted(7))
		l.End(id(1))
		_, found, err = l.Begin(ctx, id(1), now, nil)
		require.NoError(t, err, "nobody flies, so nobody waits")
		require.True(t, found)
		for range MaxReplays - 1 {
			require.True(t, l.Find(id(1), 5, nil, true))
		}
		require.False(t, l.Find(id(1), 5, nil, true), "Begin counts, too")
	})
}

// TestManyAtOnce adds and finds records from several goroutines. No record answers more often than
// it may, or for another request, and their number stays bounded.
func TestManyAtOnce(t *testing.T) {
	const ids, goroutines, asks = 40, 8, 2000
	l := New(ids)
	for n := range ids {
		l.Add(id(n), 0, time.Hour, granted(int64(n)))
	}
	var answers [ids]atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r, parts := rand.New(rand.NewPCG(uint64(g), 2)), make([]engine.Part, 2)
			for range asks {
				n := r.IntN(ids)
				if l.Find(id(n), 1, parts, true) {
					answers[n].Add(1)
					assert.EqualValues(t, n, parts[0].Left)
					assert.EqualValues(t, n+1, parts[1].Left)
				}
				assert.LessOrEqual(t, l.Len(), ids)
			}
		})
	}
	all.Wait()
	for n := range answers {
		require.EqualValues(t, MaxReplays, answers[n].Load())
	}
}
