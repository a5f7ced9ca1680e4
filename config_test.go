package ratelimit_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// fields is a config as encoding/json decodes it.
type fields = map[string]any

// ruleOf returns the config of a rule for "/a".
func ruleOf(algorithm any, algoConfig any) fields {
	return fields{"endpoint": "/a", "algorithm": algorithm, "algoConfig": algoConfig}
}

// with returns a copy of config with the fields of more added.
func with(config, more fields) fields {
	config = maps.Clone(config)
	maps.Copy(config, more)
	return config
}

// decoded returns the only rule that config describes.
func decoded(t *testing.T, config fields, opts ...ratelimit.Option) ratelimit.Rule {
	t.Helper()
	rules, defaultRule, err := ratelimit.DecodeRules([]fields{config}, nil, opts...)
	require.NoError(t, err)
	require.Nil(t, defaultRule)
	require.Len(t, rules, 1)
	return rules[0]
}

// refusal returns the text of the error that the config of one rule gives, without the path of the
// rule.
func refusal(t *testing.T, config fields) string {
	t.Helper()
	rules, defaultRule, err := ratelimit.DecodeRules([]fields{config}, nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.Nil(t, rules)
	require.Nil(t, defaultRule)
	return strings.ReplaceAll(err.Error(), "ratelimit: configs[0].", "")
}

// TestDecodeRule proves which Rule each form of a limit in a config gives.
func TestDecodeRule(t *testing.T) {
	bucket := fields{"capacity": 10, "refillRatePerSecond": 2}
	rate := func(requests int, per time.Duration, burst int) ratelimit.Rate {
		return ratelimit.Rate{Requests: requests, Per: per, Burst: burst}
	}
	rule := func(a ratelimit.Algorithm, r ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{Endpoint: "/a", Algorithm: a, Rate: r}
	}
	windowed := func(per time.Duration, w ratelimit.Window) ratelimit.Rule {
		return rule(ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: 5, Per: per, Window: w})
	}
	tiered := windowed(0, "month")
	tiered.Tiers = map[string]ratelimit.Rate{
		"a": {Requests: 7, Window: ratelimit.Monthly(9, "")}, "b": {Requests: 8, Window: ratelimit.Monthly(10, "")},
	}
	token := rule(ratelimit.AlgorithmTokenBucket, rate(2, sec, 10))
	full := token
	full.Name, full.Key, full.Mode, full.OnStoreError = "n", ratelimit.KeyUserEndpoint, ratelimit.ModeShadow, ratelimit.FailLocal(4)
	full.Tiers = map[string]ratelimit.Rate{"paid": rate(600, minute, 0), "free": rate(1, 2*sec, 5)}
	for _, tt := range []struct {
		why    string
		config fields
		want   ratelimit.Rule
	}{
		{"capacity and refill", ruleOf("TokenBucket", bucket), token},
		{"a leaky bucket refills by that name", ruleOf("LeakyBucket", bucket), rule(ratelimit.AlgorithmLeakyBucket, rate(2, sec, 10))},
		{"and by its own", ruleOf("LeakyBucket", fields{"capacity": 10, "leakRatePerSecond": 2}),
			rule(ratelimit.AlgorithmLeakyBucket, rate(2, sec, 10))},
		{"maxRequests and windowMs", ruleOf("FixedWindow", fields{"maxRequests": 5, "windowMs": 1500}),
			rule(ratelimit.AlgorithmFixedWindow, rate(5, 1500*ms, 0))},
		{"maxRequests and windowSeconds", ruleOf("FixedWindow", fields{"maxRequests": 5, "windowSeconds": 60}),
			rule(ratelimit.AlgorithmFixedWindow, rate(5, minute, 0))},
		{"limit and windowMs", ruleOf("SlidingWindowLog", fields{"limit": 5, "windowMs": 1}),
			rule(ratelimit.AlgorithmSlidingWindowLog, rate(5, ms, 0))},
		{"limit and windowSeconds", ruleOf("SlidingWindowCounter", fields{"limit": 5, "windowSeconds": 1}),
			rule(ratelimit.AlgorithmSlidingWindowCounter, rate(5, sec, 0))},
		{"a window of half a millisecond", ruleOf("FixedWindow", fields{"limit": 5, "windowMs": 0.5}),
			rule(ratelimit.AlgorithmFixedWindow, rate(5, 500*time.Microsecond, 0))},
		{"a window of a tenth of a second", ruleOf("FixedWindow", fields{"limit": 5, "windowSeconds": 0.1}),
			rule(ratelimit.AlgorithmFixedWindow, rate(5, 100*ms, 0))},
		{"a window of a nanosecond", ruleOf("FixedWindow", fields{"limit": 5, "windowMs": 0.000001}),
			rule(ratelimit.AlgorithmFixedWindow, rate(5, 1, 0))},
		{"the longest window", ruleOf("FixedWindow", fields{"limit": 5, "windowMs": json.Number("9223372036854.775807")}),
			rule(ratelimit.AlgorithmFixedWindow, rate(5, math.MaxInt64, 0))},
		{"a window for a bucket", ruleOf("TokenBucket", fields{"maxRequests": 5, "windowMs": 1000}),
			rule(ratelimit.AlgorithmTokenBucket, rate(5, sec, 0))},
		{"with a burst", ruleOf("TokenBucket", fields{"limit": 5, "windowMs": 1000, "burst": 7}),
			rule(ratelimit.AlgorithmTokenBucket, rate(5, sec, 7))},
		{"with a burstSize", ruleOf("LeakyBucket", fields{"limit": 5, "windowMs": 1000, "burstSize": 7}),
			rule(ratelimit.AlgorithmLeakyBucket, rate(5, sec, 7))},
		{"a rate", ruleOf("SlidingWindowCounter", fields{"rate": "100/m"}), rule(ratelimit.AlgorithmSlidingWindowCounter, rate(100, minute, 0))},
		{"a rate that has a burst", ruleOf("TokenBucket", fields{"rate": "100/m burst 20"}),
			rule(ratelimit.AlgorithmTokenBucket, rate(100, minute, 20))},
		{"a rate with a burst beside it", ruleOf("TokenBucket", fields{"rate": "100/m", "burst": 20}),
			rule(ratelimit.AlgorithmTokenBucket, rate(100, minute, 20))},
		{"a whole float is a count", ruleOf("FixedWindow", fields{"limit": 3.0, "windowMs": 1e3}),
			rule(ratelimit.AlgorithmFixedWindow, rate(3, sec, 0))},
		{"a month", ruleOf("FixedWindow", fields{"maxRequests": 5, "window": "month"}), windowed(0, "month")},
		{"a month of a zone, from a day", ruleOf("FixedWindow", fields{"limit": 5, "window": "month", "zone": "Europe/Berlin", "firstDay": 15}),
			windowed(0, "month from day 15 Europe/Berlin")},
		{"spellings", ruleOf("FixedWindow", fields{"limit": 5.0, "Window": "MONTH", "ZONE": "UTC", "first_day": 1.0}), windowed(0, "month")},
		{"a week of a zone", ruleOf("FixedWindow", fields{"limit": 5, "window": "week", "zone": "Asia/Tokyo"}), windowed(0, "week Asia/Tokyo")},
		{"from the first use, in seconds", ruleOf("FixedWindow", fields{"limit": 5, "windowSeconds": 60, "window": "first"}),
			windowed(minute, "first")},
		{"from the first use, in milliseconds", ruleOf("FixedWindow", fields{"limit": 5, "windowMs": 1500, "window": "First"}),
			windowed(1500*ms, "first")},
		{"a day without a zone is of the calendar, as a field", ruleOf("FixedWindow", fields{"limit": 5, "window": "day"}), windowed(0, "day")},
		{"and is 24 hours in a text", ruleOf("FixedWindow", fields{"rate": "5/day"}), windowed(24*time.Hour, "")},
		{"a text with a zone", ruleOf("FixedWindow", fields{"rate": "5/month from day 2 UTC"}), windowed(0, "month from day 2")},
		{"a text from the first use", ruleOf("FixedWindow", fields{"rate": "5/h from first"}), windowed(time.Hour, "first")},
		{"a tier with another day", with(ruleOf("FixedWindow", fields{"rate": "5/month"}), fields{"tiers": fields{
			"a": "7/month from day 9", "b": fields{"limit": 8, "window": "month", "firstDay": 10}}}), tiered},
		{"the largest log", ruleOf("SlidingWindowLog", fields{"rate": "65536/m"}),
			rule(ratelimit.AlgorithmSlidingWindowLog, rate(65536, minute, 0))},
		{"a map of an old YAML decoder", ruleOf("TokenBucket", map[any]any{"capacity": 10, "refillRatePerSecond": 2}), token},
		{"a map of a named type", ruleOf("TokenBucket", namedMap(bucket)), token},
		{"strings of named types", ruleOf(ratelimit.AlgorithmTokenBucket, bucket), token},
		{"an empty name is none", with(ruleOf("TokenBucket", bucket), fields{"name": ""}), token},
		{"no tiers", with(ruleOf("TokenBucket", bucket), fields{"tiers": fields{}}), token},
		{"all fields", with(ruleOf("TokenBucket", bucket), fields{
			"name": "n", "key": "user_endpoint", "mode": "shadow", "onStoreError": "local:4",
			"tiers": map[any]any{"paid": "600/m", "free": fields{"capacity": 5, "refillRatePerSecond": 0.5}},
		}), full},
	} {
		t.Run(tt.why, func(t *testing.T) { require.Equal(t, tt.want, decoded(t, tt.config)) })
	}
}

