package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// nowhere returns a store on a server that does not exist.
func nowhere(t testing.TB, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.New(client, opts...)
	require.NoError(t, err)
	return s
}

var hostile = []string{
	"", "a", "b", ":", "a:b", "{", "}", "{}", "}x", "{a}", "%", "%7b", "#", "\x00", "\xff", "\r\n", "*", "ü",
	strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("\xff", 10_000), strings.Repeat("}", 22),
}

// TestKeys fixes the form of the keys. Operators see them, and another version of this
// package must find them.
func TestKeys(t *testing.T) {
	s := nowhere(t)
	for _, row := range []struct {
		ask       ratelimit.Ask
		want, why string
	}{
		{ratelimit.Ask{Rule: "search", Key: "alice", Client: "alice", Algorithm: ratelimit.AlgorithmTokenBucket},
			"ratelimit:{calice}:1t:search", "the client is the hash tag"},
		{ratelimit.Ask{Rule: "search", Key: "5:alice/search", Client: "alice", Algorithm: ratelimit.AlgorithmTokenBucket},
			"ratelimit:{calice}:1t:search:5%3aalice/search", "all keys of a client are in one slot"},
		{ratelimit.Ask{Rule: "search", Key: "10.0.0.1", Algorithm: ratelimit.AlgorithmFixedWindow},
			"ratelimit:{ksearch:10.0.0.1}:1f", "without a client, the rule and the key are the hash tag"},
		{ratelimit.Ask{Algorithm: ratelimit.AlgorithmLeakyBucket}, "ratelimit:{k:}:1l", "the hash tag is never empty"},
		{ratelimit.Ask{Rule: "a:b", Key: "{}", Client: "}", Algorithm: ratelimit.AlgorithmSlidingWindowLog},
			"ratelimit:{c%7d}:1s:a%3ab:%7b%7d", "braces and separators in names are escaped"},
		{ratelimit.Ask{Rule: "r", Key: strings.Repeat("k", 65), Algorithm: ratelimit.AlgorithmSlidingWindowCounter},
			"ratelimit:{kr:#85zcJYR1jJnPgcH0HSVy9U4XBmr__J0Yeur-X3y-ISI}:1c", "a long text is replaced by its hash"},
	} {
		assert.Equal(t, row.want, s.KeyOf(row.ask), row.why)
	}
}

// checkPair checks that two asks have the same key only if they are about the same state,
// and that they are in the same slot if they have the same client.
func checkPair(t *testing.T, s *redisstore.Store, a, b ratelimit.Ask) {
	t.Helper()
	same := a.Rule == b.Rule && a.Key == b.Key && a.Client == b.Client && a.Algorithm == b.Algorithm
	if ka, kb := s.KeyOf(a), s.KeyOf(b); same != (ka == kb) {
		t.Fatalf("%+v has the key %q, and %+v has %q", a, ka, b, kb)
	}
	if a.Client != "" && a.Client == b.Client && s.Slot(a) != s.Slot(b) {
		t.Fatalf("%+v and %+v are about one client, but in two slots", a, b)
	}
	for _, k := range []string{s.KeyOf(a), s.KeyOf(b)} {
		if strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 || strings.Contains(k, "{}") || len(k) > 4*80 {
			t.Fatalf("the key %q has a bad hash tag, or is long", k)
		}
	}
}

func FuzzKey(f *testing.F) {
	s := nowhere(f)
	for i, h := range hostile {
		other := hostile[(i*7+3)%len(hostile)]
		f.Add(h, other, "a", other, h, "a", uint8(i))
		f.Add(h, other, "", h+other, "", "", uint8(0))
		f.Add(h, "a", other, h, other, "a", uint8(i))
	}
	f.Fuzz(func(t *testing.T, rule1, key1, client1, rule2, key2, client2 string, kinds uint8) {
		a := ratelimit.Ask{Rule: rule1, Key: key1, Client: client1, Algorithm: all[int(kinds)%len(all)]}
		b := ratelimit.Ask{Rule: rule2, Key: key2, Client: client2, Algorithm: all[int(kinds)/16%len(all)]}
		checkPair(t, s, a, b)
	})
}

