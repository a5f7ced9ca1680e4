package configread_test

import (
	"encoding/json"
	"fmt"

	"github.com/ratelimit-go/ratelimit/configread"
)

// A Reader reads numbers of any type that decoders make, and reports all problems at once,
// unknown fields too.
func ExampleRead() {
	var algoConfig map[string]any
	err := json.Unmarshal([]byte(`{"open_hour": 9, "pause": "1h30m", "rate": "100/m", "weekends": 1, "clsoe": 17}`), &algoConfig)
	if err != nil {
		panic(err)
	}
	config := configread.Read(algoConfig)
	fmt.Println(config.Int("openHour"), config.Duration("pause"), config.Rate("rate"))
	fmt.Println(config.Bool("weekends"), config.Int("close"), config.Has("zone"))
	fmt.Println(config.Err())
	// Output:
	// 9 1h30m0s 100/m
	// false 0 false
	// ratelimit: weekends is 1: must be true or false
	// ratelimit: clsoe is 17: unknown field; did you mean "close"?
}
