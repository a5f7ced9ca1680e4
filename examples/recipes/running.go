package recipes

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// gatewayRules returns two rules. By the first, each client may have two exports running at the same time. The
// second denies nothing: it tells the handler when a client has had 50 answers in an hour from the large model,
// and the handler then answers with the small one.
func gatewayRules() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "exports", Endpoint: "/export", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 2, Per: time.Minute}},
		{Name: "large model", Endpoint: "/chat", Mode: ratelimit.ModeAdvise, Rate: ratelimit.PerHour(50)},
	}
}
