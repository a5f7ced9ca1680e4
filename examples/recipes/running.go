package recipes

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// gatewayRules lets each client have two exports running, and get 50 answers an hour from the large model: further
// answers come from the small one.
func gatewayRules() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "exports", Endpoint: "/export", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 2, Per: time.Minute}},
		{Name: "large model", Endpoint: "/chat", Mode: ratelimit.ModeAdvise, Rate: ratelimit.PerHour(50)},
	}
}
