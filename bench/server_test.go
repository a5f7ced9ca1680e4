package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServer checks that each middleware limits in a server, and that the bare server does not.
func TestServer(t *testing.T) {
	for _, s := range Specs() {
		if s.Kind != Server && s.Kind != PeerServer {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			subject, err := s.New(Limit{Rate: 2, Per: forever, Burst: 2, MaxKeys: 100})
			require.NoError(t, err)
			assert.True(t, subject.Allow(""))
			assert.True(t, subject.Allow(""))
			assert.Equal(t, s.Name == "server-bare", subject.Allow(""), "the third of two")
			assert.Equal(t, s.Name == "server-bare", subject.Allow(""), "the body of the denial was read")
			closer, ok := subject.(interface{ Close() error })
			require.True(t, ok)
			require.NoError(t, closer.Close())
			assert.False(t, subject.Allow(""), "the server has ended")
		})
	}
}

// TestGarbageOf measures a handler that allocates nothing, and a server that has to.
func TestGarbageOf(t *testing.T) {
	for _, tt := range []struct {
		name         string
		least, under float64
	}{{"http-bare", 0, 1}, {"server-bare", 2, 100}} {
		s, err := Find(tt.name)
		require.NoError(t, err)
		got, err := GarbageOf(s, Workload{Keys: 1, Outcome: Allowed}, 200)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, got.Allocs, tt.least, tt.name)
		assert.Less(t, got.Allocs, tt.under, tt.name)
	}
}
