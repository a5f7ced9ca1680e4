package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startSentinel starts a master, its replica, and three sentinels that know of each other.
// It returns the master, the replica, a client of one sentinel, and a client of the current
// master.
func startSentinel(t testing.TB) (master, replica *server, sentinel *redis.SentinelClient, client *redis.Client) {
	t.Helper()
	master = startReal(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.addr)
	require.NoError(t, err)
	replica = startReal(t, "--replicaof", host+" "+port)
	c := replica.client(t)
	until(t, func(ctx context.Context) error { return replicates(ctx, c) })
	var addrs []string
	for range 3 {
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor it %s %s 2\nsentinel down-after-milliseconds it 1000\n"+
			"sentinel failover-timeout it 5000\n", host, port)
		require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
		addrs = append(addrs, startWith(t, config, "--sentinel").addr)
	}
	for _, addr := range addrs {
		c := (&server{addr: addr}).client(t)
		until(t, func(ctx context.Context) error {
			info, err := c.Info(ctx, "sentinel").Result()
			if err == nil && !strings.Contains(info, "slaves=1,sentinels=3") {
				err = errors.New("the sentinels do not know of each other")
			}
			return err
		})
	}
	client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "it", SentinelAddrs: addrs})
	sentinel = redis.NewSentinelClient(&redis.Options{Addr: addrs[0]})
	t.Cleanup(func() { _, _ = client.Close(), sentinel.Close() })
	return master, replica, sentinel, client
}

// replicates returns nil if the server of c is a replica that is up to date, and otherwise
// an error.
func replicates(ctx context.Context, c *redis.Client) error {
	info, err := c.Info(ctx, "replication").Result()
	if err == nil && !strings.Contains(info, "master_link_status:up") {
		err = errors.New("the replica is not up to date")
	}
	return err
}