type namedMap map[string]any

// TestDecodeNames proves that each spelling of a field or an algorithm gives the same rule.
func TestDecodeNames(t *testing.T) {
	rule := func(a ratelimit.Algorithm, requests int, per time.Duration, burst int) ratelimit.Rule {
		return ratelimit.Rule{Endpoint: "/a", Algorithm: a, Rate: ratelimit.Rate{Requests: requests, Per: per, Burst: burst}}
	}
	token, window := rule("TokenBucket", 2, sec, 10), rule("FixedWindow", 5, minute, 0)
	keyed := func(key ratelimit.KeyType) ratelimit.Rule {
		r := window
		r.Key = key
		return r
	}
	flat := func(more fields) fields {
		return with(fields{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "5/m"}, more)
	}
	for _, tt := range []struct {
		why    string
		config fields
		want   ratelimit.Rule
	}{
		{"upper case", fields{"ENDPOINT": "/a", "ALGORITHM": "TOKEN_BUCKET", "ALGO_CONFIG": fields{"CAPACITY": 10, "REFILL_RATE_PER_SECOND": 2}},
			token},
		{"lower case", fields{"endpoint": "/a", "algorithm": "token_bucket", "algo_config": fields{"capacity": 10, "refill_rate_per_second": 2}},
			token},
		{"dashes", fields{"Endpoint": "/a", "Algorithm": "token-bucket", "algo-config": fields{"capacity": 10, "refill-rate-per-second": 2}},
			token},
		{"policy and config", fields{"endpoint": "/a", "policy": "TokenBucket", "config": fields{"capacity": 10, "requestsPerSecond": 2}}, token},
		{"strategy and algorithmConfig", fields{"endpoint": "/a", "strategy": "GCRA",
			"algorithmConfig": fields{"capacity": 10, "refillRatePerSecond": 2}}, token},
		{"a refill per millisecond", ruleOf("TokenBucketLimiter", fields{"capacity": 10, "refillPerMs": 0.002}), token},
		{"which may be whole", ruleOf("leaky_bucket_limiter", fields{"capacity": 10, "refill_per_ms": 2}), rule("LeakyBucket", 2000, sec, 10)},
		{"flat fields of a bucket", fields{"endpoint": "/a", "algorithm": "TokenBucket", "capacity": 10, "refill_rate_per_second": 2}, token},
		{"flat fields with a burst", fields{"endpoint": "/a", "algorithm": "TokenBucket", "rate": "2/s", "burst": 10}, token},
		{"flat fields of a window", fields{"endpoint": "/a", "algorithm": "FIXED_WINDOW", "max_requests": 5, "window_ms": 60_000}, window},
		{"requestsPerWindow", ruleOf("FixedWindowCounter", fields{"requestsPerWindow": 5, "windowSeconds": 60}), window},
		{"a number for a rate beside a window", ruleOf("FixedWindow", fields{"rate": 5, "window_seconds": 60}), window},
		{"a number for a flat rate", fields{"endpoint": "/a", "algorithm": "FixedWindowLimiter", "Rate": 5.0, "windowMs": 60_000}, window},
		{"keyType", flat(fields{"keyType": "ip"}), keyed(ratelimit.KeyIP)},
		{"a key of parts", flat(fields{"key": "Endpoint + IP"}), keyed(ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyEndpoint))},
		{"a list of parts", flat(fields{"key": []any{"ip", "endpoint"}}), keyed("ip+endpoint")},
		{"a list of texts", flat(fields{"key": []string{"user", "endpoint"}}), keyed(ratelimit.KeyUserEndpoint)},
		{"an attribute, whose case is kept", flat(fields{"key": "ATTR:Tenant_ID+user"}), keyed("attr:Tenant_ID+user")},
		{"an attribute in a list", flat(fields{"key": []any{"user", "attr:tenant"}}),
			keyed(ratelimit.KeyOf(ratelimit.KeyAttr("tenant"), ratelimit.KeyUser))},
		{"a map of numbers", ruleOf("FixedWindow", map[string]int{"limit": 5, "windowMs": 60_000}), window},
		{"a map of texts", ruleOf("FixedWindow", map[string]string{"rate": "5/m"}), window},
	} {
		t.Run(tt.why, func(t *testing.T) { require.Equal(t, tt.want, decoded(t, tt.config)) })
	}
	tiers := map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600), "staff": ratelimit.Unlimited, "free": ratelimit.PerMinute(1)}
	for _, config := range []any{
		map[string]string{"paid": "600/m", "staff": "unlimited", "free": "1/m"},
		fields{"paid": "600/m", "staff": fields{"rate": " unlimited "}, "free": map[string]int{"limit": 1, "window_seconds": 60}},
	} {
		r := decoded(t, flat(fields{"Tiers": config, "additional": true}))
		require.Equal(t, tiers, r.Tiers)
		require.True(t, r.Additional)
	}
	_, err := ratelimit.NewFromConfig(nil, flat(fields{"endpoint": ""}))
	require.NoError(t, err, "a flat default rule")
	l, err := ratelimit.NewFactory().Create(fields{"algorithm": "token_bucket", "capacity": 3, "refillRatePerSecond": 1})
	require.NoError(t, err, "a flat config of a limiter")
	require.Equal(t, 3, l.Allow("key").Limit)
	_, err = ratelimit.NewFactory().Create(fields{"algorithm": "FixedWindow", "limit": 5, "window": "1m"})
	require.EqualError(t, err, `ratelimit: window is "1m": unknown field; did you mean rate: "5/m" in place of limit and window?`)
	_, err = ratelimit.NewFactory().Create(fields{"algorithm": "TokenBucket", "burst": 5})
	require.EqualError(t, err, "ratelimit: config is a map: must have capacity and refillRatePerSecond, or maxRequests and windowMs, or rate")
	_, _, err = ratelimit.DecodeRules([]fields{{"endpoint": "/a", "algorithm": "Custom", "limit": 5, "endpiont": "/b"}}, nil, withCustom(t))
	require.EqualError(t, err, `ratelimit: configs[0].endpiont is "/b": unknown field; did you mean "endpoint"?`+"\n"+
		"ratelimit: configs[0].limit is 5: unknown field; it belongs in algoConfig\n"+
		"ratelimit: configs[0].algoConfig is missing: must be a map that says what the limit is", "a custom algorithm has no flat fields")
}

