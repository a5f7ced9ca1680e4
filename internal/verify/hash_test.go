package verify

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

const shardBits = 6

// craftedKeys returns n keys that FNV-1a, a hash function without a seed, puts into one
// shard.
func craftedKeys(n int) (keys []string) {
	for i := 0; len(keys) < n; i++ {
		key := strconv.Itoa(i)
		h := fnv.New64a()
		h.Write([]byte(key))
		if h.Sum64()>>(64-shardBits) == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestKeysSpread requires that keys are spread evenly over the shards by both halves of
// their identity, even keys that were made against a known hash function.
func TestKeysSpread(t *testing.T) {
	const n = 1000
	mean := float64(n) / (1 << shardBits)
	for _, c := range []struct {
		name string
		keys []string
		why  string
	}{
		{"consecutive", consecutive(n), "the commonest keys"},
		{"crafted", craftedKeys(n), "an attacker knows the hash function, but not its seed"},
	} {
		var hi, lo [1 << shardBits]int
		for _, key := range c.keys {
			h := keytable.HashOf(key)
			require.NotZero(t, h.Hi)
			hi[h.Hi>>(64-shardBits)]++
			lo[h.Lo>>(64-shardBits)]++
		}
		fullest := 0
		for i := range hi {
			fullest = max(fullest, hi[i], lo[i])
		}
		t.Logf("%s: the fullest of %d shards has %d of %d keys, the mean is %.1f", c.name, len(hi), fullest, n, mean)
		require.LessOrEqual(t, float64(fullest), mean+8*math.Sqrt(mean), c.why)
	}
}

func consecutive(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("client-%06d", i))
	}
	return keys
}

const printHash = "RATELIMIT_VERIFY_PRINT_HASH"

// TestSeedIsNewInEachProcess runs itself in two processes, and requires that one key has
// different identities in them.
func TestSeedIsNewInEachProcess(t *testing.T) {
	if os.Getenv(printHash) != "" {
		fmt.Println("identity", keytable.HashOf("key"))
		return
	}
	var seen [2]string
	for i := range seen {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSeedIsNewInEachProcess$")
		cmd.Env = append(os.Environ(), printHash+"=1")
		out, err := cmd.Output()
		require.NoError(t, err)
		seen[i] = string(out)
	}
	require.Contains(t, seen[0], "identity")
	require.NotEqual(t, seen[0], seen[1])
}

// TestIdentitiesAreDistinct requires that keys which look alike have different identities,
// and so different budgets.
func TestIdentitiesAreDistinct(t *testing.T) {
	seen := make(map[keytable.Hash]string)
	for _, key := range []string{
		"", "\x00", "\x00\x00", "a", "a\x00", "a\x00b", "a b", "a:b", "a_b", "A", "\xff", "\xff\xfe", "é", "e\u0301",
		"{a}", "{a}b", string(make([]byte, 1<<20)), string(make([]byte, 1<<20+1)),
	} {
		h := keytable.HashOf(key)
		other, taken := seen[h]
		require.False(t, taken, "%.20q and %.20q", key, other)
		seen[h] = key
	}
	for i := range 200_000 {
		h := keytable.HashOf(strconv.Itoa(i))
		_, taken := seen[h]
		require.False(t, taken)
		seen[h] = strconv.Itoa(i)
	}
}

// TestLooksLeaveNoTrace requires that no look, and no denial of a request that never fits,
// creates a key, whichever method makes it.
func TestLooksLeaveNoTrace(t *testing.T) {
	for _, a := range algorithms {
		const kept = 3
		l := a.start(t, a.rate(ratelimit.PerHour(3).WithBurst(3)), ratelimit.WithClock(&manualClock{starts[0]}))
		for i := range 1000 {
			key := strconv.Itoa(i)
			if i < kept { // so that there is a table
				require.True(t, l.Allow(key).Allowed)
				continue
			}
			require.True(t, l.Peek(key).Allowed)
			for _, n := range []int{0, 4, math.MaxInt} {
				res, err := l.Take(context.Background(), key, n)
				require.NoError(t, err)
				require.Equal(t, n == 0, res.Allowed)
			}
			_, err := l.Take(context.Background(), key, -1)
			require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
			require.Equal(t, kept, l.Len(), a.name)
		}
		require.NoError(t, l.Reset("this key was never used"))
		require.Equal(t, kept, l.Len(), a.name)
	}
}

// A clockless is an algorithm of a table whose states are never as good as new, so that the
// table keeps all of them.
type clockless struct{}

func (clockless) Idle(*int, keytable.Instant) bool       { return false }
func (clockless) Inherit(s *int, _ keytable.Instant) int { return *s }

// TestReadingsFollowTheLock requires the following of a reading of the machine's clock that
// was taken before another one, but comes to the lock of its key after it: it counts as the
// other one, even if the shard has split in between.
func TestReadingsFollowTheLock(t *testing.T) {
	table := keytable.New[int](clockless{}, 1<<20)
	early, late := keytable.InstantAt(time.Second), keytable.InstantAt(2*time.Second)
	var before []keytable.Hash
	for i := range 64 {
		h := keytable.HashOf(fmt.Sprint("before", i))
		before = append(before, h)
		shard := table.Lock(h)
		require.Equal(t, late, shard.Latest(late))
		require.Equal(t, late, shard.Latest(early))
		shard.Unlock()
	}
	for i := range 10_000 {
		h := keytable.HashOf(strconv.Itoa(i))
		shard := table.Lock(h)
		shard.Insert(h, shard.Newcomer(early), early)
		shard.Unlock()
	}
	for _, h := range before {
		shard := table.Lock(h)
		now := shard.Latest(early)
		shard.Unlock()
		require.Equal(t, late, now, "the shard of this key has answered for the later instant")
	}
}
