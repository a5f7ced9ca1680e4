package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestSlowerRateKeepsKey uses a bucket at two rates, as two versions of a config do during an update. The
// faster rate must not let the key expire: the slower one would find a new key, although at that rate
// nothing has been refilled yet.
func TestSlowerRateKeepsKey(t *testing.T) {
	const day = 24 * time.Hour
	fast, slow := ratelimit.PerSecond(10), ratelimit.PerDay(10)
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		for _, over := range []time.Duration{0, time.Minute} {
			t.Run(string(a)+"/"+over.String(), func(t *testing.T) {
				client := startReal(t).client(t)
				clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
				store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
				of := func(r ratelimit.Rate, n int) ratelimit.Ask {
					u := ask(a, r, n)
					if over > 0 {
						u.Warmup = ratelimit.Warmup{From: 10, Over: over}
					}
					return u
				}
				key := store.KeyOf(of(fast, 1))
				value := func() string { return client.Get(t.Context(), key).Val() }
				lives := func() time.Duration { return client.PTTL(t.Context(), key).Val() }

				require.True(t, take(t, store, of(slow, 1)).Allowed)
				require.True(t, take(t, store, of(fast, 5)).Allowed)
				assert.Greater(t, lives(), day, "a full bucket takes a day at the slower rate; with this clock, the expiry is an hour later")
				clock.Advance(time.Second)
				require.True(t, take(t, store, of(fast, 5)).Allowed)
				assert.Greater(t, lives(), day, "a charge at the faster rate does not change that")
				clock.Advance(time.Second)
				require.True(t, take(t, store, of(fast, 1)).Allowed)
				assert.Greater(t, lives(), day, "nor does the next one")
				assert.Equal(t, 9, take(t, store, of(fast, 0)).Remaining, "the decisions are those of the faster rate")
				clock.Advance(time.Hour)
				assert.Equal(t, 8, take(t, store, of(slow, 1)).Remaining, "the unit of an hour ago has not come back; a new key would have 9")

				require.NoError(t, store.Reset(t.Context(), []ratelimit.Ask{of(fast, 1)}))
				require.True(t, take(t, store, of(slow, 1)).Allowed)
				require.True(t, take(t, store, of(fast, 1)).Allowed)
				clock.Advance(day)
				require.True(t, take(t, store, of(fast, 1)).Allowed)
				assert.Less(t, lives(), 2*time.Hour, "nobody has used the slower rate for a day")
				assert.Len(t, strings.Fields(strings.Split(value(), " @")[0]), 6, "so that the short form of the state is enough")
			})
			t.Run(string(a)+"/"+over.String()+"/unchanged", func(t *testing.T) {
				client := startReal(t).client(t)
				clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
				store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
				of := func(r ratelimit.Rate, n int) ratelimit.Ask {
					u := ask(a, r, n)
					if over > 0 {
						u.Warmup = ratelimit.Warmup{From: 5, Over: over}
					}
					return u
				}
				lives := func() time.Duration { return client.PTTL(t.Context(), store.KeyOf(of(fast, 1))).Val() }
				require.True(t, take(t, store, of(fast, 5)).Allowed)
				held := dump(t, client)
				assert.False(t, take(t, store, of(slow.WithBurst(5), 6)).Allowed)
				assert.Greater(t, lives(), day/2, "a denial")
				take(t, store, of(slow, 0))
				assert.Greater(t, lives(), day, "a look")
				take(t, store, of(slow.WithBurst(5), 0))
				assert.Greater(t, lives(), day, "no request makes the time shorter")
				assert.Equal(t, held, dump(t, client), "neither changes the state")
			})
		}
	}
}