// TestDecodeChoices proves which spellings of a key, a mode and a failure policy are accepted.
func TestDecodeChoices(t *testing.T) {
	config := ruleOf("TokenBucket", fields{"rate": "1/s"})
	for want, spellings := range map[ratelimit.KeyType][]string{
		ratelimit.KeyUser:         {"user", "USER", "User"},
		ratelimit.KeyEndpoint:     {"endpoint", "ENDPOINT"},
		ratelimit.KeyUserEndpoint: {"user_endpoint", "USER_ENDPOINT", "user-endpoint", "UserEndpoint", "userEndpoint"},
		ratelimit.KeyIP:           {"ip", "IP"},
		ratelimit.KeyGlobal:       {"global", "GLOBAL"},
	} {
		for _, s := range spellings {
			require.Equal(t, want, decoded(t, with(config, fields{"key": s})).Key, s)
		}
	}
	for s, want := range map[string]ratelimit.Mode{"enforce": ratelimit.ModeEnforce, "shadow": ratelimit.ModeShadow,
		"SHADOW": ratelimit.ModeShadow} {
		require.Equal(t, want, decoded(t, with(config, fields{"mode": s})).Mode, s)
	}
	for s, want := range map[string]ratelimit.FailurePolicy{
		"open": ratelimit.FailOpen, "closed": ratelimit.FailClosed, "local": ratelimit.FailLocal(1),
		"local:1": ratelimit.FailLocal(1), "local:4": ratelimit.FailLocal(4), "local:2147483647": ratelimit.FailLocal(math.MaxInt32),
	} {
		require.Equal(t, want, decoded(t, with(config, fields{"onStoreError": s})).OnStoreError, s)
	}
}

// TestDecodeAlgorithmNames proves which names each algorithm has.
func TestDecodeAlgorithmNames(t *testing.T) {
	for want, names := range map[ratelimit.Algorithm][][]string{
		ratelimit.AlgorithmTokenBucket:          {{"Token", "Bucket"}},
		ratelimit.AlgorithmLeakyBucket:          {{"Leaky", "Bucket"}},
		ratelimit.AlgorithmFixedWindow:          {{"Fixed", "Window"}, {"Fixed", "Window", "Counter"}},
		ratelimit.AlgorithmSlidingWindowLog:     {{"Sliding", "Window", "Log"}, {"Sliding", "Log"}},
		ratelimit.AlgorithmSlidingWindowCounter: {{"Sliding", "Window", "Counter"}, {"Sliding", "Counter"}},
	} {
		for _, words := range names {
			camel := strings.Join(words, "")
			snake := strings.ToLower(strings.Join(words, "_"))
			for _, spelling := range []string{
				camel, strings.ToLower(camel[:1]) + camel[1:], strings.ToLower(camel),
				snake, strings.ToUpper(snake), strings.ReplaceAll(snake, "_", "-"), strings.ToUpper(strings.ReplaceAll(snake, "_", "-")),
			} {
				config := ruleOf(spelling, fields{"rate": "1/s"})
				require.Equal(t, want, decoded(t, config).Algorithm, spelling)
				_, err := new(ratelimit.Factory).Create(config)
				require.NoError(t, err, spelling)
			}
		}
	}
	for _, spelling := range []string{"Token Bucket", "to\u212aen_bucket", "TokenBucket\x00", "TokenBucket" + strings.Repeat("-", 1000)} {
		require.Contains(t, refusal(t, ruleOf(spelling, fields{"rate": "1/s"})), "unknown algorithm", "%q", spelling)
	}
}

// TestDecodeNumbers proves which types and values of numbers are accepted.
func TestDecodeNumbers(t *testing.T) {
	type named int16
	for _, v := range []any{
		100, int8(100), int16(100), int32(100), int64(100),
		uint(100), uint8(100), uint16(100), uint32(100), uint64(100),
		float32(100), float64(100), named(100),
		json.Number("100"), json.Number("100.0"), json.Number("1e2"), json.Number("1E+02"), json.Number("10000e-2"), json.Number("0.1e3"),
	} {
		r := decoded(t, ruleOf("TokenBucket", fields{"capacity": v, "refillRatePerSecond": v}))
		require.Equal(t, ratelimit.PerSecond(100).WithBurst(100), r.Rate, "%T %v", v, v)
		r = decoded(t, ruleOf("TokenBucket", fields{"maxRequests": v, "windowMs": v, "burst": v}))
		require.Equal(t, ratelimit.Rate{Requests: 100, Per: 100 * ms, Burst: 100}, r.Rate, "%T %v", v, v)
	}
	for _, v := range []any{math.MaxInt, int64(math.MaxInt), uint64(math.MaxInt), uint(math.MaxInt), json.Number(strconv.Itoa(math.MaxInt))} {
		r := decoded(t, ruleOf("FixedWindow", fields{"limit": v, "windowMs": 1}))
		require.Equal(t, ratelimit.Rate{Requests: math.MaxInt, Per: ms}, r.Rate, "%T", v)
	}
	const whole = "must be a whole number, at least 1"
	most := "must be at most " + strconv.Itoa(math.MaxInt)
	for _, tt := range []struct {
		value any
		shown string
		want  string
		why   string
	}{
		{math.NaN(), "NaN", whole, "no number"},
		{math.Inf(1), "+Inf", whole, "no end"},
		{math.Inf(-1), "-Inf", whole, "no beginning"},
		{float32(math.Inf(1)), "+Inf", whole, "a small float without end"},
		{math.Copysign(0, -1), "-0", "must be at least 1", "zero below zero"},
		{int8(-128), "-128", "must be at least 1", "the least int8"},
		{int64(math.MinInt64), "-9223372036854775808", "must be at least 1", "the least int64"},
		{uint64(math.MaxUint64), "18446744073709551615", most, "beyond any int"},
		{float32(3.7), "3.7", whole, "a float32 means its shortest decimal"},
		{1e300, "1e300", most, "beyond any int"},
		{math.SmallestNonzeroFloat64, "5e-324", whole, "next to nothing"},
		{json.Number(""), `""`, whole, "an empty number"},
		{json.Number("0x10"), `"0x10"`, whole, "not decimal"},
		{json.Number("1e"), `"1e"`, whole, "no exponent"},
		{json.Number("1e+-2"), `"1e+-2"`, whole, "two signs"},
		{json.Number("1."), `"1."`, whole, "no decimals"},
		{json.Number(".5"), `".5"`, whole, "nothing before the point"},
		{json.Number("--5"), `"--5"`, whole, "twice negative"},
		{json.Number("NaN"), `"NaN"`, whole, "a json.Number of a careless hand"},
		{json.Number("0e999999999999"), "0", "must be at least 1", "zero with an exponent"},
		{time.Second, "1s", whole, "a time.Duration has a unit of its own"},
		{complex(1, 0), "a complex128", whole, "not on the line"},
		{new(int), "a *int", whole, "a pointer"},
		{uintptr(1), "a uintptr", whole, "an address"},
		{[]any{1}, "a list", whole, "a list"},
		{[1]int{1}, "a list", whole, "an array"},
		{fields{}, "a map", whole, "a map"},
		{fields(nil), "nil", whole, "a nil map"},
		{nil, "nil", whole, "nothing"},
		{true, "true", whole, "a truth"},
		{struct{}{}, "a struct {}", whole, "a struct"},
		{func() {}, "a func()", whole, "code"},
		{"5", `"5"`, "must be a number, not a string: drop the quotes", "a number in quotes"},
		{"five", `"five"`, whole, "a word"},
	} {
		require.NotEmpty(t, tt.why)
		require.Equal(t, "algoConfig.limit is "+tt.shown+": "+tt.want,
			refusal(t, ruleOf("FixedWindow", fields{"limit": tt.value, "windowMs": 1})), tt.why)
	}
}

