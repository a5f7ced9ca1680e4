package match

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A listed is a rule of the tests that can be in a Rules.
type listed struct {
	rule
	Member
}

func newListed(name string, p Place) *listed { return &listed{rule: rule{name, p}} }

func (r *listed) RuleName() string { return r.name }

func namesOfListed(rules []*listed) (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// checkRules compares rs with the rules in want, which are in order.
func checkRules(t *testing.T, rs *Rules[*listed, int], want []*listed) {
	t.Helper()
	require.Len(t, rs.List, len(want))
	require.True(t, slices.Equal(want, rs.List), "%v and %v", namesOfListed(want), namesOfListed(rs.List))
	require.Equal(t, namesOfListed(want), namesOfListed(rs.List))
	named, last := len(want), (*listed)(nil)
	if named > 0 && want[named-1].place.Default {
		named, last = named-1, want[named-1]
	}
	require.Equal(t, named, rs.NumNamed())
	require.Same(t, last, rs.Default())
	for i, r := range want {
		require.Equal(t, i, rs.Position(r), r.name)
		require.Same(t, r, rs.Named(r.name))
		require.Equal(t, r.name, rs.Names()[i])
		require.Equal(t, r.place.Default, r.Index == math.MaxInt32, r.name)
	}
}

// TestRulesAgainstAList adds, replaces and removes random rules, the default rule too. The Rules must have the same rules in
// the same order as a slice, and so must the Rules before the change.
func TestRulesAgainstAList(t *testing.T) {
	draw := func(name string, isDefault bool) *listed {
		if isDefault {
			return newListed(name, Place{Default: true})
		}
		return newListed(name, Place{Endpoint: "/" + name})
	}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 11))
		var want []*listed
		for i := range random.IntN(4) {
			want = append(want, draw(fmt.Sprint("r", i), false))
		}
		if random.IntN(2) == 0 {
			want = append(want, draw("default", true))
		}
		rs := NewRules(slices.Clone(want), func(rules []*listed) int { return len(rules) })
		checkRules(t, &rs, want)
		for step := range 20 {
			before, had := rs, slices.Clone(want)
			hasDefault := rs.Default() != nil
			switch i := random.IntN(len(want) + 2); {
			case i >= len(want): // add
				r := draw(fmt.Sprint("added", step), i > len(want) && !hasDefault)
				at := len(want)
				if hasDefault {
					at--
				}
				rs, want = rs.With(nil, r), slices.Insert(want, at, r)
			case random.IntN(2) == 0: // remove
				rs, want = rs.With(want[i], nil), slices.Delete(want, i, i+1)
			default:
				r := draw(fmt.Sprint("instead", step), want[i].place.Default)
				old := want[i]
				want[i] = r
				rs = rs.With(old, r)
				require.Nil(t, rs.Named(old.name))
				require.Equal(t, old.Index, r.Index)
			}
			checkRules(t, &rs, want)
			checkRules(t, &before, had)
			for _, r := range want {
				require.Equal(t, 1, *rs.Find(r.place.Endpoint), "the rule itself, or the default rule")
			}
		}
	}
}
