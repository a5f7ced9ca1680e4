package ratelimit_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// FuzzConfig decodes any JSON. What comes of it are rules that a RateLimiter takes,
// each with a limiter that works, or an error that can be shown.
func FuzzConfig(f *testing.F) {
	paths, err := filepath.Glob("testdata/badconfig/*.json")
	require.NoError(f, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(text)
	}
	for _, text := range []string{
		`{"configs":[{"endpoint":"/search","algorithm":"TokenBucket","algoConfig":{"capacity":1000,"refillRatePerSecond":10}}]}`,
		`{"configs":[{"name":"n","algorithm":"FIXED_WINDOW","algoConfig":{"maxRequests":5,"windowMs":0.5},"key":"ip","mode":"shadow"}]}`,
		`{"defaultConfig":{"algorithm":"leaky-bucket","algoConfig":{"capacity":5,"leakRatePerSecond":1e-3},"tiers":{"a":"5/s","b":{"rate":"1/s","burst":2}}}}`,
		`{"configs":[{"endpoint":"/a*","algorithm":"SlidingLog","algoConfig":{"limit":5,"windowSeconds":2},"onStoreError":"local:4"}],"useNumber":true}`,
		`{"configs":[{"endpoint":"/a","algorithm":"custom","algoConfig":{"x":[{"y":null}]}}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var doc badDocument
		d := json.NewDecoder(bytes.NewReader(text))
		if bytes.Contains(text, []byte("useNumber")) {
			d.UseNumber()
		}
		if d.Decode(&doc) != nil {
			return
		}
		option := withCustom(t)
		rules, defaultRule, err := ratelimit.DecodeRules(doc.Configs, doc.DefaultConfig, option)
		_, _, again := ratelimit.DecodeRules(doc.Configs, doc.DefaultConfig, option)
		if err != nil {
			requireGoodError(t, err)
			require.EqualError(t, again, err.Error())
			require.Nil(t, rules)
			require.Nil(t, defaultRule)
		} else {
			require.NoError(t, again)
			require.Len(t, rules, len(doc.Configs))
			require.NoError(t, ratelimit.CheckRules(rules, defaultRule))
		}
		clock := ratelimit.NewFakeClock(epoch)
		factory := ratelimit.NewFactory(ratelimit.WithClock(clock))
		for _, config := range doc.Configs {
			l, created := factory.Create(config)
			if created != nil {
				requireGoodError(t, created)
				require.Nil(t, l)
				continue
			}
			requireWorks(t, l, clock)
		}
	})
}

// requireGoodError checks that err says what is wrong, in a text that can be logged.
func requireGoodError(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	var field *ratelimit.ConfigError
	require.ErrorAs(t, err, &field)
	require.NotEmpty(t, field.Field)
	require.NotEmpty(t, field.Reason)
	requireShort(t, err)
}

// requireWorks asks l twenty times and checks each answer by itself.
func requireWorks(t *testing.T, l ratelimit.Limiter, clock *ratelimit.FakeClock) {
	t.Helper()
	for i := range 20 {
		res := l.Allow("key")
		require.Equal(t, res.Allowed, res.RetryAfter == 0, "%+v", res)
		require.True(t, res.Allowed || i > 0, "a new key is granted its first unit")
		require.GreaterOrEqual(t, res.Limit, 1)
		require.True(t, 0 <= res.Remaining && res.Remaining <= res.Limit, "%+v", res)
		require.True(t, res.RetryAfter >= 0 && res.ResetAfter >= 0 && res.Delay >= 0, "%+v", res)
		clock.Advance(min(res.RetryAfter, ms))
	}
}