// TestDecodeFractions proves which fractions are accepted, and which rate the error for another one
// suggests.
func TestDecodeFractions(t *testing.T) {
	third := func(fraction, rate string) string {
		return "must be exact, and is " + fraction +
			" rounded: give rate: \"" + rate + "\" and burst in place of capacity and refillRatePerSecond"
	}
	const (
		tooMany = "must be smaller: it is beyond what can be counted"
		tooSlow = "must be larger: one unit would take more than 292 years"
		tooFine = "must have fewer decimals: they take a count, or a time, beyond what can be counted"
	)
	long := json.Number("0." + strings.Repeat("6", 1000) + "7")
	for _, tt := range []struct {
		value any
		rate  string // or
		want  string
		why   string
	}{
		{1, "1/s", "", "whole"},
		{0.1, "1/10s", "", "a tenth is exactly a tenth"},
		{2.5, "5/2s", "", "reduced"},
		{1e-3, "1/1000s", "", "an exponent"},
		{float32(0.1), "1/10s", "", "a float32 means its shortest decimal as well"},
		{json.Number("0.10"), "1/10s", "", "a zero more"},
		{json.Number("250e-2"), "5/2s", "", "an exponent that is not needed"},
		{0.333, "333/1000s", "", "three places are what somebody wrote"},
		{0.333333333, "333333333/1000000000s", "", "so are nine"},
		{0.0009765625, "1/1024s", "", "ten places, but exact"},
		{0.0000152587890625, "1/65536s", "", "sixteen places, but exact"},
		{1e-9, "1/1000000000s", "", "one in 31 years"},
		{json.Number("0.0000000002"), "1/5000000000s", "", "one in 158 years"},
		{1000000.5, "2000001/2s", "", "large and not whole"},
		{0.3333333333333333, "", third("1/3", "1/3s"), "a third"},
		{0.3333333333, "", third("1/3", "1/3s"), "a third in ten places"},
		{0.6666666666666666, "", third("2/3", "2/3s"), "two thirds"},
		{1.6666666666666667, "", third("5/3", "5/3s"), "a hundred a minute"},
		{33.333333333333336, "", third("100/3", "100/3s"), "the last place of a float is no decimal's"},
		{3333.3333333333335, "", third("10000/3", "10000/3s"), "a larger one"},
		{0.016666666666666666, "", third("1/60", "1/m"), "one a minute"},
		{1.0 / 3600, "", third("1/3600", "1/h"), "one an hour"},
		{1.0 / 86400, "", third("1/86400", "1/d"), "one a day"},
		{1000.0 / 86400, "", third("5/432", "5/432s"), "a thousand a day"},
		{1.0 / 999, "", third("1/999", "1/999s"), "a denominator of three digits"},
		{float32(1) / 3, "", third("1/3", "1/3s"), "a third as a float32"},
		{json.Number("0.33333333333333333333"), "", third("1/3", "1/3s"), "more places than a float has"},
		{long, "", third("2/3", "2/3s"), "a thousand places"},
		{0.12345678901234567, "", tooFine, "no fraction that one would know"},
		{json.Number("0.1" + strings.Repeat("0", 100) + "1"), "", third("1/10", "1/10s"), "nearly a tenth, but not exactly"},
		{1e-10, "", tooSlow, "one in 317 years"},
		{5e-324, "", tooSlow, "the smallest float"},
		{1e308, "", tooMany, "the largest power of ten in a float"},
		{json.Number("1e400"), "", tooMany, "beyond a float"},
		{json.Number("1e999999999"), "", tooMany, "not worked out"},
		{json.Number("1e-999999999"), "", tooSlow, "not worked out"},
		{json.Number("1e28"), "", tooMany, "beyond an int a nanosecond"},
		{json.Number("123456789012345678901234567.5"), "", tooFine, "large and not whole"},
	} {
		require.NotEmpty(t, tt.why)
		config := ruleOf("TokenBucket", fields{"capacity": 10, "refillRatePerSecond": tt.value})
		if tt.want == "" {
			rate, err := ratelimit.ParseRate(tt.rate)
			require.NoError(t, err)
			require.Equal(t, rate.WithBurst(10), decoded(t, config).Rate, tt.why)
			continue
		}
		_, got, _ := strings.Cut(refusal(t, config), ": ")
		require.Equal(t, tt.want, got, tt.why)
	}
	largest := decoded(t, ruleOf("TokenBucket", fields{"capacity": 10,
		"refillRatePerSecond": json.Number(strconv.Itoa(math.MaxInt) + "000000000")})).Rate
	require.Equal(t, ratelimit.Rate{Requests: math.MaxInt, Per: 1, Burst: 10}, largest, "what a second does not hold, a nanosecond may")
}

// TestDecodeDefault proves that the default rule is decoded too.
func TestDecodeDefault(t *testing.T) {
	config := fields{"algorithm": "FixedWindow", "algoConfig": fields{"rate": "5/m"}}
	rules, defaultRule, err := ratelimit.DecodeRules(nil, config)
	require.NoError(t, err)
	require.Nil(t, rules)
	require.Equal(t, &ratelimit.Rule{Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(5)}, defaultRule)
}

// TestDecodeOptions proves that wrong options and wrong rules are reported together.
func TestDecodeOptions(t *testing.T) {
	configs := []fields{ruleOf("TokenBucket", fields{"rate": "0/s"})}
	_, _, err := ratelimit.DecodeRules(configs, nil, ratelimit.WithMaxKeys(0), nil)
	require.EqualError(t, err,
		"ratelimit: configs[0].algoConfig.rate is \"0/s\": its count must be a whole number from 1 to "+strconv.Itoa(math.MaxInt)+
			"\nratelimit: maxKeys is 0: must be at least 1\nratelimit: options[1] is <nil>: must not be nil")
}

