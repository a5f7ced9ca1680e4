package configfile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// exempting returns a document with two rules and these overrides.
func exempting(overrides ...string) string {
	return `{"rules": [
  {"name": "per-client", "endpoint": "*", "algorithm": "FixedWindow", "rate": "2/m"},
  {"name": "per-ip", "endpoint": "/login", "additional": true, "key": "ip", "algorithm": "TokenBucket", "rate": "5/m"}
], "overrides": [
` + strings.Join(overrides, ",\n") + "\n]}\n"
}

// asked returns the answer to a request of this client from this address.
func asked(t *testing.T, l *ratelimit.RateLimiter, client, ip string) ratelimit.Result {
	t.Helper()
	res, err := l.Check(t.Context(), ratelimit.Request{Client: client, IP: ip, Endpoint: "/login"})
	require.NoError(t, err)
	return res
}

// overridesOf returns the overrides of l.
func overridesOf(t *testing.T, l *ratelimit.RateLimiter) []ratelimit.Override {
	t.Helper()
	all, err := l.Overrides(t.Context())
	require.NoError(t, err)
	return all
}

func TestOverrides(t *testing.T) {
	until := time.Date(2199, 12, 1, 0, 0, 0, 0, time.UTC)
	text := exempting(
		`{"ip": "10.0.0.0/8", "effect": "EXEMPT", "rules": ["per-client", "per-ip"], "until": "2199-12-01T00:00:00Z", "note": "office"}`,
		`{"client": "bob", "Effect": "block"}`,
		`{"client": "alice", "effect": "rate", "Rate": "500/m", "until": "2199-12-01T01:00:00+01:00"}`)
	want := []ratelimit.Override{
		{IP: "10.0.0.0/8", Effect: ratelimit.EffectExempt, Rules: []string{"per-client", "per-ip"}, Until: until, Note: "office"},
		{Client: "bob", Effect: ratelimit.EffectBlock},
		{Client: "alice", Effect: ratelimit.EffectRate, Rate: ratelimit.PerMinute(500), Until: until},
	}
	f, err := configfile.Parse("limits.json", []byte(text))
	require.NoError(t, err)
	got := f.Overrides()
	require.Len(t, got, 3)
	require.True(t, got[2].Until.Equal(until))
	got[2].Until = until
	require.Equal(t, want, got)
	got[0].Client = "changed"
	require.Empty(t, f.Overrides()[0].Client, "what is returned is a copy")

	l := parsed(t, text)
	require.Len(t, overridesOf(t, l), 3)
	require.Equal(t, ratelimit.Reason("override"), asked(t, l, "bob", "203.0.113.1").Reason)
	require.Equal(t, -1, asked(t, l, "carol", "10.1.2.3").Limit)
	require.Equal(t, 2, asked(t, l, "carol", "203.0.113.1").Limit)
	require.Equal(t, ratelimit.PerMinute(5).Requests-2, asked(t, l, "alice", "203.0.113.1").Remaining)
	require.NoError(t, loads(exempting()), "an empty list")
	require.NoError(t, loads(exempting(`{"client": "bob", "effect": "block", "until": "1999-12-01T00:00:00Z"}`)))
}

// TestReloadOverrides replaces a file that has overrides, beside one that code has set.
func TestReloadOverrides(t *testing.T) {
	path, l, w, log := opened(t, exempting(
		`{"client": "bob", "effect": "block"}`, `{"client": "dave", "effect": "block", "rules": ["per-ip"]}`))
	require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "eve", Effect: ratelimit.EffectBlock, Note: "by code"}))
	blocked := func() (all []string) {
		for _, o := range overridesOf(t, l) {
			all = append(all, o.Client)
		}
		return all
	}
	require.Equal(t, []string{"bob", "dave", "eve"}, blocked())

	put(t, path, exempting(`{"client": "carol", "effect": "block"}`,
		`{"client": "frank", "effect": "block", "until": "2001-01-01T00:00:00Z"}`))
	require.NoError(t, w.Reload())
	require.Equal(t, []string{"carol", "eve"}, blocked(), "frank's has ended")
	require.False(t, asked(t, l, "carol", "").Allowed)
	require.True(t, asked(t, l, "bob", "").Allowed)
	require.True(t, asked(t, l, "frank", "").Allowed)
	lines := log.lines()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "overrides=2")

	require.Equal(t, []string{"carol", "eve"}, blocked())
	for text, want := range map[string]string{
		`[{"name": "new", "algorithm": "FixedWindow", "rate": "1/s"}]`: "",
		strings.Replace(exempting(`{"client": "bob", "effect": "exempt"}`, `{"client": "bob", "effect": "exempt", "rules": ["per-ip"]}`),
			`"per-ip", "endpoint"`, `"other", "endpoint"`, 1): `limits.json:6:49: overrides[1].rules[0] is "per-ip": must be the name of a rule ` +
			`in this file: the file removes this rule, so the override has to go, too`,
		strings.Replace(exempting(`{"client": "bob", "effect": "rate", "rate": "9/h"}`), "2/m", "3/m", 1): "limits.json:5:37: " +
			`overrides[0].rate.per is 1h0m0s: must be that of the rule's rate: a window has one length`,
	} {
		put(t, path, text)
		err := w.Reload()
		if want == "" {
			require.NoError(t, err)
			require.Equal(t, []string{"eve"}, blocked(), "the file has none, and that of code stays")
			put(t, path, exempting(`{"client": "carol", "effect": "block"}`))
			require.NoError(t, w.Reload())
			continue
		}
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.Equal(t, want, strings.ReplaceAll(err.Error(), path, "limits.json"))
		require.Equal(t, []string{"carol", "eve"}, blocked(), "no override changes")
		rules, _ := l.Rules()
		require.Equal(t, []string{"per-client", "per-ip"}, []string{rules[0].Name, rules[1].Name}, "no rule changes")
		require.Equal(t, 2, limitOf(l, "per-client"))
	}
	w.Check = func([]ratelimit.Rule, *ratelimit.Rule) error { return fmt.Errorf("not this one") }
	put(t, path, exempting(`{"client": "grace", "effect": "block"}`))
	require.ErrorContains(t, w.Reload(), "not this one")
	require.Equal(t, []string{"carol", "eve"}, blocked(), "a Check refuses both")
}

