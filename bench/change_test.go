package bench

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkAddRules measures how long it takes to add 10,000 rules one by one. A change costs
// what it changes, so the last one costs as much as the first.
func BenchmarkAddRules(b *testing.B) {
	const rules = 10_000
	for _, c := range []struct{ name, suffix string }{{"exact", ""}, {"prefixes", "/*"}} {
		b.Run("endpoints="+c.name, func(b *testing.B) {
			for b.Loop() {
				l, err := ratelimit.New(nil, nil)
				require.NoError(b, err)
				for i := range rules {
					err := l.AddRule(ratelimit.Rule{Endpoint: "/api/" + strconv.Itoa(i) + c.suffix, Rate: ratelimit.PerSecond(1)})
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rules), "ns/rule")
		})
	}
}
