package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// since returns what has changed in the list of "shop" since v.
func since(t *testing.T, s *redisstore.Store, v ratelimit.OverrideVersion) ratelimit.OverrideChange {
	t.Helper()
	change, err := s.OverridesSince(t.Context(), "shop", v)
	require.NoError(t, err)
	return change
}

// set sets overrides of "shop".
func set(t *testing.T, s *redisstore.Store, o ...ratelimit.Override) {
	t.Helper()
	require.NoError(t, s.SetOverrides(t.Context(), "shop", o))
}

func blockOf(client string, rules ...string) ratelimit.Override {
	return ratelimit.Override{Client: client, Rules: rules, Effect: ratelimit.EffectBlock}
}

// TestOverrides sets, replaces and lifts overrides, and requires that each read brings what has changed.
func TestOverrides(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 123_456_000))
		s := newStore(t, connect(), redisstore.WithClock(clock))
		none := since(t, s, ratelimit.OverrideVersion{})
		require.Equal(t, ratelimit.OverrideChange{Now: clock.Now()}, none, "there is no list")

		until := clock.Now().Add(time.Hour + 7*time.Nanosecond)
		block := ratelimit.Override{Client: "alice", Effect: ratelimit.EffectBlock, Until: until, Note: "too loud"}
		rate := ratelimit.Override{
			IP: "10.0.0.0/8", Rules: []string{"b", "a", "b"}, Effect: ratelimit.EffectRate,
			Rate: ratelimit.PerSecond(5).WithBurst(7),
		}
		exempt := ratelimit.Override{IP: "::ffff:203.0.113.9", Effect: ratelimit.EffectExempt}
		set(t, s, block, rate, exempt)
		rate.Rules, exempt.IP = []string{"a", "b"}, "203.0.113.9"
		first := since(t, s, ratelimit.OverrideVersion{})
		assert.True(t, first.Whole)
		assert.Equal(t, []ratelimit.Override{block, rate, exempt}, first.Set)
		assert.Empty(t, first.Lifted)
		assert.EqualValues(t, 3, first.Version.Number)
		assert.NotZero(t, first.Version.List)
		assert.Equal(t, clock.Now(), first.Now)
		assert.Equal(t, ratelimit.OverrideChange{Version: first.Version, Now: clock.Now()}, since(t, s, first.Version), "nothing has changed")

		rate.Rate = ratelimit.PerMinute(1)
		set(t, s, ratelimit.Override{IP: "10.0.0.0/8", Rules: []string{"b", "a"}, Effect: ratelimit.EffectRate, Rate: rate.Rate})
		second := since(t, s, first.Version)
		assert.False(t, second.Whole)
		assert.Equal(t, []ratelimit.Override{rate}, second.Set, "it takes the place of the other one with the same rules")
		assert.Empty(t, second.Lifted)
		assert.Len(t, since(t, s, ratelimit.OverrideVersion{}).Set, 3)

		page := blockOf("alice", "page")
		set(t, s, page)
		set(t, s, ratelimit.Override{Client: "alice", Rules: []string{"other"}}, ratelimit.Override{Client: "10.0.0.0/8"},
			ratelimit.Override{IP: "203.0.113.0/24"})
		assert.Empty(t, since(t, s, second.Version).Lifted, "none has this rule, and the client and the network are others")
		set(t, s, ratelimit.Override{IP: "10.0.0.0/8", Rules: []string{"b", "a"}}, ratelimit.Override{IP: "203.0.113.9/32"})
		third := since(t, s, second.Version)
		assert.Equal(t, []ratelimit.Override{page}, third.Set)
		assert.Equal(t, []ratelimit.Override{
			{IP: "10.0.0.0/8", Rules: []string{"a", "b"}, Effect: ratelimit.EffectRate},
			{IP: "203.0.113.9", Effect: ratelimit.EffectExempt},
		}, third.Lifted)
		set(t, s, ratelimit.Override{Client: "alice"}, exempt)
		last := since(t, s, third.Version)
		assert.Equal(t, []ratelimit.Override{exempt}, last.Set)
		again := since(t, s, second.Version)
		assert.Equal(t, []ratelimit.Override{exempt}, again.Set)
		assert.Len(t, again.Lifted, 3, "without what was set again")
		assert.ElementsMatch(t, []ratelimit.Override{page, {Client: "alice", Effect: ratelimit.EffectBlock}}, last.Lifted)
		assert.Equal(t, []ratelimit.Override{exempt}, since(t, s, ratelimit.OverrideVersion{}).Set)

		set(t, s, page, ratelimit.Override{Client: "alice"}, ratelimit.Override{IP: "203.0.113.9"})
		empty := since(t, s, last.Version)
		assert.Empty(t, empty.Set)
		assert.Len(t, empty.Lifted, 2)
		empty = since(t, s, ratelimit.OverrideVersion{})
		assert.True(t, empty.Whole)
		assert.Empty(t, empty.Set)
		assert.Equal(t, first.Version.List, empty.Version.List, "it is the same list, which is empty")
		change, err := s.OverridesSince(t.Context(), "other", last.Version)
		require.NoError(t, err)
		assert.Equal(t, ratelimit.OverrideChange{Whole: true, Now: clock.Now()}, change, "each limiter has a list of its own")
	})
}