// TestDecodeCopiesItsInput proves that decoded rules do not change when the caller later changes
// the maps.
func TestDecodeCopiesItsInput(t *testing.T) {
	construct := func() (configs []fields, defaultConfig fields) {
		f := with(ruleOf("TokenBucket", fields{"capacity": 5, "refillRatePerSecond": 1}), fields{
			"name": "n", "tiers": fields{"paid": "600/m", "free": fields{"rate": "1/s"}},
		})
		g := ruleOf("custom", fields{"list": []any{fields{"x": 1}, "y"}, "map": map[any]any{1: []int{2}}})
		g["endpoint"] = "/b"
		return []fields{f, g}, fields{"algorithm": "FixedWindow", "algoConfig": fields{"rate": "5/m"}}
	}
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Custom", func(algoConfig fields, _ ratelimit.Env) (ratelimit.Limiter, error) {
		clear(algoConfig["list"].([]any)[0].(fields)) // a BuildFunc may change its copy
		return sameLimiter{}, nil
	}))
	configs, defaultConfig := construct()
	rules, defaultRule, err := ratelimit.DecodeRules(configs, defaultConfig, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	wantConfigs, wantDefault := construct()
	require.Equal(t, wantConfigs, configs, "the input is unchanged")
	require.Equal(t, wantDefault, defaultConfig)

	want := slices.Clone(rules)
	want[0].Tiers = maps.Clone(want[0].Tiers)
	wantCustom := wantConfigs[1]["algoConfig"]
	configs[0]["tiers"].(fields)["paid"] = "1/s"
	configs[1]["algoConfig"].(fields)["list"].([]any)[0].(fields)["x"] = 2
	configs[1]["algoConfig"].(fields)["map"].(map[any]any)[1].([]int)[0] = 3
	clear(configs[0])
	clear(defaultConfig)
	require.Equal(t, want, rules)
	require.Equal(t, ratelimit.PerMinute(5), defaultRule.Rate)
	custom, l := ratelimit.CustomOf(rules[1])
	require.Equal(t, wantCustom, custom)
	require.Equal(t, rules[1].Limiter, l)
}

// TestDecodeSharedErrorsAreFound proves that errors.As finds a ConfigError in the error of
// DecodeRules.
func TestDecodeSharedErrorsAreFound(t *testing.T) {
	_, _, err := ratelimit.DecodeRules([]fields{ruleOf("TokenBucket", fields{"capacity": 0, "refillRatePerSecond": 1})}, nil)
	var field *ratelimit.ConfigError
	require.ErrorAs(t, err, &field)
	assert.Equal(t, &ratelimit.ConfigError{Field: "configs[0].algoConfig.capacity", Value: "0", Reason: "must be at least 1"}, field)
}

// TestDecodeBeyond32Bits proves which counts above 32 bits are refused.
func TestDecodeBeyond32Bits(t *testing.T) {
	if strconv.IntSize == 32 {
		t.Skip("no such int")
	}
	for _, tt := range []struct {
		config fields
		want   string
		why    string
	}{
		{fields{"capacity": int64(4294967296), "refillRatePerSecond": 1}, "algoConfig.capacity is 4294967296: must be at most 4294967295",
			"the capacity is the burst"},
		{fields{"limit": int64(4294967296), "windowMs": 1}, "algoConfig.limit is 4294967296: must be at most 4294967295 without a burst",
			"the limit is the burst"},
		{fields{"rate": "1/s", "burstSize": int64(4294967296)}, "algoConfig.burstSize is 4294967296: must be at most 4294967295", "the burst"},
		{fields{"rate": "1/s burst 4294967296"}, `algoConfig.rate is "1/s burst 4294967296": must be at most 4294967295`, "the burst of a rate"},
	} {
		require.Equal(t, tt.want, refusal(t, ruleOf("TokenBucket", tt.config)), tt.why)
	}
}

// A sameLimiter is a custom limiter that no test calls.
type sameLimiter struct{ ratelimit.Limiter }

// TestRuleDecodes proves that a []Rule can be decoded from JSON, and from YAML by decoders that
// call UnmarshalYAML, and that fields which DecodeRules refuses are refused there too.
func TestRuleDecodes(t *testing.T) {
	const document = `[
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": {"capacity": 1000, "refillRatePerSecond": 0.1}},
		{"Endpoint": "/login", "Key": ["ip", "endpoint"], "Mode": "Shadow", "Algorithm": "sliding_log", "rate": "5/m",
			"Tiers": {"paid": "20/m"}, "OnStoreError": "local:4", "Additional": true},
		{"Name": "Go", "Rate": "2147483647/h"}
	]`
	want := []ratelimit.Rule{
		{Endpoint: "/search", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.Rate{Requests: 1, Per: 10 * sec, Burst: 1000}},
		{Endpoint: "/login", Key: "ip+endpoint", Mode: ratelimit.ModeShadow, Algorithm: ratelimit.AlgorithmSlidingWindowLog,
			Rate:  ratelimit.PerMinute(5),
			Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(20)}, OnStoreError: ratelimit.FailLocal(4), Additional: true},
		{Name: "Go", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerHour(math.MaxInt32)},
	}
	var rules []ratelimit.Rule
	require.NoError(t, json.Unmarshal([]byte(document), &rules))
	require.Equal(t, want, rules)
	again, err := json.Marshal(rules)
	require.NoError(t, err)
	var back []ratelimit.Rule
	require.NoError(t, json.Unmarshal(again, &back))
	require.Equal(t, want, back, "%s", again)
	var configs []fields
	require.NoError(t, json.Unmarshal(again, &configs))
	back, _, err = ratelimit.DecodeRules(configs, nil)
	require.NoError(t, err, "what MarshalJSON writes is a config")
	require.Equal(t, want, back)

	for _, tt := range []struct {
		config any
		want   string
		why    string
	}{
		{fields{"endpoint": "/a", "algorithm": "TokenBucket", "algoConfig": fields{"capacity": 0}, "limits": 5},
			`ratelimit: rules["/a"].limits is 5: unknown field` + "\n" +
				`ratelimit: rules["/a"].algoConfig.refillRatePerSecond is missing: must be given beside capacity` + "\n" +
				`ratelimit: rules["/a"].algoConfig.capacity is 0: must be at least 1`, "problems of a config"},
		{fields{"NAME": "n", "endpoint": "/a", "rate": "5/m", "onStoreError": "shut"},
			`ratelimit: rules["n"].onStoreError is "shut": must be "open", "closed", "local" or, of 4 replicas, "local:4"`, "the name comes first"},
		{fields{"algorithm": "FixedWindow", "rate": "5/m burst 7"},
			`ratelimit: rule.rate is "5/m burst 7": must have no burst: FixedWindow has none`, "a default rule"},
		{fields{"endpoint": "/a", "algorithm": "Custom", "algoConfig": fields{}},
			`ratelimit: rules["/a"].algorithm is "Custom": unknown algorithm: must be one of "FixedWindow", "InFlight", "LeakyBucket", ` +
				`"SlidingWindowCounter", "SlidingWindowLog", "TokenBucket"`, "custom algorithms need a Factory"},
		{fields{"endpoint": "a*b", "rate": "5/m"}, `ratelimit: rules["a*b"].endpoint is "a*b": must have a "*" at the end only`,
			"what no rule may have"},
		{fields{"endpoint": "/a", "rate": "70000/m", "algorithm": "SlidingWindowLog"},
			`ratelimit: rules["/a"].rate is "70000/m": must be at most 65536: each is stored; a sliding window counter has no such bound`,
			"what no log may have"},
		{nil, "ratelimit: rule is nil: must be a map that has algorithm and algoConfig", "null"},
	} {
		text, err := json.Marshal([]any{tt.config})
		require.NoError(t, err)
		kept := []ratelimit.Rule{{Name: "before"}}
		require.EqualError(t, json.Unmarshal(text, &kept), tt.want, tt.why)
		r := ratelimit.Rule{Name: "before"}
		err = r.UnmarshalYAML(func(v any) error {
			text, err := json.Marshal(tt.config)
			require.NoError(t, err)
			return json.Unmarshal(text, v)
		})
		require.EqualError(t, err, tt.want, tt.why)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Equal(t, ratelimit.Rule{Name: "before"}, r, "it stays as it was")
	}
	require.Error(t, json.Unmarshal([]byte(`[[]]`), &rules))
	var r ratelimit.Rule
	require.ErrorIs(t, r.UnmarshalYAML(func(any) error { return errTenant }), errTenant)
	require.NoError(t, r.UnmarshalYAML(func(v any) error { // as older YAML decoders call it
		*v.(*map[string]any) = fields{"endpoint": "/a", "algoConfig": map[any]any{"limit": 5, "windowSeconds": 60}}
		return nil
	}))
	require.Equal(t, ratelimit.Rule{Endpoint: "/a", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(5)}, r)
}

