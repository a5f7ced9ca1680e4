package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// startCluster starts a cluster of three masters, and returns them and a client of it.
func startCluster(t testing.TB) ([]*server, *redis.ClusterClient) {
	t.Helper()
	return startNodes(t, 3, "--cluster-node-timeout", "10000")
}

// startReplicated starts a cluster of three masters, each with a replica that is up to
// date. If one master is down, the others go on serving their slots.
func startReplicated(t testing.TB) ([]*server, *redis.ClusterClient) {
	t.Helper()
	return startNodes(t, 6, "--cluster-node-timeout", "1000",
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--cluster-require-full-coverage", "no")
}

// startNodes starts a cluster of n servers. Three of them are masters, the others replicas.
func startNodes(t testing.TB, n int, args ...string) ([]*server, *redis.ClusterClient) {
	t.Helper()
	cli := program(t, "redis-cli")
	var servers []*server
	var addrs []string
	for range n {
		s := startReal(t, append([]string{"--cluster-enabled", "yes", "--cluster-port", freePort(t)}, args...)...)
		servers, addrs = append(servers, s), append(addrs, s.addr)
	}
	create := append([]string{"--cluster", "create"}, addrs...)
	create = append(create, "--cluster-replicas", strconv.Itoa(n/3-1), "--cluster-yes")
	out, err := exec.CommandContext(t.Context(), cli, create...).CombinedOutput()
	require.NoError(t, err, string(out))
	for _, s := range servers {
		c := s.client(t)
		until(t, func(ctx context.Context) error { return ready(ctx, c, n) })
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = c.Close() })
	return servers, c
}

// ready returns nil if the node of c is ready in a cluster of n nodes, and otherwise an
// error that says why not.
func ready(ctx context.Context, c *redis.Client, n int) error {
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	nodes, err := nodesIn(ctx, c)
	if err != nil {
		return err
	}
	serve := 0
	for _, node := range nodes {
		if len(node.slots) > 0 || node.master != "-" {
			serve++
		}
	}
	if serve != n || !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("the cluster is not ready: %d nodes serve, of %d", serve, n)
	}
	if masters(ctx, c) == nil {
		return nil
	}
	return replicates(ctx, c)
}

// A node is what one node of a cluster knows of another, or of itself.
type node struct {
	id, addr, epoch string
	master          string   // the id of the master of a replica; "-" for a master
	slots           []string // "7", "7-9" or, while it is being moved, "[7->-id]"
}

// nodesIn returns all nodes that the node of c knows.
func nodesIn(ctx context.Context, c *redis.Client) ([]node, error) {
	text, err := c.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	var nodes []node
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 8 {
			addr, _, _ := strings.Cut(f[1], "@")
			nodes = append(nodes, node{id: f[0], addr: addr, master: f[3], epoch: f[6], slots: f[8:]})
		}
	}
	return nodes, nil
}

// serves reports whether n is the master that serves a slot.
func (n node) serves(slot int) bool {
	return slices.ContainsFunc(n.slots, func(s string) bool {
		first, last, isRange := strings.Cut(s, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			return false
		}
		to := from
		if isRange {
			to, err = strconv.Atoi(last)
		}
		return err == nil && from <= slot && slot <= to
	})
}

// ownerOf returns the master that serves a slot, and all nodes, as the node of c knows
// them.
func ownerOf(ctx context.Context, c *redis.Client, slot int) (node, []node, error) {
	nodes, err := nodesIn(ctx, c)
	if err != nil {
		return node{}, nil, err
	}
	i := slices.IndexFunc(nodes, func(n node) bool { return n.serves(slot) })
	if i < 0 {
		return node{}, nil, errors.New("no master serves the slot")
	}
	return nodes[i], nodes, nil
}

// serving returns the servers that serve a slot: the master first, then its replicas.
func serving(t testing.TB, servers []*server, slot int) []*server {
	t.Helper()
	owner, nodes, err := ownerOf(context.Background(), servers[0].client(t), slot)
	require.NoError(t, err)
	at := func(n node) *server {
		return servers[slices.IndexFunc(servers, func(s *server) bool { return s.addr == n.addr })]
	}
	found := []*server{at(owner)}
	for _, n := range nodes {
		if n.master == owner.id {
			found = append(found, at(n))
		}
	}
	return found
}

// A move is the move of a slot from one master of a cluster to another.
type move struct {
	slot     int
	from, to *redis.Client
	others   []*redis.Client
}

// newMove prepares to move a slot from the master that serves it to another master.
func newMove(t testing.TB, servers []*server, slot int) move {
	t.Helper()
	m, owner := move{slot: slot}, serving(t, servers, slot)[0]
	for _, s := range servers {
		switch {
		case s == owner:
			m.from = s.client(t)
		case m.to == nil:
			m.to = s.client(t)
		default:
			m.others = append(m.others, s.client(t))
		}
	}
	return m
}

// back returns the move in the opposite direction.
func (m move) back() move {
	m.from, m.to = m.to, m.from
	return m
}

// begin starts the move. From then on, requests for keys of the slot that the old master
// does not have are sent to the new one.
func (m move) begin(t testing.TB) {
	t.Helper()
	m.set(t, m.to, "importing", id(t, m.from))
	m.set(t, m.from, "migrating", id(t, m.to))
}

// carry moves keys from the old master to the new one.
func (m move) carry(t testing.TB, keys ...string) {
	t.Helper()
	host, port, err := net.SplitHostPort(m.to.Options().Addr)
	require.NoError(t, err)
	args := []any{"migrate", host, port, "", 0, 5000, "keys"}
	for _, k := range keys {
		args = append(args, k)
	}
	require.NoError(t, m.from.Do(context.Background(), args...).Err())
}

// end moves the remaining keys one at a time, then the slot itself, and waits until all
// masters agree about it.
func (m move) end(t testing.TB) {
	t.Helper()
	keys, err := m.from.ClusterGetKeysInSlot(context.Background(), m.slot, 1000).Result()
	require.NoError(t, err)
	for _, k := range keys {
		m.carry(t, k)
	}
	nodes := append([]*redis.Client{m.to, m.from}, m.others...)
	for _, c := range nodes {
		m.set(t, c, "node", id(t, m.to))
	}
	for _, c := range nodes {
		until(t, func(ctx context.Context) error { return m.known(ctx, c) })
	}
}

// known returns nil if the node of c knows of the move, and otherwise an error. The node
// must also know the epoch since which the new master has the slot: otherwise it might take
// the slot back.
func (m move) known(ctx context.Context, c *redis.Client) error {
	its, _, err := ownerOf(ctx, m.to, m.slot)
	if err != nil {
		return err
	}
	seen, _, err := ownerOf(ctx, c, m.slot)
	if err == nil && (seen.addr != m.to.Options().Addr || seen.epoch != its.epoch) {
		err = errors.New("a master does not know who serves the slot")
	}
	return err
}

func (m move) set(t testing.TB, c *redis.Client, what, node string) {
	t.Helper()
	require.NoError(t, c.Do(context.Background(), "cluster", "setslot", m.slot, what, node).Err())
}

// id returns the id of the node of c.
func id(t testing.TB, c *redis.Client) string {
	t.Helper()
	name, err := c.Do(context.Background(), "cluster", "myid").Text()
	require.NoError(t, err)
	return name
}
