package verify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// waiting returns how many callers BlockUntil counts, which must be fewer than 9. It runs in a bubble.
func waiting(clock *ratelimit.FakeClock) (n int) {
	returned := make(chan int, 9)
	for i := range cap(returned) {
		go func() {
			clock.BlockUntil(i + 1)
			returned <- i + 1
		}()
	}
	synctest.Wait()
	n = len(returned)
	for range 9 - n { // let the others return
		clock.After(1)
	}
	for range cap(returned) {
		<-returned
	}
	clock.Advance(1)
	return n
}

// TestBlockUntil proves whom FakeClock.BlockUntil counts: callers that wait, but none that was served, has left, or whose time
// has come.
func TestBlockUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(1)}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		require.True(t, l.Allow("alice", "/").Allowed)
		require.Zero(t, waiting(clock))

		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 8)
		for range 8 {
			go func() {
				_, err := l.Wait(ctx, ratelimit.Request{Client: "alice", Endpoint: "/"})
				served <- err
			}()
		}
		synctest.Wait()
		require.Equal(t, 8, waiting(clock))
		clock.Advance(4 * time.Second)
		clock.BlockUntil(4)
		require.EqualValues(t, 5, l.Stats()[0].Allowed, "BlockUntil has served those whose time had come")
		synctest.Wait()
		require.Len(t, served, 4)
		require.Equal(t, 4, waiting(clock))
		cancel()
		synctest.Wait()
		require.Zero(t, waiting(clock), "they have left")

		clock.After(0)
		require.Zero(t, waiting(clock), "this time has come")
		clock.After(time.Second)
		require.Equal(t, 1, waiting(clock))
		clock.Advance(time.Second)
		require.Zero(t, waiting(clock), "the channel has received the time")
	})
}
