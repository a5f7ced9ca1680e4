package lint_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/lint"
)

func TestOverrides(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	of := func(whom, effect string, hours int, rules ...string) ratelimit.Override {
		o := ratelimit.Override{Effect: effect, Rules: rules}
		if o.Client = whom; whom[0] == '1' || whom[0] == ':' {
			o.Client, o.IP = "", whom
		}
		if hours != 0 {
			o.Until = now.Add(time.Duration(hours) * time.Hour)
		}
		return o
	}
	const block, exempt, rate = ratelimit.EffectBlock, ratelimit.EffectExempt, ratelimit.EffectRate
	for _, row := range []struct {
		why  string
		all  []ratelimit.Override
		want []string // code and index of the override
	}{
		{"nothing", nil, nil},
		{"a block", []ratelimit.Override{of("alice", block, 0)}, nil},
		{"an exemption without an end", []ratelimit.Override{of("alice", exempt, 0), of("bob", exempt, 1)}, []string{"RL013 0"}},
		{"everybody", []ratelimit.Override{of("::/0", block, 0), of("::/0", exempt, 1), of("::/0", rate, 1), of("::/1", block, 0)},
			[]string{"RL014 0", "RL014 1", "RL015 1", "RL015 2"}},
		{"ended", []ratelimit.Override{of("alice", exempt, -1), of("bob", block, 1)}, []string{"RL016 0"}},
		{"a block of all beats an exemption of all", []ratelimit.Override{of("a", exempt, 1), of("a", block, 0)}, []string{"RL015 0"}},
		{"which outlasts it", []ratelimit.Override{of("a", exempt, 2), of("a", block, 1)}, nil},
		{"equally long", []ratelimit.Override{of("a", exempt, 1), of("a", block, 1)}, []string{"RL015 0"}},
		{"a block that has ended beats nothing", []ratelimit.Override{of("a", exempt, 1), of("a", block, -1)}, []string{"RL016 1"}},
		{"of a rule, one of all does not matter", []ratelimit.Override{of("a", exempt, 1, "x"), of("a", block, 0)}, nil},
		{"each of all rules is named", []ratelimit.Override{of("a", rate, 1), of("a", exempt, 1, "y", "x")}, []string{"RL015 0"}},
		{"one rule is not named", []ratelimit.Override{of("a", rate, 1), of("a", exempt, 1, "x")}, nil},
		{"a block of all also denies what no rule covers", []ratelimit.Override{of("a", block, 1), of("a", exempt, 1, "y", "x")}, nil},
		{"some rules are named", []ratelimit.Override{of("a", rate, 1, "x", "y"), of("a", block, 1, "x"), of("a", exempt, 1, "y")},
			[]string{"RL015 0"}},
		{"twice", []ratelimit.Override{of("a", block, 2, "x", "y"), of("a", block, 1, "y", "x", "x")}, []string{"RL015 0"}},
		{"one address in two spellings", []ratelimit.Override{of("10.0.0.1/32", exempt, 1), of("::ffff:10.0.0.1", block, 0)},
			[]string{"RL015 0"}},
		{"another prefix", []ratelimit.Override{of("10.0.0.0/8", exempt, 1), of("10.0.0.0/9", block, 0)}, nil},
		{"a client of that name", []ratelimit.Override{of("a", exempt, 1), {Client: "10.0.0.1", Effect: block}, of("10.0.0.1", exempt, 1)}, nil},
	} {
		var got []string
		for _, f := range lint.Overrides(row.all, []string{"x", "y"}, now) {
			got = append(got, fmt.Sprintf("%s %d", f.Code, f.Rule))
			require.NotEmpty(t, f.Message)
			require.NotEmpty(t, f.Advice)
		}
		require.Equal(t, row.want, got, row.why)
	}
}

// TestPenaltyIsNoSofterRule proves that a rule with a penalty can deny behind a stricter rule.
func TestPenaltyIsNoSofterRule(t *testing.T) {
	soft := ratelimit.Rule{Name: "soft", Endpoint: "/a", Rate: ratelimit.PerMinute(20)}
	hard := ratelimit.Rule{Name: "hard", Endpoint: "/a", Rate: perMinute}
	require.Len(t, check(t, lint.Options{}, nil, hard, soft), 1)
	soft.Penalty = ratelimit.Penalty{After: 1, Within: time.Minute, For: time.Hour}
	require.Empty(t, check(t, lint.Options{}, nil, hard, soft))
}