// TestBadOverrides has what is wrong with overrides, each with its place.
func TestBadOverrides(t *testing.T) {
	const (
		until    = `must be a time such as "2026-12-01T00:00:00Z"`
		rateForm = `must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`
	)
	for _, tt := range []struct {
		override string
		want     string // lines, less the name of the file
		why      string
	}{
		{`5`, `5:1: overrides[0] is 5: must be an object such as {"ip": "10.0.0.0/8", "effect": "exempt"}`, "a number"},
		{`{"client": "a"}`, `5:1: overrides[0].effect is missing: must be one of "block", "exempt", "rate"`, "no effect"},
		{`{"client": "a", "effect": "pardon"}`, `5:17: overrides[0].effect is "pardon": must be one of "block", "exempt", "rate"`, "done once"},
		{`{"client": "a", "effect": ""}`, `5:17: overrides[0].effect is "": must be one of "block", "exempt", "rate"`, "a lift"},
		{`{"client": "a", "effect": "blok"}`, `5:17: overrides[0].effect is "blok": unknown effect; did you mean "block"?`, "misspelt"},
		{`{"clint": "a", "effect": "block"}`, `5:2: overrides[0].clint is "a": unknown field; did you mean "client"?`, "misspelt"},
		{`{"effect": "block"}`, `5:1: overrides[0].client is "" and ip is "": must be set, or ip, and not both`, "nobody"},
		{`{"effect": "block", "client": "a", "ip": "10.0.0.1"}`,
			`5:21: overrides[0].client is "a" and ip is "10.0.0.1": must be set, or ip, and not both`, "two"},
		{`{"client": 5, "effect": "block"}`, `5:2: overrides[0].client is 5: must be a string`, "no string"},
		{`{"client": "` + strings.Repeat("a", 4097) + `", "effect": "block"}`,
			`5:2: overrides[0].client is 4097 bytes: must have at most 4096 bytes`, "a long client"},
		{`{"client": "a", "effect": "block", "note": "` + strings.Repeat("a", 257) + `"}`,
			`5:36: overrides[0].note is 257 bytes: must have at most 256 bytes`, "a long note"},
		{`{"ip": "10.0.0.1/8", "effect": "block"}`,
			`5:2: overrides[0].ip is "10.0.0.1/8": has bits set beyond its length: 10.0.0.0/8 is the prefix of this length`, "bits"},
		{`{"ip": "home", "effect": "block"}`,
			`5:2: overrides[0].ip is "home": must be an address, such as "203.0.113.9", or a prefix, such as "10.0.0.0/8"`, "no address"},
		{`{"client": "a", "effect": "block", "rules": "per-ip"}`,
			`5:36: overrides[0].rules is "per-ip": must be a list of names of rules, such as ["per-client"]`, "no list"},
		{`{"client": "a", "effect": "block", "rules": []}`,
			`5:36: overrides[0].rules is a list: must be a list of names of rules, such as ["per-client"]`, "an empty list is not all"},
		{`{"client": "a", "effect": "block", "rules": ["per-ip", 5, ""]}`,
			"5:56: overrides[0].rules[1] is 5: must be the name of a rule\n5:59: overrides[0].rules[2] is \"\": must be the name of a rule",
			"no names"},
		{`{"client": "a", "effect": "block", "rules": ["per-ip", "per-clent", "x"]}`,
			"5:56: overrides[0].rules[1] is \"per-clent\": no rule in this file has this name; did you mean \"per-client\"?\n" +
				`5:69: overrides[0].rules[2] is "x": must be the name of a rule in this file`, "unknown names"},
		{`{"client": "a", "effect": "block", "until": "tomorrow"}`, `5:36: overrides[0].until is "tomorrow": ` + until, "no time"},
		{`{"client": "a", "effect": "block", "until": 5}`, `5:36: overrides[0].until is 5: ` + until, "a number"},
		{`{"client": "a", "effect": "block", "until": "0001-01-01T00:00:00Z"}`,
			`5:36: overrides[0].until is "0001-01-01T00:00:00Z": ` + until, "would mean that it never ends"},
		{`{"client": "a", "effect": "rate"}`, `5:1: overrides[0].rate is missing: must be a rate such as "500/m"`, "no rate"},
		{`{"client": "a", "effect": "rate", "rate": 5}`, `5:35: overrides[0].rate is 5: must be a rate such as "500/m"`, "a number"},
		{`{"client": "a", "effect": "rate", "rate": "many"}`, `5:35: overrides[0].rate is "many": ` + rateForm, "no rate"},
		{`{"client": "a", "effect": "block", "rate": "5/m"}`,
			`5:36: overrides[0].rate is 5/m: must be zero, unless the effect is "rate"`, "of a block"},
		{`{"client": "a", "effect": "rate", "rate": "5/h"}`,
			`5:35: overrides[0].rate.per is 1h0m0s: must be that of the rule's rate: a window has one length`, "another window"},
		{`{"ip": "10.0.0.1", "effect": "rate", "rate": "5/m", "rules": ["per-client"]}`, `5:53: overrides[0].rules is "per-client": ` +
			`must have only rules whose keys belong to one address: others would get the rate, too`, "a key of others"},
	} {
		err := refused(t, exempting(tt.override))
		require.Equal(t, tt.want, strings.ReplaceAll(err.Error(), "limits.json:", ""), tt.why)
	}
	require.EqualError(t, refused(t, `{"overrides": {}, "rules": []}`), `limits.json:1:2: overrides is a map: must be a list of overrides`)

	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf(`{"client": "c%d", "effect": "block", "rules": ["no"]}`, i)
	}
	lines := strings.Split(refused(t, exempting(many...)).Error(), "\n")
	require.Len(t, lines, 101)
	require.Equal(t, "limits.json: and 200 more", lines[100])
}

