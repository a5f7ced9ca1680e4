package ratelimit_test

import (
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// TestSixthAlgorithm runs the conformance kit on an algorithm that one file has
// added. It has no model; the promises that every limiter makes need none.
func TestSixthAlgorithm(t *testing.T) {
	ratelimittest.TestLimiter(t, ratelimittest.Config{
		New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
			return ratelimit.NewCooldown(r, ratelimit.WithClock(clock))
		},
		Span: 200 * 365 * 24 * time.Hour, // it keeps an instant of the future, which must be representable
	})
}
