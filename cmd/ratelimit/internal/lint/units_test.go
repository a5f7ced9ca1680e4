package lint_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/lint"
)

var inFlight = ratelimit.AlgorithmInFlight

// atOnce returns the rate of a rule that counts what is running.
func atOnce(n int, per time.Duration) ratelimit.Rate { return ratelimit.Rate{Requests: n, Per: per} }

// gateway returns rules as in docs/llm.md.
func gateway(more ...ratelimit.Rule) []ratelimit.Rule {
	return append([]ratelimit.Rule{
		{Name: "requests", Endpoint: "/a", Rate: perMinute},
		{Name: "tokens", Endpoint: "/a", Unit: "tokens", Rate: ratelimit.PerHour(20_000)},
		{Name: "at once", Endpoint: "/a", Algorithm: inFlight, Rate: atOnce(4, time.Minute)},
	}, more...)
}

func TestCodesWithUnits(t *testing.T) {
	costs := func(c ...ratelimit.Cost) lint.Options {
		return lint.Options{Costs: map[string][]ratelimit.Cost{"/a": c}}
	}
	rule := func(name, unit string, a ratelimit.Algorithm, r ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: "/a", Unit: unit, Algorithm: a, Rate: r}
	}
	for _, row := range []codesRow{
		{"a gateway", lint.Options{}, nil, gateway(), nil},
		{"a window of tokens tries no secrets", lint.Options{}, nil,
			[]ratelimit.Rule{{Endpoint: "/auth", Unit: "tokens", Algorithm: window, Rate: perMinute}}, []string{"RL002 0"}},
		{"tokens beyond the tokens, not beyond the requests", costs(ratelimit.Cost{Unit: "tokens", N: 20_001}), nil, gateway(),
			[]string{"RL003 1"}},
		{"requests beyond the requests and what may run", costs(ratelimit.Cost{N: 11}), nil, gateway(), []string{"RL003 0", "RL003 2"}},
		{"a rule of tokens hides the default rule too", lint.Options{}, &ratelimit.Rule{Rate: perMinute},
			[]ratelimit.Rule{{Endpoint: "*", Unit: "tokens", Rate: perMinute}}, []string{"RL004 -1"}},
		{"the default rule advises behind *", lint.Options{}, &ratelimit.Rule{Rate: perMinute, Mode: ratelimit.ModeAdvise},
			[]ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerMinute(5)}}, []string{"RL005 -1"}},
		{"a tight one that advises", lint.Options{}, nil, []ratelimit.Rule{
			{Name: "tight", Endpoint: "/a", Mode: ratelimit.ModeAdvise, Rate: perMinute}, rule("loose", "", bucket, ratelimit.PerMinute(100)),
		}, nil},
		{"one that advises behind a tight one", lint.Options{}, nil, []ratelimit.Rule{
			rule("tight", "", bucket, perMinute), {Name: "loose", Endpoint: "/a", Mode: ratelimit.ModeAdvise, Rate: ratelimit.PerMinute(100)},
		}, []string{"RL006 1"}},
		{"equal ones of two units", lint.Options{}, nil,
			[]ratelimit.Rule{rule("requests", "", bucket, perMinute), rule("tokens", "tokens", bucket, perMinute)}, nil},
		{"a looser one of the same unit", lint.Options{}, nil, []ratelimit.Rule{
			rule("tight", "tokens", bucket, perMinute), rule("loose", "tokens", bucket, ratelimit.PerMinute(11)),
		}, []string{"RL006 1"}},
		{"what runs is not what a rate grants", lint.Options{}, nil,
			[]ratelimit.Rule{rule("at once", "", inFlight, atOnce(1, time.Minute)), rule("rate", "", log, ratelimit.PerMinute(100))}, nil},
		{"a rate does not bound what runs", lint.Options{}, nil,
			[]ratelimit.Rule{rule("rate", "", log, ratelimit.PerHour(1)), rule("at once", "", inFlight, atOnce(100, time.Second))}, nil},
		{"more at once for as long", lint.Options{}, nil,
			[]ratelimit.Rule{rule("few", "", inFlight, atOnce(4, time.Minute)), rule("many", "", inFlight, atOnce(5, time.Minute))},
			[]string{"RL006 1"}},
		{"more at once, each for longer", lint.Options{}, nil,
			[]ratelimit.Rule{rule("few", "", inFlight, atOnce(4, time.Minute)), rule("many", "", inFlight, atOnce(5, time.Hour))}, nil},
		{"what runs has no window", lint.Options{}, nil, []ratelimit.Rule{rule("at once", "", inFlight, atOnce(4, 1500*time.Millisecond))}, nil},
		{"a unit that is misspelt", lint.Options{}, nil, gateway(rule("output", "tokns", bucket, perMinute)), []string{"RL011 3"}},
		{"a unit that two rules name", lint.Options{}, nil,
			[]ratelimit.Rule{rule("in", "seats", bucket, perMinute), {Endpoint: "/b", Unit: "seats", Rate: perMinute}}, nil},
		{"a unit that -cost names", costs(ratelimit.Cost{Unit: "seats", N: 1}), nil,
			[]ratelimit.Rule{rule("in", "seats", bucket, perMinute)}, nil},
		{"requests are no unit, whoever else names it", lint.Options{}, nil,
			[]ratelimit.Rule{rule("in", "requests", bucket, perMinute), {Endpoint: "/b", Unit: "requests", Rate: perMinute}},
			[]string{"RL011 0", "RL011 1"}},
		{"more at once than receipts", lint.Options{}, nil,
			[]ratelimit.Rule{rule("rate", "tokens", bucket, perMinute), rule("at once", "", inFlight, atOnce(1025, time.Minute))},
			[]string{"RL012 1"}},
		{"as many at once as receipts", lint.Options{}, nil,
			[]ratelimit.Rule{rule("rate", "", bucket, perMinute), rule("at once", "", inFlight, atOnce(1024, time.Minute))}, nil},
		{"more at once for a tier", lint.Options{}, nil, []ratelimit.Rule{
			rule("rate", "", bucket, perMinute), {Name: "at once", Endpoint: "/a", Algorithm: inFlight, Rate: atOnce(4, time.Minute),
				Tiers: map[string]ratelimit.Rate{"large": atOnce(2000, time.Minute), "staff": ratelimit.Unlimited}},
		}, []string{"RL012 1"}},
		{"more at once, alone", lint.Options{}, nil, []ratelimit.Rule{rule("at once", "", inFlight, atOnce(2000, time.Minute))}, nil},
		{"more at once of a tier without a limit", lint.Options{}, nil, []ratelimit.Rule{
			rule("rate", "", bucket, perMinute), {Name: "at once", Endpoint: "/a", Algorithm: inFlight, Rate: atOnce(4, time.Minute),
				Tiers: map[string]ratelimit.Rate{"staff": ratelimit.Unlimited}},
		}, nil},
		{"more tokens at once", lint.Options{}, nil,
			[]ratelimit.Rule{rule("rate", "tokens", bucket, perMinute), rule("at once", "tokens", inFlight, atOnce(50_000, time.Minute))}, nil},
		{"more at once of all clients", lint.Options{}, nil, []ratelimit.Rule{
			rule("rate", "", bucket, perMinute),
			{Name: "at once", Endpoint: "/a", Algorithm: inFlight, Key: ratelimit.KeyGlobal, Rate: atOnce(2000, time.Minute)},
		}, nil},
		{"more at once elsewhere", lint.Options{}, nil, []ratelimit.Rule{
			{Endpoint: "/b", Rate: perMinute}, rule("at once", "", inFlight, atOnce(2000, time.Minute)),
		}, nil},
	} {
		row.run(t)
	}
}