// TestOverridesInOneCall makes several changes of the same overrides in one call.
func TestOverridesInOneCall(t *testing.T) {
	s := newStore(t, startReal(t).client(t))
	set(t, s, blockOf("a"), blockOf("stays"))
	before := since(t, s, ratelimit.OverrideVersion{}).Version
	lift := ratelimit.Override{Client: "a"}
	set(t, s, blockOf("a", "x"), lift, blockOf("a", "y"), lift, blockOf("a", "z"), blockOf("b"),
		ratelimit.Override{Client: "b", Rules: []string{"no"}})
	change := since(t, s, before)
	assert.ElementsMatch(t, []ratelimit.Override{blockOf("a", "z"), blockOf("b")}, change.Set)
	assert.ElementsMatch(t, []ratelimit.Override{blockOf("a"), blockOf("a", "x"), blockOf("a", "y")}, change.Lifted)
	assert.Len(t, since(t, s, ratelimit.OverrideVersion{}).Set, 3)
	assert.Equal(t, before.Number+5, change.Version.Number, "each of the five has changed once")
	set(t, s)
	assert.Equal(t, change.Version, since(t, s, before).Version, "no change is no version")
}

// TestOverridesEnd requires that overrides that have ended are removed by the next change, and told to be lifted, and that
// a list expires if all its overrides end.
func TestOverridesEnd(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock))
	for1, for2 := blockOf("one"), blockOf("two")
	for1.Until, for2.Until = clock.Now().Add(time.Minute-time.Nanosecond), clock.Now().Add(time.Hour)
	set(t, s, for1, for2)
	keys := client.Keys(t.Context(), "*").Val()
	require.Len(t, keys, 3)
	expires := func(want time.Duration) {
		t.Helper()
		for _, key := range client.Keys(t.Context(), "*").Val() {
			ttl := client.PTTL(t.Context(), key).Val()
			if want < 0 {
				assert.Equal(t, want, ttl, key)
				continue
			}
			want := want + 25*time.Hour
			assert.LessOrEqual(t, ttl, want, "%s: a day after the last end, and in a test an hour longer", key)
			assert.Greater(t, ttl, want-time.Minute, key)
		}
	}
	expires(time.Hour)
	forever := blockOf("forever")
	set(t, s, forever)
	expires(-1)
	v := since(t, s, ratelimit.OverrideVersion{}).Version
	clock.Advance(time.Minute - time.Microsecond)
	set(t, s, blockOf("x"))
	change := since(t, s, v)
	assert.Equal(t, []ratelimit.Override{blockOf("x")}, change.Set)
	assert.Empty(t, change.Lifted, "it ends within a microsecond")
	clock.Advance(time.Microsecond)
	set(t, s, ratelimit.Override{Client: "nobody"})
	change = since(t, s, change.Version)
	assert.Equal(t, []ratelimit.Override{blockOf("one")}, change.Lifted)
	set(t, s, ratelimit.Override{Client: "forever"}, ratelimit.Override{Client: "x"})
	require.Len(t, client.Keys(t.Context(), "*").Val(), 4)
	expires(time.Hour - time.Minute)
	for2.Until = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	set(t, s, for2)
	expires(-1)
	all := since(t, s, ratelimit.OverrideVersion{}).Set
	require.Len(t, all, 1)
	assert.True(t, for2.Until.Equal(all[0].Until))
	clock.Advance(200 * 365 * 24 * time.Hour)
	set(t, s, ratelimit.Override{Client: "nobody"})
	require.Len(t, since(t, s, ratelimit.OverrideVersion{}).Set, 1)
	for2.Until = time.Time{}
	set(t, s, for2)
	set(t, s, ratelimit.Override{Client: "two"})
	require.Empty(t, since(t, s, ratelimit.OverrideVersion{}).Set)
	expires(0)
}

