package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestStoredNames requires that what is read of the name of a key is what the name was made of.
func TestStoredNames(t *testing.T) {
	s := nowhere(t)
	long := strings.Repeat("x", 65)
	for _, a := range all {
		for _, rule := range hostile {
			for _, client := range hostile {
				for _, key := range hostile {
					for _, warmup := range []ratelimit.Warmup{{}, {From: 1, Over: time.Minute}} {
						ask := ratelimit.Ask{Rule: rule, Key: key, Client: client, Algorithm: a, Warmup: warmup}
						name := s.KeyOf(ask)
						got, ok := s.Stored(name)
						require.True(t, ok, name)
						require.Equal(t, name, got.Name)
						require.Equal(t, warmup.From > 0, got.Warms)
						ask.Warmup = ratelimit.Warmup{}
						if !got.Hashed {
							require.Equal(t, ask, got.Ask)
						}
						require.Equal(t, got.Hashed, strings.Contains(name, "#"), "a # of a text is escaped")
					}
				}
			}
		}
	}
	got, ok := s.Stored(s.KeyOf(ratelimit.Ask{Rule: "r", Key: long, Client: long, Algorithm: all[0]}))
	require.True(t, ok)
	require.True(t, got.Hashed)
	require.Equal(t, "r", got.Ask.Rule)
	require.Equal(t, got.Ask.Client, got.Ask.Key)

	for _, name := range []string{
		"", "ratelimit", "other:{ca}:1t:r", "ratelimit:{ca}:1t:r;r", "ratelimit:{ca}:1t:r;a", "ratelimit:{ca}:1i:abc", "ratelimit:{abc}:1i",
		"ratelimit:{ca}:2t:r", "ratelimit:{ca}:1t", "ratelimit:{ca}:1t:r:k:x", "ratelimit:{kr:v}:1t:r", "ratelimit:{kr}:1t", "ratelimit:{}:1t",
		"ratelimit:{xa}:1t:r", "ratelimit:{xr:v}:1t", "ratelimit:{ca}:1x:r", "ratelimit:{ca%}:1t:r",
		"ratelimit:{ca%GG}:1t:r", "ratelimit:{c a}:1t:r", "ratelimit:{ca}:1tr", "ratelimit:{ca}:1",
	} {
		_, ok := s.Stored(name)
		require.False(t, ok, name)
	}
	require.Equal(t, "ratelimit:{[ck]*}:1[tlfcshTLFCS]*", s.Pattern())
	require.Equal(t, `a\*\[b\]\?\\:{[ck]*}:1[tlfcshTLFCS]*`, nowhere(t, redisstore.WithPrefix(`a*[b]?\`)).Pattern())
}

// TestStoredLook finds states in a server, and requires that a look at each says what a limiter would
// answer, and writes nothing.
func TestStoredLook(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	var asks []ratelimit.Ask
	for i, a := range all {
		for _, key := range []string{"a", strings.Repeat("long", 20), "\x1b[2J"} {
			u := ratelimit.Ask{Rule: "svc:rule", Key: key, Client: key, Algorithm: a, Rate: ratelimit.PerDay(10 + i), N: 3}
			asks = append(asks, u)
			u.Client, u.Key = "", "ip "+key
			asks = append(asks, u)
			u.Key, u.Warmup = "warm "+key, ratelimit.Warmup{From: 5, Over: 24 * time.Hour}
			asks = append(asks, u)
		}
	}
	for _, u := range asks {
		require.True(t, take(t, s, u).Allowed)
	}
	require.NoError(t, client.Set(t.Context(), "ratelimit:{ca}:1i:x", "1", 0).Err())
	require.NoError(t, client.Set(t.Context(), "other", "1", 0).Err())
	before := storedIn(t, client)
	names, next, err := client.Scan(t.Context(), 0, s.Pattern(), 1000).Result()
	require.NoError(t, err)
	require.Zero(t, next)
	var states []redisstore.Stored
	byName := map[string]ratelimit.Ask{}
	for _, u := range asks {
		byName[s.KeyOf(u)] = u
	}
	for _, name := range names {
		st, ok := s.Stored(name)
		if !ok {
			continue
		}
		u := byName[name]
		require.Equal(t, u.Algorithm, st.Ask.Algorithm)
		st.Ask.Rate, st.Ask.Warmup = u.Rate, u.Warmup
		states = append(states, st)
	}
	require.Len(t, states, len(asks))
	results, err := s.Look(t.Context(), states)
	require.NoError(t, err)
	for i, st := range states {
		u := byName[st.Name]
		u.N, u.Look = 1, true
		want := look(t, s, u)
		require.Equal(t, want.Remaining+1, results[i].Remaining, st.Name)
		require.Equal(t, want.Allowed, results[i].Allowed)
		require.Equal(t, want.Limit, results[i].Limit)
	}
	require.Equal(t, before, storedIn(t, client), "nothing is written")
	none, err := s.Look(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// TestStoredLookFails looks at what is no state of the store.
func TestStoredLookFails(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	_, err := s.Look(t.Context(), []redisstore.Stored{{Name: "ratelimit:{ca}:1t:r", Ask: ratelimit.Ask{Algorithm: "Dice"}}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.NoError(t, client.Set(t.Context(), "ratelimit:{cz}:1t:r", "foreign", 0).Err())
	foreign := redisstore.Stored{Name: "ratelimit:{cz}:1t:r", Ask: ratelimit.Ask{Algorithm: all[0], Rate: ratelimit.PerDay(1)}}
	_, err = s.Look(t.Context(), []redisstore.Stored{foreign})
	var failed *redisstore.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, redisstore.ClassCorrupt, failed.Class)
	_, err = (&redisstore.Store{}).Look(t.Context(), nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
}
