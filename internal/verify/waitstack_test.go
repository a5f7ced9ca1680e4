package verify

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestWaitersKeepSmallStacks requires that a caller who waits has a stack of 4 KiB, whose size is a power of two: the collector
// shrinks the stack, because the functions that are active during the wait need little of it. A variable too many in one of them
// has doubled the memory of all waiters before.
func TestWaitersKeepSmallStacks(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs stack itself")
	}
	const callers = 8192
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(1)},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(2 * callers)},
	}, nil, ratelimit.WithMaxWaiters(callers))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	for i := range callers/2 + 1 {
		require.True(t, l.Allow(strconv.Itoa(i), "/").Allowed)
	}
	before := stackInUse()
	ended := make(chan error)
	for i := range callers + 1 {
		go func() {
			_, err := l.Wait(ctx, ratelimit.Request{Client: strconv.Itoa(i / 2), Endpoint: "/"})
			ended <- err
		}()
	}
	require.ErrorIs(t, <-ended, ratelimit.ErrTooManyWaiters, "all others wait")
	each := int(stackInUse()-before) / callers
	cancel()
	for range callers {
		require.ErrorIs(t, <-ended, context.Canceled)
	}
	require.Less(t, each, 6000, "bytes of stack of a caller")
	t.Logf("%d bytes of stack a caller", each)
}

// stackInUse returns how many bytes of the process are stacks, after the collector has shrunk those that are too large.
func stackInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.StackInuse
}
