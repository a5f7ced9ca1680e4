package ratelimittest

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A lookingStore is a MemoryStore that does something else with an ask with Look.
type lookingStore struct {
	*ratelimit.MemoryStore
	look func(a *ratelimit.Ask)
}

func (s lookingStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	for i := range asks {
		if asks[i].Look {
			s.look(&asks[i])
		}
	}
	return s.MemoryStore.Take(ctx, asks)
}

// TestLookMutants checks that the kit finds each fault of a Look.
func TestLookMutants(t *testing.T) {
	for name, look := range map[string]func(a *ratelimit.Ask){
		"it charges":            func(a *ratelimit.Ask) { a.Look = false },
		"it answers for 1 unit": func(a *ratelimit.Ask) { a.Look, a.N = false, 0 },
		"it answers for more":   func(a *ratelimit.Ask) { a.N++ },
	} {
		k := settleKit(t, func(s *ratelimit.MemoryStore) ratelimit.Store { return lookingStore{s, look} })
		for _, f := range k.scheduleKinds() {
			if strings.HasPrefix(f.name, "answers/") {
				require.NotNil(t, k.run(f), "%s: %s", name, f.name)
			}
		}
	}
}
