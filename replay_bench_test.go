package ratelimit_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkCheckWithID measures requests with an ID beside those without.
func BenchmarkCheckWithID(b *testing.B) {
	rule := []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.Rate{Requests: 1 << 30, Per: sec}}}
	l := newRules(b, rule, nil, ids(), ratelimit.WithMaxKeys(1<<16))
	for _, row := range []struct {
		name string
		id   func(i int) string
	}{
		{"id=none", func(int) string { return "" }},
		{"id=new", strconv.Itoa},
		{"id=replayed", func(i int) string { return "x" + strconv.Itoa(i/100%1000) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			names := make([]string, 1<<17)
			for i := range names {
				names[i] = row.id(i)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				res, err := l.Check(b.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", ID: names[i%len(names)]})
				if i++; err != nil || !res.Allowed {
					require.Fail(b, "not granted")
				}
			}
		})
	}
}
