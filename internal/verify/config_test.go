package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configread"
)

// TestConfigMeans has configs of one rule, with all that is said of them: the rule, or the
// error.
func TestConfigMeans(t *testing.T) {
	type object = map[string]any
	rule := func(a ratelimit.Algorithm, requests int, per time.Duration, burst int) ratelimit.Rule {
		return ratelimit.Rule{Endpoint: "/", Algorithm: a, Rate: ratelimit.Rate{Requests: requests, Per: per, Burst: burst}}
	}
	token, window := rule("TokenBucket", 2, time.Second, 10), rule("FixedWindow", 5, time.Minute, 0)
	keyed := window
	keyed.Key = "ip+endpoint"
	for _, tt := range []struct {
		config object
		want   ratelimit.Rule
		err    string
	}{
		{object{"Algorithm": "TOKEN_BUCKET", "algo_config": object{"CAPACITY": 10, "refill-rate-per-second": 2}}, token, ""},
		{object{"policy": "TokenBucketLimiter", "config": object{"capacity": 10, "refillPerMs": 0.002}}, token, ""},
		{object{"algorithm": "GCRA", "capacity": 10, "requestsPerSecond": 2}, token, ""},
		{object{"algorithm": "FixedWindow", "rate": 5, "windowSeconds": 60}, window, ""},
		{object{"algorithm": "FixedWindow", "rate": "5/m", "keyType": []any{"Endpoint", "IP"}}, keyed, ""},
		{object{"algorithm": "FixedWindow", "rate": "5/m", "key": "ip", "KEY": "user"}, window, "config.KEY is \"user\": must not stand beside key: give one of them"},
		{object{"algorithm": "FixedWindow", "rate": "5/m", "Key": "ip", "keyType": "ip", "KEY": "ip"}, window,
			"config.Key is \"ip\": must not stand beside KEY: give one of them\nratelimit: config.keyType is \"ip\": must not stand beside KEY: give one of them"},
		{object{"algorithm": "FixedWindow", "algoConfig": object{"rate": "5/m"}, "limit": 5}, window, "config.limit is 5: unknown field; it belongs in algoConfig"},
		{object{"algorithm": "FixedWindow", "limit": 5, "window": "1m"}, window, `config.window is "1m": unknown field; did you mean rate: "5/m" in place of limit and window?`},
		{object{"algorithm": "FixedWindow", "limit": 5, "window": 60}, window, `config.window is 60: unknown field; did you mean "windowSeconds"?`},
		{object{"algorithm": "FixedWindow", "limit": 5, "rate": 5, "windowMs": 60}, window, `config.rate is 5: must not stand beside limit: give one of them`},
		{object{"policy": "closed", "rate": "5/m"}, window, `config.policy is "closed": unknown algorithm; did you mean onStoreError: "closed"?`},
		{object{"algorithm": "TokenBucket", "rate": "unlimited"}, window, `config.rate is "unlimited": must be a limit: only a tier, or Resolve, makes a request unlimited`},
		{object{"algorithm": "TokenBucket", "algoConfig": object{"rate": "unlimited"}}, window, `config.algoConfig.rate is "unlimited": must be a limit: only a tier, or Resolve, makes a request unlimited`},
		{object{"algorithm": "TokenBucket", "rate": "100/m burst=20"}, window, `config.rate is "100/m burst=20": must be written "100/m burst 20"`},
		{object{"algorithm": "Own", "limit": 5}, window, "config.limit is 5: unknown field; it belongs in algoConfig\nratelimit: config.algoConfig is missing: must be a map that says what the limit is"},
		{object{"algorithm": "Own", "algoConfig": object{"hours": "9", "huors": 8}}, window,
			"config.algoConfig.hours is \"9\": must be a number, not a string: drop the quotes\nratelimit: config.algoConfig.huors is 8: unknown field; did you mean \"hours\"?"},
	} {
		f := ratelimit.NewFactory()
		require.NoError(t, f.Register("Own", func(algoConfig map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
			c := configread.Read(algoConfig)
			c.Int("hours")
			return nil, c.Err()
		}))
		l, err := ratelimit.New(nil, nil, ratelimit.WithFactory(f))
		require.NoError(t, err)
		tt.config["endpoint"] = "/"
		err = l.SetConfig(tt.config)
		if tt.err != "" {
			require.EqualError(t, err, "ratelimit: "+tt.err)
			continue
		}
		require.NoError(t, err)
		rules, _, err := ratelimit.DecodeRules([]map[string]any{tt.config}, nil)
		require.NoError(t, err)
		require.Equal(t, []ratelimit.Rule{tt.want}, rules)
	}
}

// TestFactoryOptionsCount proves that the options of a Factory are taken, or refused.
func TestFactoryOptionsCount(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(0, 0))
	own := ratelimit.WithFactory(ratelimit.NewFactory(ratelimit.WithClock(clock), ratelimit.WithMaxKeys(7)))
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1)}, own)
	require.NoError(t, err)
	require.True(t, l.Allow("alice", "/").Allowed)
	require.False(t, l.Allow("alice", "/").Allowed)
	clock.Advance(time.Hour)
	require.True(t, l.Allow("alice", "/").Allowed)
	_, err = ratelimit.New(nil, nil, own, ratelimit.WithMaxKeys(8), ratelimit.WithClock(clock))
	require.EqualError(t, err, "ratelimit: factory.maxKeys is 7: must not differ from that of the limiter, which is 8")
	_, err = ratelimit.New(nil, nil, ratelimit.WithFactory(ratelimit.NewFactory(ratelimit.WithMaxKeys(0))))
	require.EqualError(t, err, "ratelimit: factory.maxKeys is 0: must be at least 1")
}