// TestOverridesFull requires that a list has at most 10,000 overrides, and that nothing is set if it would have more.
func TestOverridesFull(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock))
	many := make([]ratelimit.Override, 10_000)
	for i := range many {
		many[i] = blockOf(fmt.Sprint("client", i))
	}
	many[9999].Until = clock.Now().Add(time.Second)
	set(t, s, many...)
	full := since(t, s, ratelimit.OverrideVersion{})
	require.Equal(t, many, full.Set)
	held := dump(t, client)
	err := s.SetOverrides(t.Context(), "shop", []ratelimit.Override{blockOf("client0"), blockOf("one more")})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "10000")
	require.Equal(t, held, dump(t, client), "all or none")
	set(t, s, blockOf("client0"), ratelimit.Override{Client: "client1"}, blockOf("one more"))
	clock.Advance(time.Second)
	set(t, s, blockOf("one more than that"))
	change := since(t, s, full.Version)
	require.Equal(t, []ratelimit.Override{blockOf("client0"), blockOf("one more"), blockOf("one more than that")}, change.Set)
	require.Equal(t, []ratelimit.Override{blockOf("client1"), blockOf("client9999")}, change.Lifted)
	require.ErrorIs(t, s.SetOverrides(t.Context(), "shop", []ratelimit.Override{blockOf("x")}), ratelimit.ErrInvalidConfig)
	require.NoError(t, s.SetOverrides(t.Context(), "other", []ratelimit.Override{blockOf("x")}))

	lifts := make([]ratelimit.Override, 9_998)
	for i := range lifts {
		lifts[i] = ratelimit.Override{Client: fmt.Sprint("client", i+2)}
	}
	set(t, s, lifts[:9_997]...)
	whole := since(t, s, ratelimit.OverrideVersion{})
	require.Len(t, whole.Set, 3)
	require.Empty(t, whole.Lifted)
	change = since(t, s, full.Version)
	require.False(t, change.Whole)
	require.Len(t, change.Lifted, 9_999)
	set(t, s, blockOf("x"), blockOf("y"))
	set(t, s, ratelimit.Override{Client: "x"})
	require.False(t, since(t, s, full.Version).Whole, "10,000 were lifted")
	set(t, s, ratelimit.Override{Client: "y"})
	require.True(t, since(t, s, full.Version).Whole, "one more: it is not known any more what was lifted first")
	change = since(t, s, whole.Version)
	require.False(t, change.Whole)
	require.Len(t, change.Lifted, 2)
	floor, err := client.HGet(t.Context(), "ratelimit:{oshop}:1o", "floor").Uint64()
	require.NoError(t, err)
	require.Equal(t, full.Version.Number+2, floor, "after client0 was set again, client1 was lifted")
	require.False(t, since(t, s, ratelimit.OverrideVersion{List: full.Version.List, Number: floor}).Whole)
	require.EqualValues(t, 10_000, client.ZCard(t.Context(), "ratelimit:{oshop}:1o;l").Val())
}