// TestKeysInjective checks that no two different asks with hostile names have the same key.
func TestKeysInjective(t *testing.T) {
	s := nowhere(t)
	seen := make(map[string]ratelimit.Ask)
	for _, rule := range hostile {
		for _, key := range hostile {
			for _, client := range hostile {
				a := ratelimit.Ask{Rule: rule, Key: key, Client: client, Algorithm: all[0]}
				k := s.KeyOf(a)
				if b, ok := seen[k]; ok {
					t.Fatalf("%+v and %+v have the key %q", a, b, k)
				}
				seen[k] = a
			}
		}
	}
	t.Logf("%d names have as many different keys", len(seen))
}

// TestLeaseNoteName takes units of one key ahead, and then asks for the key whose name was the one of the note
// about that. It checks that the two have nothing to do with each other.
func TestLeaseNoteName(t *testing.T) {
	s := replicas(t, 1, frozen(), redisstore.WithLeases(50), redisstore.WithLeaseTerm(time.Hour))[0]
	u := ratelimit.Ask{Rule: "r", Key: "alice", Client: "alice", Algorithm: all[0], Rate: yearly(1000), N: 1}
	got := hold(t, s, u)
	other := u
	other.Key = "a"
	require.Equal(t, 999, take(t, s, other).Remaining)
	found, ok := s.Stored(s.KeyOf(other))
	require.True(t, ok)
	require.Equal(t, "a", found.Ask.Key)
	require.NoError(t, s.Reset(t.Context(), []ratelimit.Ask{other}))
	require.NoError(t, s.Close())
	require.Equal(t, 1000-got, left(t, s, u), "what was not used is returned")
}

// TestSlots checks that the server agrees on the slot of each key, hostile names included,
// and that one call decides all rules about one client.
func TestSlots(t *testing.T) {
	t.Parallel()
	_, client := startCluster(t)
	s := newStore(t, client)
	ctx := context.Background()
	for _, h := range hostile {
		var asks []ratelimit.Ask
		for i, a := range all {
			u := ratelimit.Ask{Rule: hostile[i], Key: h, Client: h, Algorithm: a, Rate: ratelimit.PerMinute(5), N: 1}
			got, err := client.ClusterKeySlot(ctx, s.KeyOf(u)).Result()
			require.NoError(t, err)
			assert.EqualValues(t, got, s.Slot(u), "%q", h)
			asks = append(asks, u)
		}
		results, err := s.Take(ctx, asks)
		require.NoError(t, err, "%q", h)
		for _, res := range results {
			assert.Equal(t, 4, res.Remaining, "%q", h)
		}
	}
}

func TestOptions(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	for name, construct := range map[string]func() (*redisstore.Store, error){
		"no client":      func() (*redisstore.Store, error) { return redisstore.New(nil) },
		"a nil client":   func() (*redisstore.Store, error) { return redisstore.New((*redis.Client)(nil)) },
		"no prefix":      func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithPrefix("")) },
		"a brace":        func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithPrefix("a{")) },
		"no time at all": func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithTimeout(0)) },
		"negative time":  func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithDenialCache(-1)) },
		"fewer leases":   func() (*redisstore.Store, error) { return redisstore.New(client, redisstore.WithLeases(-1)) },
		"a nil option":   func() (*redisstore.Store, error) { return redisstore.New(client, nil) },
	} {
		_, err := construct()
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, name)
	}
	s := nowhere(t, redisstore.WithPrefix("app:limits"), redisstore.WithTimeout(time.Second))
	assert.Equal(t, "app:limits:{ca}:1t:rule", s.KeyOf(ask(all[0], ratelimit.PerMinute(1), 1)))
}
