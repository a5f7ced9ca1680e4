package engine

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTag checks that a tag has three parts of which none changes another, at the ends of their ranges.
func TestTag(t *testing.T) {
	parts := []tag{0, 1, 2, maxIDs - 1, maxIDs}
	chains := []uint32{0, 1, 1 << 27, maxChains - 1, maxChains}
	for _, plan := range parts {
		for _, slow := range parts {
			for _, chain := range chains {
				wanted := slow
				if slow == plan {
					wanted = 0
				}
				for _, was := range []tag{0, ^tag(0)} {
					got := was.withPlans(plan, slow).withChain(chain)
					assert.Equal(t, got, was.withChain(chain).withPlans(plan, slow))
					assert.Equal(t, []any{plan, wanted, chain}, []any{got.plan(), got.slow(), got.chain()})
					assert.Equal(t, []any{plan, wanted, uint32(0)}, partsOf(got.withoutChain()))
					assert.Equal(t, []any{tag(3), wanted, chain}, partsOf(got.withPlan(3)))
					assert.Equal(t, wanted == 0 && chain == 0, got == plan, "a tag equals the id of a plan only if it has no other part")
				}
			}
		}
	}
}

func partsOf(t tag) []any { return []any{t.plan(), t.slow(), t.chain()} }

// TestStateOfARuleHasEightBytesMore holds the memory that a rule needs for each key beside the state of the algorithm.
func TestStateOfARuleHasEightBytesMore(t *testing.T) {
	assert.Equal(t, uintptr(8), unsafe.Sizeof(ratedState[struct{}]{}))
}

// TestNoIDsLeft checks that a rule whose ids are all taken goes on with the rates that it has, and that the key of a rate
// without an id gets the rule's own rate.
func TestNoIDsLeft(t *testing.T) {
	base, known, other := Rate{Requests: 1, Per: 1}, Rate{Requests: 2, Per: 1}, Rate{Requests: 3, Per: 1}
	tooMany := errors.New("too many")
	ps, err := newRatePlans[quotaState](Rates{Base: base, MayGrow: true}, func(Rate, *Warmup) (*quota, error) { return &quota{}, nil },
		&Refusals{TooMany: func(Rate) error { return tooMany }}, &lazyReceipts{})
	require.NoError(t, err)
	plan, err := ps.planFor(known)
	require.NoError(t, err)

	byID := make([]*ratePlan[quotaState, *quota], maxIDs-1)
	copy(byID, *ps.byID.Load())
	ps.byID.Store(&byID)
	last, err := ps.find(Rate{Requests: 4, Per: 1}, true)
	require.NoError(t, err)
	assert.Equal(t, tag(maxIDs), last.id)
	_, err = ps.find(other, true)
	assert.ErrorIs(t, err, tooMany)
	got, err := ps.find(Rate{Requests: 2, Per: 1, Burst: 2}, true)
	require.NoError(t, err)
	assert.Same(t, plan, got, "a rate that has a plan needs no id")
	assert.Same(t, ps.base, ps.successor(&ratePlan[quotaState, *quota]{id: 1, rate: other}, nil))
}
