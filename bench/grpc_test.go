package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCalled checks that the interceptor limits, and that the bare one does not.
func TestCalled(t *testing.T) {
	for name, limits := range map[string]bool{"grpc-bare": false, "grpclimit": true} {
		s, err := Find(name)
		require.NoError(t, err)
		subject, err := s.New(Limit{Rate: 2, Per: forever, Burst: 2, MaxKeys: 100})
		require.NoError(t, err)
		assert.True(t, subject.Allow(""))
		assert.True(t, subject.Allow(""))
		assert.Equal(t, !limits, subject.Allow(""), "the third of two")
	}
}

func BenchmarkGRPC(b *testing.B) {
	for _, s := range Specs() {
		if s.Kind == GRPC {
			b.Run("algo="+s.Name, func(b *testing.B) {
				w := Workload{Keys: 1, Outcome: Allowed}
				subject, err := s.Start(w)
				require.NoError(b, err)
				benchmarkSerial(b, s, w, subject)
			})
		}
	}
}