// TestOverridesOfAnotherList requires that a reader gets the whole list after the server has lost what it had.
func TestOverridesOfAnotherList(t *testing.T) {
	srv := startReal(t)
	client := srv.client(t)
	s := newStore(t, client)
	set(t, s, blockOf("a"), blockOf("b"))
	first := since(t, s, ratelimit.OverrideVersion{})
	require.NoError(t, client.FlushAll(t.Context()).Err())
	require.Equal(t, ratelimit.OverrideVersion{}, since(t, s, first.Version).Version)
	require.True(t, since(t, s, first.Version).Whole, "the list is empty now")
	require.False(t, since(t, s, ratelimit.OverrideVersion{}).Whole, "and who has read that needs nothing")
	set(t, s, blockOf("c"), blockOf("d"))
	second := since(t, s, first.Version)
	require.True(t, second.Whole)
	require.Equal(t, []ratelimit.Override{blockOf("c"), blockOf("d")}, second.Set)
	require.NotEqual(t, first.Version.List, second.Version.List)
	require.Equal(t, first.Version.Number, second.Version.Number)

	srv.kill(t)
	quick := newStore(t, srv.client(t), redisstore.WithTimeout(50*time.Millisecond))
	_, err := quick.OverridesSince(t.Context(), "shop", second.Version)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.ErrorIs(t, quick.SetOverrides(t.Context(), "shop", []ratelimit.Override{blockOf("e")}), ratelimit.ErrStore)
	srv.run(t)
	srv.await(t)
	until(t, func(ctx context.Context) error {
		_, err := s.OverridesSince(ctx, "shop", second.Version)
		return err
	})
	require.True(t, since(t, s, second.Version).Whole, "the server has started without its data")
	set(t, s, blockOf("e"))
	require.Equal(t, []ratelimit.Override{blockOf("e")}, since(t, s, second.Version).Set)

	// An older copy of the same list, as a replica may have that becomes the master.
	now := since(t, s, second.Version).Version
	ahead := ratelimit.OverrideVersion{List: now.List, Number: now.Number + 1}
	require.True(t, since(t, s, ahead).Whole)
}