// TestTextsWithUnits compares whole findings.
func TestTextsWithUnits(t *testing.T) {
	rule := func(unit string) ratelimit.Rule {
		return ratelimit.Rule{Name: "r", Endpoint: "/b", Unit: unit, Rate: perMinute}
	}
	for unit, advice := range map[string]string{
		"token":    `is "tokens" meant? if the name is right, pass a cost in this unit by -cost`,
		"byte":     `is "bytes" meant? if the name is right, pass a cost in this unit by -cost`,
		"tokesn":   `is "tokens" meant? if the name is right, pass a cost in this unit by -cost`,
		"seats":    `if the name is right, pass a cost in this unit by -cost`,
		"reqeusts": `leave the unit out if it is meant to count requests`,
	} {
		require.Equal(t, []lint.Finding{{
			Code: "RL011", Severity: lint.Note, Rule: 3, Field: "unit", Advice: advice,
			Message: fmt.Sprintf(`nothing else names the unit %q: "r" limits only requests whose Costs name it`, unit),
		}}, check(t, lint.Options{}, nil, gateway(rule(unit))...))
	}
	require.Equal(t, []lint.Finding{{
		Code: "RL011", Severity: lint.Note, Rule: 0, Field: "unit", Advice: "leave the unit out: a rule without one counts requests",
		Message: `"r" limits only requests whose Costs name the unit "requests"`,
	}}, check(t, lint.Options{}, nil, rule("requests")))
	require.Equal(t, []lint.Finding{{
		Code: "RL012", Severity: lint.Warning, Rule: 3, Field: "rate",
		Advice:  "lower it to 1024, or expect that of the oldest requests all units stay charged",
		Message: `"many" lets 1025 requests of a key run at once, but "requests" can give units back for only 1024 of them`,
	}}, check(t, lint.Options{}, nil, append(gateway()[:2], ratelimit.Rule{Name: "other", Endpoint: "/c", Rate: perMinute},
		ratelimit.Rule{Name: "many", Endpoint: "/a", Algorithm: inFlight, Rate: atOnce(1025, time.Minute)})...))
}