// A closer is a limiter that says when it is closed.
type closer struct {
	ratelimit.Limiter
	closed *int
}

func (c closer) Close() error {
	*c.closed++
	return nil
}

// TestBadOverridesCloseLimiters proves that the limiters that were built for a file are closed if an override is refused.
func TestBadOverridesCloseLimiters(t *testing.T) {
	made, closed := 0, 0
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Own", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		limiter, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1))
		return closer{limiter, &closed}, err
	}))
	const rules = `{"rules": [{"name": "a", "endpoint": "/a", "algorithm": "Own", "algoConfig": {}}], ` +
		`"default": {"algorithm": "Own", "algoConfig": {}}, `
	_ = refused(t, rules+`"overrides": [{"client": "a", "effect": "block", "rules": ["b"]}]}`,
		ratelimit.WithFactory(factory), ratelimit.WithRequiredRules("a"))
	require.Equal(t, 2, made)
	require.Equal(t, 2, closed)
}

// TestSchemaOfOverrides plays overrides to the schema.
func TestSchemaOfOverrides(t *testing.T) {
	v := newValidator(t, configfile.Schema())
	for override, good := range map[string]bool{
		`{"client": "a", "effect": "block"}`: true,
		`{"IP": "10.0.0.0/8", "EFFECT": "Exempt", "rules": ["per-ip"], "until": "2199-12-01T00:00:00.5+01:00", "note": ""}`: true,
		`{"client": "a", "effect": "rate", "rate": "5/m"}`:                                                                  true,
		`{"client": "a"}`:                                                                false,
		`{"effect": "block"}`:                                                            false,
		`{"client": "a", "effect": "pardon"}`:                                            false,
		`{"client": "a", "effect": "rate"}`:                                              false,
		`{"client": "a", "effect": "block", "rate": "5/m"}`:                              false,
		`{"client": "a", "effect": "block", "rules": []}`:                                false,
		`{"client": "a", "effect": "block", "rules": "per-ip"}`:                          false,
		`{"client": "a", "effect": "block", "until": "tomorrow"}`:                        false,
		`{"client": "a", "effect": "block", "why": ""}`:                                  false,
		`{"client": 5, "effect": "block"}`:                                               false,
		`{"client": "a", "effect": "block", "note": "` + strings.Repeat("a", 257) + `"}`: false,
		`[]`: false,
	} {
		require.Equal(t, good, loads(exempting(override)) == nil, override)
		require.Equal(t, good, v.document(t, exempting(override)), override)
	}
}
