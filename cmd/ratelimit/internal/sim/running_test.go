package sim_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// A list is a stream of requests of one client at these times, which ignores all answers.
type list []time.Duration

func (l *list) Next() (traffic.Request, bool) {
	if len(*l) == 0 {
		return traffic.Request{}, false
	}
	at := (*l)[0]
	*l = (*l)[1:]
	return traffic.Request{At: at, First: at, Client: "c", Endpoint: "/", Cost: 1}, true
}

func (*list) Answer(bool, time.Duration) {}

func atOnce(n int, per time.Duration) ratelimit.Rule {
	return ratelimit.Rule{Name: "at once", Endpoint: "/", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: n, Per: per}}
}

// TestHold sends a request each second, of which two may run.
func TestHold(t *testing.T) {
	seconds := func() *list {
		var l list
		for i := range 10 {
			l = append(l, time.Duration(i)*time.Second)
		}
		return &l
	}
	for _, row := range []struct {
		why           string
		per, hold     time.Duration
		granted, most int
	}{
		{"each ends before the next comes", time.Minute, time.Second / 2, 10, 1},
		{"each ends as the next comes", time.Minute, time.Second, 10, 1},
		{"two run", time.Minute, 2 * time.Second, 10, 2},
		{"two of three run: at 0, 1, 3, 4, 6, 7, 9", time.Minute, 3 * time.Second, 7, 2},
		{"none ends", time.Minute, time.Hour, 2, 2},
		{"none ends, but each counts for 3 s", 3 * time.Second, time.Hour, 7, 2},
		{"all end at once", time.Minute, 0, 10, 1},
	} {
		bucket := ratelimit.Rule{Name: "tokens", Endpoint: "/", Unit: "tokens", Rate: ratelimit.PerDay(1000)}
		advises := ratelimit.Rule{Name: "advises", Endpoint: "/", Mode: ratelimit.ModeAdvise, Rate: ratelimit.PerDay(1)}
		unasked := ratelimit.Rule{Name: "bytes", Endpoint: "/", Unit: "bytes", Rate: ratelimit.PerDay(1)}
		out := run(t, ruled(atOnce(2, row.per), bucket, advises, unasked), seconds(), sim.Options{
			Start: time.Unix(0, 0), Duration: time.Minute, Hold: row.hold, Costs: []ratelimit.Cost{{Unit: "tokens", N: 7}},
		})
		require.Equal(t, []int{10, row.granted, 10 - row.granted, 10 - row.granted},
			[]int{out.Offered, out.Admitted, out.Denied, out.Busy}, row.why)
		require.Equal(t, []int{10, 10 - row.granted, row.most, 2},
			[]int{out.Rules[0].Asked, out.Rules[0].Denied, out.Rules[0].MaxGranted, out.Rules[0].Bound}, row.why)
		require.Equal(t, []int{10, 0, 7 * row.granted}, []int{out.Rules[1].Asked, out.Rules[1].Denied, out.Rules[1].MaxGranted}, row.why)
		require.Equal(t, 10, out.Rules[2].Asked, "once, though CheckAll lists it too: %s", row.why)
		require.Equal(t, 9, out.Rules[2].Denied, row.why)
		require.Zero(t, out.Rules[3].Asked)
	}
}

// TestHoldAgainstAModel compares random traffic with a list of what runs.
func TestHoldAgainstAModel(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		limit, hold := 1+r.IntN(4), time.Duration(1+r.IntN(50))
		var sent list
		at := time.Duration(0)
		for range 60 {
			at += time.Duration(r.IntN(20))
			sent = append(sent, at)
		}
		var ends []time.Duration
		granted := 0
		for _, at := range sent {
			ends = slices.DeleteFunc(ends, func(end time.Duration) bool { return end <= at })
			if len(ends) < limit {
				ends, granted = append(ends, at+hold), granted+1
			}
		}
		out := run(t, ruled(atOnce(limit, time.Minute)), &sent, sim.Options{Start: time.Unix(0, 0), Duration: time.Minute, Hold: hold})
		require.Equal(t, granted, out.Admitted)
	}
}