// TestRuleMarshals proves what JSON a Rule gives, and which rules give an error because code has
// set a part of them.
func TestRuleMarshals(t *testing.T) {
	r := ratelimit.Rule{Endpoint: "/a", Rate: ratelimit.PerSecond(1), Tiers: map[string]ratelimit.Rate{"staff": ratelimit.Unlimited}}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"endpoint":"/a","algorithm":"TokenBucket","algoConfig":{"rate":"1/s"},"tiers":{"staff":"unlimited"}}`, string(text))
	r.Limiter = sameLimiter{}
	_, err = json.Marshal(r)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, `ratelimit: rules["/a"] is a rule with code: must have no Resolve and no Limiter to be written as JSON`)
	r.Limiter, r.Resolve = nil, func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{}, false }
	_, err = json.Marshal(r)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, err = json.Marshal(ratelimit.Rule{Name: "n"})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "a rate that no text can say")

	made := decoded(t, ruleOf("Custom", fields{"x": []any{1, "y"}}), withCustom(t))
	text, err = json.Marshal(made)
	require.NoError(t, err)
	require.JSONEq(t, `{"endpoint":"/a","algorithm":"Custom","algoConfig":{"x":[1,"y"]}}`, string(text))
}

// TestTexts proves that the types of a rule that are read from text accept known values, and refuse
// others.
func TestTexts(t *testing.T) {
	type all struct {
		Key       ratelimit.KeyType
		Mode      ratelimit.Mode
		Algorithm ratelimit.Algorithm
		Policy    ratelimit.FailurePolicy
		Rate      ratelimit.Rate
	}
	for _, tt := range []struct {
		text string
		want all
		err  string
		why  string
	}{
		{`{"Key": "IP + attr:Tenant", "Mode": "SHADOW", "Algorithm": "GCRA", "Policy": "local", "Rate": "100/m burst 20"}`,
			all{"attr:Tenant+ip", ratelimit.ModeShadow, ratelimit.AlgorithmTokenBucket, ratelimit.FailLocal(1),
				ratelimit.PerMinute(100).WithBurst(20)}, "", "all of them"},
		{`{"Key": "", "Mode": "", "Algorithm": "", "Policy": "inherit"}`, all{}, "", "nothing"},
		{`{"Policy": "local:4"}`, all{Policy: ratelimit.FailLocal(4)}, "", "four replicas"},
		{`{"Key": "tenant"}`, all{}, `ratelimit: key is "tenant": must be one of "user", "endpoint", "user_endpoint", "ip", "global", ` +
			`"attr:NAME", or several of them joined by "+"`, "an unknown key"},
		{`{"Mode": "off"}`, all{}, `ratelimit: mode is "off": must be one of "enforce", "shadow", "advise"`, "an unknown mode"},
		{`{"Mode": "` + strings.Repeat("-", 101) + `"}`, all{}, `ratelimit: mode is "` +
			strings.Repeat("-", 55) + `...": must be one of "enforce", "shadow", "advise"`, "a long mode"},
		{`{"Algorithm": "Bucket"}`, all{}, `ratelimit: algorithm is "Bucket": must be one of "FixedWindow", "InFlight", "LeakyBucket", ` +
			`"SlidingWindowCounter", "SlidingWindowLog", "TokenBucket"`, "an unknown algorithm"},
		{`{"Policy": "shut"}`, all{}, `ratelimit: failurePolicy is "shut": must be "open", "closed", "local" or, of 4 replicas, "local:4"`,
			"an unknown policy"},
		{`{"Policy": "local:0"}`, all{}, `ratelimit: failurePolicy is "local:0": must have at least 1 replica`, "no replica"},
		{`{"Rate": "100/m burst=20"}`, all{}, `ratelimit: rate is "100/m burst=20": must be written "100/m burst 20"`, "another form"},
	} {
		var got all
		err := json.Unmarshal([]byte(tt.text), &got)
		if tt.err != "" {
			require.EqualError(t, err, tt.err, tt.why)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
		} else {
			require.NoError(t, err, tt.why)
		}
		require.Equal(t, tt.want, got, tt.why)
	}
	for _, p := range []ratelimit.FailurePolicy{{}, ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal(1), ratelimit.FailLocal(7)} {
		text, err := p.MarshalText()
		require.NoError(t, err)
		require.Equal(t, p.String(), string(text))
		back := ratelimit.FailLocal(99)
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, p, back)
	}
	_, err := ratelimit.FailLocal(0).MarshalText()
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
}

// config returns the config of a token bucket rule.
func config(endpoint, rate string) map[string]any {
	return map[string]any{"endpoint": endpoint, "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": rate}}
}

// TestNewFromConfig proves which rules NewFromConfig makes, and which errors it returns.
func TestNewFromConfig(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.NewFromConfig([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"capacity": 10, "refillRatePerSecond": 1}},
		{"endpoint": "/login", "key": "user_endpoint", "algorithm": "FIXED_WINDOW",
			"algoConfig": map[string]any{"maxRequests": 3, "windowMs": 60_000}},
		{"endpoint": "/shadow", "mode": "shadow", "algorithm": "leaky-bucket", "algoConfig": map[string]any{"rate": "1/h"}},
	}, map[string]any{"algorithm": "SlidingLog", "algoConfig": map[string]any{"limit": 2, "windowMs": 1000}}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	require.Equal(t, by("/search", yes(10, 9, sec)), l.Allow("ann", "/search"))
	clock.Advance(500 * ms)
	require.Equal(t, by("/search", yes(10, 8, 1500*ms)), l.Allow("ann", "/search"))
	require.Equal(t, by("/login", yes(3, 2, 59500*ms)), l.Allow("ann", "/login"))
	require.Equal(t, by("default", yes(2, 1, sec)), l.Allow("bob", "/shadow"), "a shadow rule does not stand in for the default rule")
	require.Equal(t, by("default", yes(2, 1, sec)), l.Allow("ann", "/"))

	onlyDefault, err := ratelimit.NewFromConfig(nil, map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "1/h"}})
	require.NoError(t, err)
	assert.Equal(t, 1, onlyDefault.Allow("ann", "/").Limit)

	for _, tt := range []struct {
		configs []map[string]any
		opts    []ratelimit.Option
		want    string
		why     string
	}{
		{nil, nil, "ratelimit: configs is empty: must have at least one config, or there be a default config", "nothing at all"},
		{[]map[string]any{config("/a", "1/x")}, []ratelimit.Option{ratelimit.WithMaxKeys(0)},
			"ratelimit: maxKeys is 0: must be at least 1\nratelimit: configs[0].algoConfig.rate is \"1/x\": its time must be in ns, us, ms, s, m " +
				"(minutes), h, d or w, or be \"month\" or \"year\"", "options and rules"},
	} {
		l, err := ratelimit.NewFromConfig(tt.configs, nil, tt.opts...)
		assert.Nil(t, l, tt.why)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
		assert.EqualError(t, err, tt.want, tt.why)
	}
}

