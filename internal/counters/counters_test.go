package counters

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// TestTable proves that each row describes a counter by a field of its own, and by a name and a result that no other has.
func TestTable(t *testing.T) {
	fields, names := map[string]bool{}, map[string]bool{}
	for i, row := range Table {
		require.NotEmpty(t, row.Field, "row %d", i)
		require.NotEmpty(t, row.Help, row.Field)
		require.Contains(t, []string{"request", "error", "unit", "key"}, row.Unit, row.Field)
		require.Equal(t, row.Name == "requests", row.Result != "", row.Field)
		require.False(t, fields[row.Field] || names[row.Name+row.Result], row.Field)
		fields[row.Field], names[row.Name+row.Result] = true, true
	}
}

// TestDecided proves which counter each decision adds to.
func TestDecided(t *testing.T) {
	for _, row := range []struct {
		granted, shadow, advises bool
		want                     int
	}{
		{true, false, false, Allowed},
		{true, true, false, Allowed},
		{true, true, true, Allowed},
		{false, false, false, Denied},
		{false, true, false, ShadowDenied},
		{false, true, true, Advised},
	} {
		var total Totals
		total.Decided(row.granted, row.shadow, row.advises)
		var want Sums
		want[row.want] = 1
		require.Equal(t, want, total.Sums(), row)
	}
}

// TestCountsOfKeys proves what the counts of keys add to the totals of their rule.
func TestCountsOfKeys(t *testing.T) {
	keys := keytable.Counts{Allowed: 1, Denied: 2, Shadowed: 4, Advised: 8, Evicted: 16, Overflowed: 32}
	var total Totals
	total.Add(Errors, 64)
	total.Add(Denied, 128)

	sums := total.Sums()
	sums.AddKeys(keys, false)
	want := Sums{Allowed: 1, Denied: 130, ShadowDenied: 4, Advised: 8, Errors: 64, Evicted: 16, Overflowed: 32}
	require.Equal(t, want, sums, "the keys decide as a rule")

	sums = total.Sums()
	sums.AddKeys(keys, true)
	want[Degraded] = 15
	require.Equal(t, want, sums, "the keys decide while the store fails")

	total.Keep(keys)
	want[Evicted], want[Overflowed] = 0, 0
	require.Equal(t, want, total.Sums(), "what new keys count from 0 is not kept")
}