// TestOverridesOfAnyText requires that clients, rules and notes may have any bytes.
func TestOverridesOfAnyText(t *testing.T) {
	s := newStore(t, startReal(t).client(t))
	texts := []string{
		"a\nb\r\n", "<script>alert(1)</script>", "\x00\x00", "\xff\xfe", "c1:a", "7:", `"quoted"\`, "%s {}", "list", "number",
		strings.Repeat("é", 2048), strings.Repeat("\x00", 4096),
	}
	var want []ratelimit.Override
	for i, text := range texts {
		o := ratelimit.Override{Client: text, Effect: ratelimit.EffectBlock, Note: text, Rules: []string{text}}
		if i%2 == 0 {
			o.Rules = nil
		}
		want = append(want, o)
	}
	set(t, s, want...)
	got := since(t, s, ratelimit.OverrideVersion{})
	require.Equal(t, want, got.Set)
	for i, text := range texts {
		set(t, s, ratelimit.Override{Client: text, Rules: want[i].Rules})
	}
	require.Len(t, since(t, s, got.Version).Lifted, len(texts))
	require.Empty(t, since(t, s, ratelimit.OverrideVersion{}).Set)
	for _, text := range texts {
		require.NoError(t, s.SetOverrides(t.Context(), text, []ratelimit.Override{blockOf("a")}), "a name of a limiter")
		change, err := s.OverridesSince(t.Context(), text, ratelimit.OverrideVersion{})
		require.NoError(t, err)
		require.Len(t, change.Set, 1)
	}
}

// TestOverridesAtOnce has two clients change the list at once, while others read it, and requires that all see the same list
// in the end.
func TestOverridesAtOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		stores := []*redisstore.Store{newStore(t, connect()), newStore(t, connect())}
		set(t, stores[0], blockOf("always"))
		copies := make([]map[string]bool, 4)
		versions := make([]ratelimit.OverrideVersion, len(copies))
		read := func(i int) {
			change := since(t, stores[i%2], versions[i])
			if change.Whole {
				copies[i] = make(map[string]bool)
			}
			for _, o := range change.Set {
				copies[i][o.Client] = true
			}
			for _, o := range change.Lifted {
				delete(copies[i], o.Client)
			}
			assert.GreaterOrEqual(t, change.Version.Number, versions[i].Number)
			versions[i] = change.Version
		}
		var all sync.WaitGroup
		for i := range copies {
			all.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				for range 200 {
					o := blockOf(fmt.Sprint(random.IntN(20)))
					if random.IntN(2) == 0 {
						o.Effect = ""
					}
					set(t, stores[i%2], o)
					read(i)
				}
			})
		}
		all.Wait()
		want := make(map[string]bool)
		for _, o := range since(t, stores[0], ratelimit.OverrideVersion{}).Set {
			want[o.Client] = true
		}
		for i := range copies {
			read(i)
			require.Equal(t, want, copies[i])
		}
	})
}

// TestOverridesRefused requires that overrides that are not valid are refused, and that what somebody else has written is an
// error.
func TestOverridesRefused(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	for says, o := range map[string]ratelimit.Override{
		"overrides[1].client": {Effect: ratelimit.EffectBlock},
		"and not both":        {Client: "a", IP: "10.0.0.1", Effect: ratelimit.EffectBlock},
		"overrides[1].ip":     {IP: "somewhere", Effect: ratelimit.EffectBlock},
		"overrides[1].effect": {Client: "a", Effect: ratelimit.EffectPardon},
	} {
		err := s.SetOverrides(t.Context(), "shop", []ratelimit.Override{blockOf("a"), o})
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		assert.ErrorContains(t, err, says)
	}
	require.Empty(t, client.Keys(t.Context(), "*").Val())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.SetOverrides(ended, "shop", nil), context.Canceled)
	_, err := s.OverridesSince(ended, "shop", ratelimit.OverrideVersion{})
	require.ErrorIs(t, err, context.Canceled)

	set(t, s, blockOf("a"))
	const list = "ratelimit:{oshop}:1o"
	wantCorrupt := func() {
		t.Helper()
		_, err := s.OverridesSince(t.Context(), "shop", ratelimit.OverrideVersion{})
		var failed *redisstore.Error
		require.ErrorAs(t, err, &failed)
		require.Equal(t, redisstore.ClassCorrupt, failed.Class)
	}
	require.NoError(t, client.HSet(t.Context(), list, "c1:ab", "other").Err())
	wantCorrupt()
	require.NoError(t, client.HSet(t.Context(), list, "c1:ab", "{}").Err())
	require.Len(t, since(t, s, ratelimit.OverrideVersion{}).Set, 1)
	for _, field := range []string{"x", "x1:ab", "c1:a", "c1:ax", "c9:ab", "c0:b", "c-1:b", "c1:ab2:r", "c1:abr", ""} {
		require.NoError(t, client.ZAdd(t.Context(), list+";v", redis.Z{Score: 9, Member: field}).Err())
		wantCorrupt()
		require.NoError(t, client.ZRem(t.Context(), list+";v", field).Err())
	}
	require.NoError(t, client.Set(t.Context(), list, "other", 0).Err())
	_, err = s.OverridesSince(t.Context(), "shop", ratelimit.OverrideVersion{})
	var failed *redisstore.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, redisstore.ClassWrongType, failed.Class)
}

// TestOverridesReplyLost loses the reply to a change and to a read, which are then made again.
func TestOverridesReplyLost(t *testing.T) {
	srv := startReal(t)
	p := startProxy(t, srv.addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	t.Cleanup(func() { _ = client.Close() })
	s := newStore(t, client)
	set(t, s, blockOf("a"))
	p.will(loses, 1)
	set(t, s, blockOf("b"))
	require.EqualValues(t, 1, p.met.Load())
	p.will(loses, 1)
	require.Equal(t, []ratelimit.Override{blockOf("a"), blockOf("b")}, since(t, s, ratelimit.OverrideVersion{}).Set)
	require.EqualValues(t, 1, p.met.Load())
	p.will(loses, 2)
	require.ErrorIs(t, s.SetOverrides(t.Context(), "shop", []ratelimit.Override{blockOf("c")}), ratelimit.ErrStore)
}

// TestOperate has two processes limit a client: a block that one of them sets denies in the other one, a Penalty blocks in
// both, and a pardon ends it in both.
func TestOperate(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		limiter := func() *ratelimit.RateLimiter {
			l, err := ratelimit.New([]ratelimit.Rule{
				{Name: "search", Endpoint: "/", Rate: ratelimit.PerDay(2), Penalty: ratelimit.Penalty{After: 3, Within: time.Hour, For: time.Hour}},
				{Name: "other", Endpoint: "/other", Rate: ratelimit.PerDay(1000)},
			}, nil, ratelimit.WithStore(newStore(t, connect(), frozen())), ratelimit.WithName("shop"), ratelimit.WithOverrides(),
				ratelimit.WithFailurePolicy(ratelimit.FailClosed))
			require.NoError(t, err)
			return l
		}
		ls := []*ratelimit.RateLimiter{limiter(), limiter()}
		checkAt := func(i int, client, endpoint string) ratelimit.Result {
			res, err := ls[i].Check(t.Context(), ratelimit.Request{Client: client, Endpoint: endpoint})
			require.NoError(t, err)
			return res
		}
		check := func(i int, client string) ratelimit.Result { return checkAt(i, client, "/") }
		for i := range 2 {
			require.True(t, check(i, "alice").Allowed)
		}
		for i := range 5 {
			res := check(i%2, "alice")
			require.False(t, res.Allowed)
			require.Equal(t, i >= 2, res.Reason == ratelimit.ReasonPenalty, "denial %d", i+1)
		}
		require.NoError(t, ls[0].Override(t.Context(), ratelimit.Override{Client: "alice", Effect: ratelimit.EffectPardon}))
		require.Equal(t, ratelimit.ReasonLimit, check(0, "alice").Reason)

		block := ratelimit.Override{Client: "bob", Effect: ratelimit.EffectBlock, Note: "too\nloud"}
		require.NoError(t, ls[0].Override(t.Context(), block))
		require.Equal(t, ratelimit.ReasonOverride, check(0, "bob").Reason)
		got, err := ls[1].Overrides(t.Context())
		require.NoError(t, err)
		require.Equal(t, []ratelimit.Override{block}, got)
		require.Equal(t, ratelimit.ReasonOverride, check(1, "bob").Reason)
		block.Effect, block.Note = "", ""
		require.NoError(t, ls[1].Override(t.Context(), block))
		require.True(t, check(1, "bob").Allowed)
		until(t, func(context.Context) error { // the other process learns of it within a second
			if res := checkAt(0, "bob", "/other"); res.Reason != "" {
				return fmt.Errorf("bob is still blocked: %v", res)
			}
			return nil
		})
	})
}

// TestOverridesServerKilled kills the server while a process reads the list. The process goes on to decide by its copy, and
// obeys what is in the list when the server is back, without its data.
func TestOverridesServerKilled(t *testing.T) {
	t.Parallel()
	srv := startReal(t)
	p := startProxy(t, srv.addr)
	clock := ratelimit.NewFakeClock(time.Now())
	limiter := func(addr string) *ratelimit.RateLimiter {
		client := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = client.Close() })
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "all", Endpoint: "*", Rate: ratelimit.PerDay(1000)}}, nil,
			ratelimit.WithStore(newStore(t, client, redisstore.WithTimeout(time.Second))), ratelimit.WithName("shop"),
			ratelimit.WithOverrides(), ratelimit.WithFailurePolicy(ratelimit.FailClosed), ratelimit.WithClock(clock))
		require.NoError(t, err)
		return l
	}
	operator, reader := limiter(srv.addr), limiter(p.addr)
	allow := func(client string) ratelimit.Result {
		clock.Advance(2 * time.Second) // a decision begins to read the list if that was last done more than a second ago
		return reader.Allow(client, "/")
	}
	require.NoError(t, operator.Override(t.Context(), blockOf("alice")))
	_, err := reader.Overrides(t.Context())
	require.NoError(t, err)

	p.will(drops, 1)
	require.Equal(t, ratelimit.ReasonOverride, allow("alice").Reason)
	until(t, func(context.Context) error {
		if p.met.Load() == 0 {
			return errors.New("the list is not read")
		}
		return nil
	})
	srv.kill(t)
	for range 100 {
		require.Equal(t, ratelimit.ReasonOverride, allow("alice").Reason)
	}
	require.True(t, allow("bob").Degraded)
	require.ErrorIs(t, reader.Override(t.Context(), blockOf("bob")), ratelimit.ErrStore)
	require.NotEqual(t, ratelimit.ReasonOverride, allow("bob").Reason)

	srv.run(t)
	srv.await(t)
	until(t, func(ctx context.Context) error { return operator.Override(ctx, blockOf("bob")) })
	until(t, func(context.Context) error {
		if alice, bob := allow("alice"), allow("bob"); !alice.Allowed || bob.Reason != ratelimit.ReasonOverride {
			return fmt.Errorf("alice has %v, bob %v", alice, bob)
		}
		return nil
	})
}