// TestReloadKeepsCode proves that Reload keeps what only code can set in a rule, such as Resolve.
func TestReloadKeepsCode(t *testing.T) {
	configs := []map[string]any{config("/resolved", "10/h"), config("/custom", "10/h"), config("/plain", "10/h")}
	fallback := map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "10/h"}}
	rs, def, err := ratelimit.DecodeRules(configs, fallback)
	require.NoError(t, err)
	resolve := func(r ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(3), r.Client == "ann" }
	rs[0].Resolve, def.Resolve = resolve, resolve
	custom, err := ratelimit.NewTokenBucket(ratelimit.PerHour(7))
	require.NoError(t, err)
	rs[1].Limiter = custom
	l, _ := rules(t, rs, def)
	for _, endpoint := range []string{"/resolved", "/custom", "/plain", "/other"} {
		l.Allow("ann", endpoint)
	}

	changed := []map[string]any{config("/plain", "20/h"), config("/resolved", "20/h"), config("/custom", "20/h"), config("/new", "20/h")}
	require.NoError(t, l.Reload(changed, fallback))
	assert.Equal(t, 3, l.Allow("ann", "/resolved").Limit, "the code of the rule of that name")
	assert.Equal(t, 20, l.Allow("bob", "/resolved").Limit, "beside the new rate")
	assert.Equal(t, 20, l.Allow("ann", "/custom").Limit, "a limiter that code has given is told the new rate")
	assert.Equal(t, by("/plain", yes(20, 8, 36*minute)), l.Allow("ann", "/plain"))
	assert.Equal(t, by("/new", yes(20, 19, 3*minute)), l.Allow("ann", "/new"))
	assert.Equal(t, 3, l.Allow("ann", "/other").Limit)

	err = l.Reload([]map[string]any{config("/plain", "30/h"), config("/plain", "40/h"), {"endpoint": "/b"}}, nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "configs[1].endpoint")
	require.ErrorContains(t, err, "configs[2].algorithm")
	assert.Equal(t, by("/plain", yes(20, 7, 39*minute)), l.Allow("ann", "/plain"), "what is refused changes nothing")
}

// TestAttributeKeepsItsTrailingSpace proves that a key type is the same after it was written as JSON and read again.
func TestAttributeKeepsItsTrailingSpace(t *testing.T) {
	for text, want := range map[string]ratelimit.KeyType{
		"attr:tenant +user":  ratelimit.KeyOf(ratelimit.KeyAttr("tenant "), ratelimit.KeyUser),
		"attr:tenant ":       ratelimit.KeyAttr("tenant "),
		"attr:tenant + user": ratelimit.KeyOf(ratelimit.KeyAttr("tenant"), ratelimit.KeyUser),
	} {
		config, err := json.Marshal(map[string]any{"endpoint": "/", "rate": "1/s", "key": text})
		require.NoError(t, err)
		var r ratelimit.Rule
		require.NoError(t, json.Unmarshal(config, &r))
		assert.Equal(t, want, r.Key, "%q", text)
	}
}

// TestBadPenalty proves which errors a wrong Penalty in code gives.
func TestBadPenalty(t *testing.T) {
	inner, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(5))
	require.NoError(t, err)
	rule := func(p ratelimit.Penalty) ratelimit.Rule {
		return ratelimit.Rule{Name: "r", Rate: ratelimit.PerMinute(10), Penalty: p}
	}
	const year = 366 * 24 * time.Hour
	good := ratelimit.Penalty{After: 10, Within: minute, For: time.Hour}
	span := func(field, value string) string {
		return "ratelimit: rules[0].penalty." + field + " is " + value + ": must be from a microsecond to 366 days"
	}
	for _, row := range []struct {
		rule ratelimit.Rule
		want string
		why  string
	}{
		{rule(ratelimit.Penalty{Within: minute, For: time.Hour}), "ratelimit: rules[0].penalty.after is 0: must be at least 1", "no After"},
		{rule(ratelimit.Penalty{After: -1, Within: minute, For: time.Hour}), "ratelimit: rules[0].penalty.after is -1: must be at least 1",
			"an After below 1"},
		{rule(ratelimit.Penalty{After: 1, For: time.Hour}), span("within", "0s"), "no Within"},
		{rule(ratelimit.Penalty{After: 1, Within: 999, For: time.Hour}), span("within", "999ns"), "a Within below 1 us"},
		{rule(ratelimit.Penalty{After: 1, Within: year + 1, For: 1000}), span("within", "8784h0m0.000000001s"), "a Within above 366 days"},
		{rule(ratelimit.Penalty{After: 1, Within: minute}), span("for", "0s"), "no For"},
		{rule(ratelimit.Penalty{After: 1, Within: minute, For: -1}), span("for", "-1ns"), "a For below 1 us"},
		{rule(ratelimit.Penalty{After: 1, Within: minute, For: year + 1}), span("for", "8784h0m0.000000001s"), "a For above 366 days"},
		{rule(ratelimit.Penalty{After: 1, Within: minute, For: minute, Most: -1}), span("most", "-1ns"), "a Most below 0"},
		{rule(ratelimit.Penalty{After: 1, Within: minute, For: minute, Most: year + 1}), span("most", "8784h0m0.000000001s"), "too long"},
		{rule(ratelimit.Penalty{After: 1, Within: minute, For: minute, Most: minute - 1}),
			"ratelimit: rules[0].penalty.most is 59.999999999s: must be at least 1m0s, the length of the first block", "a Most below For"},
		{rule(ratelimit.Penalty{Most: 5}), "ratelimit: rules[0].penalty.after is 0: must be at least 1\n" + span("within", "0s") + "\n" +
			span("for", "0s") + "\n" + span("most", "5ns"), "everything at once"},
		{ratelimit.Rule{Name: "r", Limiter: inner, Penalty: good},
			"ratelimit: rules[0].penalty is {10 1m0s 1h0m0s 0s}: must be left out: a limiter of one's own has none", "beside a Limiter"},
		{ratelimit.Rule{Name: "r", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.PerMinute(10), Penalty: good},
			"ratelimit: rules[0].penalty is {10 1m0s 1h0m0s 0s}: must be left out: a rule that counts what is running has none", "InFlight"},
	} {
		_, err := ratelimit.New([]ratelimit.Rule{row.rule}, nil)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, row.why)
		require.EqualError(t, err, row.want, row.why)
		l, err := ratelimit.New([]ratelimit.Rule{rule(good)}, nil)
		require.NoError(t, err)
		require.EqualError(t, l.Replace([]ratelimit.Rule{row.rule}, nil), row.want, row.why)
		rules, _ := l.Rules()
		require.Equal(t, good, rules[0].Penalty, "nothing is half set")
	}
	for _, right := range []ratelimit.Penalty{{1, 1000, 1000, 0}, {1, 1000, 1000, 1000}, {math.MaxInt, year, year, year}} {
		warm := rule(right)
		warm.Warmup = ratelimit.Warmup{From: 1, Over: time.Hour}
		_, err := ratelimit.New([]ratelimit.Rule{warm}, nil)
		require.NoError(t, err, "also beside a Warmup")
	}
}

