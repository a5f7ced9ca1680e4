package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestTimeoutOfTheCall asks a server that is far away: a round trip takes more than half of the timeout. It
// checks that callers who join the next call of their key are answered by the server, although they wait for
// two round trips.
func TestTimeoutOfTheCall(t *testing.T) {
	t.Parallel()
	p := startProxy(t, start(t).addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	store, err := redisstore.New(client, redisstore.WithTimeout(2*time.Second))
	require.NoError(t, err)
	u := ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerDay(100), 1)
	take(t, store, u)
	p.slow.Store(int64(1300 * time.Millisecond))
	const callers = 4
	var all sync.WaitGroup
	errs := make([]error, callers)
	for i := range callers {
		all.Go(func() { _, errs[i] = store.Take(context.Background(), []ratelimit.Ask{u}) })
		until(t, func(context.Context) error {
			if n := store.Waiting(); n != i+1 {
				return fmt.Errorf("%d callers wait", n)
			}
			return nil
		})
	}
	before := store.Stats().Calls
	all.Wait()
	for _, err := range errs {
		assert.NoError(t, err)
	}
	assert.EqualValues(t, 1, store.Stats().Calls-before, "one call decides for all who joined")
	p.slow.Store(0)
	assert.Equal(t, 100-1-callers, left(t, store, u))
	idle(t, store)
}
