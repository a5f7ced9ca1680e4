package ruleconfig

import (
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Policy is a failure policy. The zero Policy is none.
type Policy struct {
	Name     string // "open", "closed" or "local"
	Replicas int    // of "local", at least 1
}

const policyForm = `must be "open", "closed", "local" or, of 4 replicas, "local:4"`

// ParsePolicy returns the policy that text spells, or the reason why there is none.
func ParsePolicy(text string) (p Policy, reason string) {
	switch text {
	case "open", "closed":
		return Policy{Name: text}, ""
	case "local":
		return Policy{text, 1}, ""
	}
	replicas, local := strings.CutPrefix(text, "local:")
	count, err := strconv.ParseUint(replicas, 10, 31)
	switch {
	case !local || err != nil:
		return Policy{}, policyForm
	case count < 1:
		return Policy{}, "must have at least 1 replica"
	}
	return Policy{"local", int(count)}, ""
}

// policy reads the failure policy of the rule at n.
func (r *Reader) policy(n *confmap.Node) Policy {
	v, ok := n.Get("onStoreError")
	if !ok {
		return Policy{}
	}
	text, _ := confmap.TextOf(v)
	p, reason := ParsePolicy(text)
	if reason != "" {
		r.Reject(n.Field("onStoreError"), n.Describe("onStoreError"), reason)
	}
	return p
}

// policyIn returns the policy that the value of another field spells, such as "closed" for
// "FAIL_CLOSED", or an empty text.
func policyIn(value any) string {
	text, _ := confmap.TextOf(value)
	text = strings.TrimPrefix(confmap.Fold(text), "fail")
	if _, reason := ParsePolicy(text); reason != "" {
		return ""
	}
	return text
}