// TestStoreWithoutPenalty proves that a rule with a Penalty is refused if its store does not know penalties.
func TestStoreWithoutPenalty(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	rule := ratelimit.Rule{Name: "r", Rate: ratelimit.PerMinute(10)}
	strict := rule
	strict.Penalty = ratelimit.Penalty{After: 10, Within: minute, For: time.Hour, Most: 24 * time.Hour}
	for _, row := range []struct {
		store ratelimit.Store
		want  string
	}{
		{oldStore{memory}, "ratelimit: rules[0].penalty is {10 1m0s 1h0m0s 24h0m0s}: must be left out: the store has no Accepts, to say " +
			"that it knows penalties"},
		{pickyStore{memory}, "ratelimit: rules[0].rate is 10/m: is not supported by the store: no penalties here"},
	} {
		opts := []ratelimit.Option{ratelimit.WithStore(row.store), ratelimit.WithName("n")}
		_, err := ratelimit.New([]ratelimit.Rule{strict}, nil, opts...)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, row.want)
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
		require.NoError(t, err)
		require.EqualError(t, l.Replace([]ratelimit.Rule{strict}, nil), row.want, "in a change")
	}
}

// TestPenaltyConfig proves how a penalty is read from a config and written to JSON, and that only rules have one.
func TestPenaltyConfig(t *testing.T) {
	want := ratelimit.Penalty{After: 10, Within: minute, For: time.Hour, Most: 24 * time.Hour}
	for _, penalty := range []any{
		fields{"after": 10, "within": "1m", "for": "1h", "most": "24h"},
		fields{"AFTER": json.Number("10"), "With_In": "60s", "For": "60m", "most": "1d"},
		map[any]any{"after": 10.0, "within": minute, "for": time.Hour, "most": 24 * time.Hour},
	} {
		rules, _, err := ratelimit.DecodeRules([]fields{{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "10/m", "Penalty": penalty}}, nil)
		require.NoError(t, err)
		require.Equal(t, want, rules[0].Penalty)
		text, err := json.Marshal(rules[0])
		require.NoError(t, err)
		require.Contains(t, string(text), `"penalty":{"after":10,"for":"1h0m0s","most":"24h0m0s","within":"1m0s"}`)
		var again ratelimit.Rule
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, rules[0], again)
	}
	short := fields{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "10/m", "penalty": fields{"after": 1, "within": "1s", "for": "2s"}}
	l, err := ratelimit.NewFromConfig([]fields{short}, nil)
	require.NoError(t, err)
	rules, _ := l.Rules()
	require.Equal(t, ratelimit.Penalty{After: 1, Within: sec, For: 2 * sec}, rules[0].Penalty)
	text, err := json.Marshal(ratelimit.Rule{Name: "r", Rate: ratelimit.PerMinute(1)})
	require.NoError(t, err)
	require.NotContains(t, string(text), "penalty")

	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("Own", func(fields, ratelimit.Env) (ratelimit.Limiter, error) {
		return ratelimit.NewTokenBucket(ratelimit.PerSecond(1))
	}))
	for _, algorithm := range []string{"TokenBucket", "Own"} {
		_, err = f.Create(fields{"algorithm": algorithm, "algoConfig": fields{"rate": "10/m"}, "penalty": short["penalty"]})
		require.EqualError(t, err, "ratelimit: penalty is a map: must be left out: only a rule has a penalty, see NewFromConfig")
	}
	own := fields{"endpoint": "/a", "algorithm": "Own", "algoConfig": fields{}, "penalty": fields{}}
	_, err = ratelimit.NewFromConfig([]fields{own}, nil, ratelimit.WithFactory(f))
	require.EqualError(t, err, "ratelimit: configs[0].penalty is a map: must be left out: a limiter of one's own has none")
}

// TestReloadAll proves that rules and overrides are replaced together, or neither of them.
func TestReloadAll(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	rule := func(name, rate string) fields {
		return fields{"name": name, "endpoint": "*", "algorithm": "FixedWindow", "rate": rate}
	}
	block := func(client string, until time.Duration, rules ...string) ratelimit.Override {
		return ratelimit.Override{Client: client, Effect: ratelimit.EffectBlock, Until: epoch.Add(until), Rules: rules}
	}
	l, err := ratelimit.NewFromConfig([]fields{rule("a", "2/m")}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	state := func() (text string) {
		rules, _ := l.Rules()
		for _, r := range rules {
			text += r.Name + " " + r.Rate.String() + ", "
		}
		all, err := l.Overrides(t.Context())
		require.NoError(t, err)
		for _, o := range all {
			text += o.Effect + " " + o.Client + ", "
		}
		return text
	}
	require.NoError(t, l.Override(t.Context(), block("code", time.Hour)))
	ended := block("ended", 0)
	require.NoError(t, l.ReloadAll([]fields{rule("b", "3/m")}, nil, []ratelimit.Override{block("bob", time.Hour, "b"), ended}, nil))
	const before = "b 3/m, block bob, block code, "
	require.Equal(t, before, state(), "the one that has ended is left out")
	require.NoError(t, l.ReloadOverrides(block("bob", time.Hour, "b"), ended))
	require.Equal(t, before, state())
	require.Equal(t, 2, l.OverrideStats().Blocks)

	refuse := func([]ratelimit.Rule, *ratelimit.Rule) error { return errors.New("refused") }
	many := make([]ratelimit.Override, 1<<16+1)
	for _, row := range []struct {
		rule   fields
		o      []ratelimit.Override
		accept func([]ratelimit.Rule, *ratelimit.Rule) error
		want   string
	}{
		{rule("c", "4"), nil, nil,
			`ratelimit: configs[0].rate is "4": must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`},
		{rule("c", "4/m"), []ratelimit.Override{block("eve", time.Hour, "b")}, nil,
			`overrides[0].rules: ratelimit: unknown rule "b"; did you mean "c"?`},
		{rule("c", "4/m"), []ratelimit.Override{{Client: "eve"}}, nil,
			`ratelimit: overrides[0].effect is "": must be one of "block", "exempt", "rate"`},
		{rule("c", "4/m"), []ratelimit.Override{{Client: "eve", Effect: ratelimit.EffectRate, Rate: ratelimit.PerHour(1)}}, nil,
			"ratelimit: overrides[0].rate.per is 1h0m0s: must be that of the rule's rate: a window has one length"},
		{rule("c", "4/m"), many, nil, "ratelimit: overrides is 65537: must be at most 65536"},
		{rule("c", "4/m"), nil, refuse, "refused"},
	} {
		require.EqualError(t, l.ReloadAll([]fields{row.rule}, nil, row.o, row.accept), row.want)
		require.Equal(t, before, state(), row.want)
	}
	require.NoError(t, l.ReloadAll([]fields{rule("c", "4/m")}, nil, nil, nil))
	require.Equal(t, "c 4/m, block code, ", state())
	require.NoError(t, l.Reload([]fields{rule("d", "4/m")}, nil))
	require.Equal(t, "d 4/m, block code, ", state())
	require.ErrorIs(t, new(ratelimit.RateLimiter).ReloadAll(nil, nil, nil, nil), ratelimit.ErrInvalidConfig)
}
