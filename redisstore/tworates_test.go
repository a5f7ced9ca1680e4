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
// key must not expire before it owes nothing at the slower rate: a request at that rate would find a new key.
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

				lasts := func(units int, why string) { // with this clock, the expiry is an hour later
					least := time.Duration(units)*day/10 + time.Hour
					assert.Greater(t, lives(), least-time.Minute, why)
					assert.Less(t, lives(), least+day/10+over+time.Minute, why)
				}
				require.True(t, take(t, store, of(slow, 1)).Allowed)
				require.True(t, take(t, store, of(fast, 5)).Allowed)
				lasts(6, "a unit takes a tenth of a day at the slower rate")
				clock.Advance(time.Second)
				require.True(t, take(t, store, of(fast, 5)).Allowed)
				lasts(5, "after a charge at the faster rate too")
				clock.Advance(time.Second)
				require.True(t, take(t, store, of(fast, 1)).Allowed)
				lasts(1, "and after the next one")
				assert.Equal(t, 9, take(t, store, of(fast, 0)).Remaining, "the decisions are those of the faster rate")
				clock.Advance(time.Hour)
				assert.Equal(t, 8, take(t, store, of(slow, 1)).Remaining, "the unit of an hour ago has not come back; a new key would have 9")

				require.NoError(t, store.Reset(t.Context(), []ratelimit.Ask{of(fast, 1)}))
				require.True(t, take(t, store, of(slow, 1)).Allowed)
				require.True(t, take(t, store, of(fast, 1)).Allowed)
				clock.Advance(day)
				require.True(t, take(t, store, of(fast, 1)).Allowed)
				assert.Less(t, lives(), 2*time.Hour, "by then, the key owes nothing at the slower rate")
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
				take(t, store, of(slow, 0))
				assert.Less(t, lives(), time.Hour+2*time.Minute, "a denial or a look at a slower rate does not make the life of the key longer")
				assert.Equal(t, held, dump(t, client), "neither changes the state")
			})
		}
	}
}

// TestReplayChangesNoRate sends a request with an ID again, after its rule has got another rate. Its record answers. So the key in
// another slot of the Cluster stays as it was: it keeps its rate, lives on, and still has the receipts of its earlier charges.
func TestReplayChangesNoRate(t *testing.T) {
	_, client := startCluster(t)
	for _, a := range all {
		t.Run(string(a), func(t *testing.T) {
			clock, ctx := ratelimit.NewFakeClock(time.Unix(1772323200, 0)), t.Context()
			store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
			of := func(r ratelimit.Rate, n int) ratelimit.Ask {
				return ratelimit.Ask{Rule: "all", Algorithm: a, Rate: r, N: n}
			}
			own := ratelimit.Ask{Rule: "own", Key: "alice", Client: "alice", Algorithm: a, Rate: ratelimit.PerDay(100), N: 1}
			slow, fast := ratelimit.PerDay(10), ratelimit.PerSecond(10)
			reserved := of(slow, 3)
			reserved.Receipt, reserved.HoldFor = 7, 12*time.Hour
			require.True(t, take(t, store, reserved).Allowed)
			again := func(r ratelimit.Rate) (replayed bool) {
				_, replayed, err := store.Once(ctx, ratelimit.Attempt{Client: "alice", ID: "1", TTL: time.Hour}, []ratelimit.Ask{own, of(r, 1)})
				require.NoError(t, err)
				return replayed
			}
			require.False(t, again(slow))
			clock.Advance(time.Minute)
			key := store.KeyOf(of(slow, 1))
			held := client.Dump(ctx, key).Val()
			require.NotEmpty(t, held)
			lives, receipts := client.PTTL(ctx, key).Val(), client.PTTL(ctx, key+";r").Val()
			require.True(t, again(fast))
			assert.Equal(t, held, client.Dump(ctx, key).Val(), "the state is as it was")
			assert.Greater(t, client.PTTL(ctx, key).Val(), lives-time.Minute, "and expires no earlier")
			assert.Greater(t, client.PTTL(ctx, key+";r").Val(), receipts-time.Minute, "nor do its receipts")
			reserved.N, reserved.Charged = 0, 3
			require.NoError(t, store.Settle(ctx, []ratelimit.Ask{reserved}))
			assert.Equal(t, 9, left(t, store, of(slow, 1)), "the three units are back")
		})
	}
}
