package verify

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// callBytes is how many bytes encode a call.
const callBytes = 6

// decode makes a schedule of at most 200 calls out of data.
func decode(data []byte) (schedule []call) {
	for len(data) >= callBytes && len(schedule) < 200 {
		schedule = append(schedule, call{
			Key:   data[0],
			Move:  data[1],
			Size:  uint16(data[2])<<8 | uint16(data[3]),
			Verb:  data[4],
			Count: data[5],
		})
		data = data[callBytes:]
	}
	return schedule
}

// FuzzSchedule plays a schedule that is encoded in bytes on one of the limiters, its models
// and its oracles.
func FuzzSchedule(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint8(0), []byte("\x00\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, which, first, made uint8, data []byte) {
		a := algorithms[int(which)%len(algorithms)]
		rates := a.those(allRates)
		p, err := newPlayer(a, starts[int(made)%len(starts)], rates[int(first)%len(rates)], rates)
		require.NoError(t, err)
		require.NoError(t, p.play(decode(data)))
	})
}

// FuzzRate makes a limiter at any rate, which must be refused with a reason or be exact.
func FuzzRate(f *testing.F) {
	f.Add(uint8(0), int64(1), int64(1), int64(0), []byte("\x00\x00\x00\x00\x00\x06\x00\x04\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, which uint8, requests, per, burst int64, data []byte) {
		a := algorithms[int(which)%len(algorithms)]
		r := ratelimit.Rate{Requests: int(requests), Per: time.Duration(per), Burst: int(burst)}
		p, err := newPlayer(a, starts[0], r, []ratelimit.Rate{r})
		if err != nil {
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			var field *ratelimit.ConfigError
			require.ErrorAs(t, err, &field)
			require.NotEmpty(t, field.Field)
			return
		}
		require.True(t, requests >= 1 && per >= 1 && burst >= 0 && (a.bucket || burst == 0), "%#v", r)
		require.NoError(t, p.play(decode(data)))
	})
}

// FuzzKeys takes all units of one key. Another key must still have all of its own, unless
// it is the same key.
func FuzzKeys(f *testing.F) {
	f.Add("a:b", "a_b")
	f.Add("", "\x00")
	f.Fuzz(func(t *testing.T, one, other string) {
		same := one == other
		require.Equal(t, same, keytable.HashOf(one) == keytable.HashOf(other))
		for _, a := range algorithms {
			l := a.start(t, a.rate(ratelimit.PerDay(3)), ratelimit.WithClock(&manualClock{starts[0]}))
			require.Equal(t, 3, greedy(t, l, one))
			want := 3
			if same {
				want = 0
			}
			require.Equal(t, want, l.Peek(other).Remaining)
			require.NoError(t, l.Reset(other))
			require.Equal(t, 3-want, l.Peek(one).Remaining, "Reset of %q", other)
		}
	})
}

// TestRatesAtTheEnds makes limiters at the limits of what every machine promises to accept.
func TestRatesAtTheEnds(t *testing.T) {
	for _, a := range algorithms {
		for _, requests := range []int{1, 65536, math.MaxInt32} {
			for _, per := range []time.Duration{1, time.Second, year} {
				for _, burst := range []int{0, 1, math.MaxInt32} {
					if burst > 0 && !a.bucket || requests > 65536 && a.name == "SlidingWindowLog" {
						continue
					}
					r := ratelimit.Rate{Requests: requests, Per: per, Burst: burst}
					p, err := newPlayer(a, starts[0], r, []ratelimit.Rate{r})
					require.NoError(t, err)
					all := call{Count: limit}
					over := call{Count: limitAndOne}
					wait := call{Move: toRetry, Size: 1}
					require.NoError(t, p.play([]call{{Count: look}, all, {}, wait, over, all, wait}))
				}
			}
		}
	}
}