// TestARuleOfTokensHidesTheDefault shows that RL004 is right about rules of other units: the best match is found by the
// endpoint alone.
func TestARuleOfTokensHidesTheDefault(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "*", Unit: "tokens", Rate: perMinute}}, &ratelimit.Rule{Rate: ratelimit.PerDay(1)})
	require.NoError(t, err)
	for range 10 {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/a"})
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, -1, res.Limit)
	}
}

// TestHoldsThatCannotDeny reserves, ends and extends at random. Where RL006 says that one of two rules of what runs can
// never deny, it never does alone.
func TestHoldsThatCannotDeny(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	keys := []ratelimit.KeyType{ratelimit.KeyUser, ratelimit.KeyGlobal}
	said := 0
	for range 500 {
		var rules []ratelimit.Rule
		for i := range 2 {
			rules = append(rules, ratelimit.Rule{Name: fmt.Sprint(i), Endpoint: "/a", Algorithm: inFlight, Key: keys[r.IntN(2)],
				Rate: atOnce(1+r.IntN(4), time.Duration(1+r.IntN(3))*time.Second)})
		}
		idle := -1
		for _, f := range check(t, lint.Options{}, nil, rules...) {
			if f.Code == "RL006" {
				idle = f.Rule
			}
		}
		if idle < 0 {
			continue
		}
		said++
		clock := ratelimit.NewFakeClock(time.Unix(1_000_000, 0))
		l, err := ratelimit.New(rules, nil, ratelimit.WithClock(clock))
		require.NoError(t, err)
		var held []*ratelimit.Reservation
		for range 100 {
			clock.Advance(time.Duration(r.IntN(900)) * time.Millisecond * time.Duration(r.IntN(2)))
			if i := r.IntN(len(held) + 1); i < len(held) {
				if r.IntN(2) == 0 {
					require.NoError(t, held[i].Done())
				} else if err := held[i].Extend(); err != nil {
					require.ErrorIs(t, err, ratelimit.ErrSettled)
				}
			}
			v, err := l.Reserve(t.Context(), ratelimit.Request{Client: fmt.Sprint(r.IntN(2)), Endpoint: "/a"}, time.Second)
			require.NoError(t, err)
			each := v.Results()
			require.True(t, each[idle].Allowed || !each[1-idle].Allowed, "%v denies, and %v does not", rules[idle], rules[1-idle])
			held = append(held, v)
		}
	}
	require.Greater(t, said, 100)
}
