package verify

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestDrift takes all units that are available, a million times and more, at uneven
// instants that leave a fraction of a unit each time. In the end exactly the burst, and
// what the whole time has earned, must have been granted. A fraction that is lost or gained
// anywhere would show.
//
// The clock runs for a million Per, or at most for the 584 years around its start that a
// limiter can tell apart.
func TestDrift(t *testing.T) {
	periods := int64(scaled(1_000_000))
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []ratelimit.Rate{
				ratelimit.PerDay(1), ratelimit.PerSecond(3), ratelimit.PerDay(123457),
				ratelimit.PerSecond(7e8), ratelimit.PerSecond(1e9), ratelimit.PerSecond(count(3e9)),
			} {
				drift(t, a, r, periods)
			}
		})
	}
}

// mostBurst is the largest burst that a bucket accepts.
const mostBurst = math.MaxInt32

func drift(t *testing.T, a algorithm, r ratelimit.Rate, periods int64) {
	// A full bucket must never waste what is earned, so it needs room for what two steps
	// earn. A fast rate therefore needs several steps for each Per.
	steps := periods
	for 2*int64(r.Requests)*periods > mostBurst*steps {
		steps *= 2
	}
	length := new(big.Int).Mul(big.NewInt(int64(r.Per)), big.NewInt(periods))
	if all := new(big.Int).SetUint64(math.MaxUint64); length.Cmp(all) > 0 {
		length = all
	}
	step := new(big.Int).Div(length, big.NewInt(steps)).Int64()
	length = new(big.Int).Mul(big.NewInt(step), big.NewInt(steps))
	r.Burst = int(min(2*int64(r.Requests)+2, mostBurst))

	clock := &manualClock{starts[0]}
	l := a.start(t, r, ratelimit.WithClock(clock))
	random := rand.New(rand.NewPCG(1, 2))
	origin := starts[0].Add(math.MinInt64)
	admitted := int64(0)
	for i := range steps + 1 {
		// Each instant, except the first and the last, is moved by up to half a step.
		clock.now = origin
		if i > 0 && i < steps {
			clock.now = origin.Add(time.Duration(random.Int64N(step) - step/2))
		}
		origin = origin.Add(time.Duration(step))
		admitted += int64(greedy(t, l, "k"))
	}
	earned := div(mul(new(big.Rat).SetInt(length), rat(r.Requests)), rat(r.Per))
	off := sub(rat(admitted), floor(add(rat(r.Burst), earned)))
	t.Logf("%s, %d per %v: %d steps over %v ns, admitted %d, admitted - ideal = %s",
		a.name, r.Requests, r.Per, steps, length, admitted, off.RatString())
	require.Zero(t, off.Sign())
}
