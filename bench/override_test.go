package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkOverrides compares decisions on a request that no override meets, while there are none, 1 and 65,536 of them: half of
// them for clients, half for addresses and prefixes of several lengths. It also takes the time of a request that is blocked.
func BenchmarkOverrides(b *testing.B) {
	for _, n := range []int{0, 1, 1 << 16} {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "user", Endpoint: "*", Rate: ratelimit.Rate{Requests: 1 << 30, Per: time.Hour}}}, nil)
		require.NoError(b, err)
		var all []ratelimit.Override
		for i := range n {
			o := ratelimit.Override{Client: fmt.Sprint("client ", i), Effect: ratelimit.EffectBlock}
			if i%2 == 0 {
				o.Client, o.IP = "", []string{fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
					fmt.Sprintf("11.%d.%d.0/24", i>>8&255, i&255), fmt.Sprintf("2001:db8:%x::/48", i)}[i/2%3]
			}
			all = append(all, o)
		}
		require.NoError(b, l.Override(b.Context(), all...))
		run := func(name string, req ratelimit.Request, allowed bool) {
			b.Run(fmt.Sprintf("%s/overrides=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if res, err := l.Check(b.Context(), req); err != nil || res.Allowed != allowed {
						b.Fatal(res, err)
					}
				}
			})
		}
		run("met-by-none", ratelimit.Request{Client: "alice", Endpoint: "/", IP: "192.0.2.77"}, true)
		run("met-by-none-in-IPv6", ratelimit.Request{Client: "alice", Endpoint: "/", IP: "2001:db9:1:2:3:4:5:6"}, true)
		if n > 1 {
			run("blocked", ratelimit.Request{Client: "client 1", Endpoint: "/", IP: "192.0.2.77"}, false)
		}
	}
}
