package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestServed checks that each middleware limits, and that the bare handlers do not.
func TestServed(t *testing.T) {
	for _, s := range Specs() {
		if s.Kind != HTTP && s.Kind != PeerHTTP {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			subject, err := s.New(Limit{Rate: 2, Per: forever, Burst: 2, MaxKeys: 100})
			require.NoError(t, err)
			limited := s.Name != "http-bare" && s.Name != "http-bare-mux"
			assert.True(t, subject.Allow(""))
			assert.Equal(t, limited, len(subject.(*served).header) >= 2, "the client is told what is left")
			assert.True(t, subject.Allow(""))
			assert.Equal(t, !limited, subject.Allow(""), "the third of two")
		})
	}
}

// BenchmarkHTTP measures middlewares on a handler and in a server on the loopback.
func BenchmarkHTTP(b *testing.B) {
	for _, s := range Specs() {
		if s.Kind >= HTTP && s.Kind <= PeerServer {
			b.Run("algo="+s.Name, func(b *testing.B) {
				w := Workload{Keys: 1, Outcome: Allowed}
				subject := started(b, s, w)
				benchmarkSerial(b, s, w, subject)
			})
		}
	}
}
