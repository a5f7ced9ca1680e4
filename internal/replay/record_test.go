package replay

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// charges returns the charges of a request.
func charges() []engine.Charge {
	return []engine.Charge{
		{Rule: "own", Key: "alice", Algorithm: "TokenBucket", N: 3},
		{Rule: "all", Key: "", Algorithm: "FixedWindow", N: 3},
		{Rule: "own", Key: "bob", Algorithm: "TokenBucket", N: 3, Shadow: true},
	}
}

// TestRecord records the answers to charges, and finds them for the same charges in any order.
func TestRecord(t *testing.T) {
	l, made := New(10), charges()
	for i := range made {
		made[i].Left, made[i].ResetAfter, made[i].Delay = int64(i), 50, time.Duration(i)
	}
	r := NewRecord(l, "alice", "7f3a", time.Hour, false, made)
	require.False(t, r.Find(1000))
	r.Add(1000)
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		again := make([]engine.Charge, len(order))
		for i, place := range order {
			again[i] = charges()[place]
		}
		require.True(t, NewRecord(l, "alice", "7f3a", time.Hour, false, again).Find(1010))
		for i, place := range order {
			require.EqualValues(t, place, again[i].Left, "%v", order)
			require.EqualValues(t, 40, again[i].ResetAfter)
			require.EqualValues(t, max(place-10, 0), again[i].Delay)
		}
	}
}

// TestRecordIdentity lists what makes a request a different one, and what does not.
func TestRecordIdentity(t *testing.T) {
	for _, row := range []struct {
		same   bool
		change func(client, id *string, c *[]engine.Charge)
		why    string
	}{
		{true, func(*string, *string, *[]engine.Charge) {}, "nothing"},
		{true, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Rate.Requests = 9 }, "the rate"},
		{true, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Warmup = &engine.Warmup{From: 1, Over: 1} }, "the warm-up"},
		{true, func(_, _ *string, c *[]engine.Charge) { slices.Reverse(*c) }, "the order"},
		{false, func(client, _ *string, _ *[]engine.Charge) { *client = "bob" }, "the client"},
		{false, func(_, id *string, _ *[]engine.Charge) { *id = "7f3b" }, "the ID"},
		{false, func(client, id *string, _ *[]engine.Charge) { *client, *id = "alic", "e7f3a" }, "where the client ends"},
		{false, func(client, id *string, _ *[]engine.Charge) { *client, *id = *id, *client }, "which of the two it is"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].N = 4 }, "the units"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Rule = "owm" }, "a rule"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Key = "alicf" }, "a key"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Rule, (*c)[0].Key = "owna", "lice" }, "where a rule ends"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Algorithm = "LeakyBucket" }, "an algorithm"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Shadow = true }, "a mode"},
		{false, func(_, _ *string, c *[]engine.Charge) { (*c)[0].Shadow, (*c)[2].Shadow = true, false }, "whose mode it is"},
		{false, func(_, _ *string, c *[]engine.Charge) { *c = (*c)[:2] }, "a rule less"},
		{false, func(_, _ *string, c *[]engine.Charge) { *c = nil }, "no rules"},
	} {
		l := New(10)
		NewRecord(l, "alice", "7f3a", time.Hour, false, charges()).Add(0)
		client, id, other := "alice", "7f3a", charges()
		row.change(&client, &id, &other)
		require.Equal(t, row.same, NewRecord(l, client, id, time.Hour, false, other).Find(0), row.why)
	}
}

// TestRecordLooks proves that a Record which only looks does not count.
func TestRecordLooks(t *testing.T) {
	l := New(10)
	NewRecord(l, "alice", "7f3a", time.Hour, false, charges()).Add(0)
	look := NewRecord(l, "alice", "7f3a", time.Hour, true, charges())
	for range 2 * MaxReplays {
		require.True(t, look.Find(0))
	}
	for range MaxReplays {
		require.True(t, NewRecord(l, "alice", "7f3a", time.Hour, false, charges()).Find(0))
	}
	require.False(t, look.Find(0))
}
