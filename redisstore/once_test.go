package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

func TestOnceFirst(t *testing.T) {
	for _, kind := range []string{"one", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			var s *redisstore.Store
			if kind == "one" {
				s = newStore(t, startReal(t).client(t), frozen())
			} else {
				_, c := startCluster(t)
				s = newStore(t, c, frozen())
			}
			asks := []ratelimit.Ask{ask(all[0], ratelimit.PerMinute(60), 2), {Rule: "all", Algorithm: all[1], Rate: ratelimit.PerMinute(30), N: 2}, {Rule: "ip", Key: "b", Algorithm: all[4], Rate: ratelimit.PerMinute(30), N: 2}}
			for _, client := range []string{"a", "", "c"} {
				for i := range 3 {
					results, replayed, err := s.Once(context.Background(), ratelimit.Once{Client: client, ID: "1", TTL: time.Minute}, asks)
					require.NoError(t, err)
					t.Log(results, replayed)
					require.Equal(t, i > 0, replayed)
				}
				results, err := s.Take(context.Background(), asks)
				require.NoError(t, err)
				t.Log(results)
			}
		})
	}
}
