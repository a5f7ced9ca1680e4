package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// BenchmarkUnits compares decisions that are to cost about the same: two rules that count one unit and two rules that
// count two units; a reservation with its settlement, and a hold of a rule with AlgorithmInFlight with its end.
func BenchmarkUnits(b *testing.B) {
	ample := ratelimit.Rate{Requests: 1 << 30, Per: time.Hour}
	global := ratelimit.Rule{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ample}
	tokens := global
	tokens.Unit = "tokens"
	running := ratelimit.Rule{Name: "user", Endpoint: "*", Algorithm: ratelimit.AlgorithmInFlight, Rate: ample}
	user := ratelimit.Rule{Name: "user", Endpoint: "*", Rate: ample}
	check := func(l *ratelimit.RateLimiter, req ratelimit.Request) bool {
		res, err := l.Check(b.Context(), req)
		return err == nil && res.Allowed
	}
	reserve := func(l *ratelimit.RateLimiter, req ratelimit.Request) bool {
		r, err := l.Reserve(b.Context(), req, time.Minute)
		return err == nil && r.Result().Allowed && r.Settle(1) == nil
	}
	hold := func(l *ratelimit.RateLimiter, req ratelimit.Request) bool {
		r, err := l.Reserve(b.Context(), req, time.Minute)
		return err == nil && r.Result().Allowed && r.Done() == nil
	}
	for _, row := range []struct {
		name  string
		rules []ratelimit.Rule
		costs []ratelimit.Cost
		do    func(l *ratelimit.RateLimiter, req ratelimit.Request) bool
	}{
		{"one-rule/check", []ratelimit.Rule{user}, nil, check},
		{"two-rules/one-unit", []ratelimit.Rule{user, global}, nil, check},
		{"two-rules/two-units", []ratelimit.Rule{user, tokens}, []ratelimit.Cost{{Unit: "tokens", N: 1}}, check},
		{"reserve-and-settle", []ratelimit.Rule{user}, nil, reserve},
		{"hold-and-end", []ratelimit.Rule{running}, nil, hold},
	} {
		b.Run(row.name, func(b *testing.B) {
			l, err := ratelimit.New(row.rules, nil)
			require.NoError(b, err)
			req := ratelimit.Request{Client: "alice", Endpoint: "/", Costs: row.costs}
			b.ReportAllocs()
			for b.Loop() {
				if !row.do(l, req) {
					b.Fatal("denied")
				}
			}
		})
	}
}
