package ratelimit_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestRuleWithoutKeysIsSmall measures what a rule costs that nobody has asked.
func TestRuleWithoutKeysIsSmall(t *testing.T) {
	const count = 10_000
	var rs []ratelimit.Rule
	for i := range count {
		rs = append(rs, ratelimit.Rule{Endpoint: fmt.Sprintf("/%d", i), Rate: ratelimit.PerHour(1)})
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	l, err := ratelimit.New(rs, nil)
	require.NoError(t, err)
	each := (heap() - before) / count
	assert.Less(t, each, int64(1536), "bytes")
	runtime.KeepAlive(l)
	runtime.KeepAlive(rs)
}
