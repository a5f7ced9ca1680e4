package ruleconfig

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Policy is a failure policy: it says what a rule does while its store fails. The zero Policy means
// that a rule has none.
type Policy struct {
	Name     string // Open, Closed or Local; empty in the zero Policy
	Replicas int    // number of processes among which the rate is divided, at least 1; 0 unless Name is Local
}

// The names of the policies.
const (
	Open   = "open"
	Closed = "closed"
	Local  = "local"
)

const (
	policyForm = `must be "open", "closed", "local" or, of 4 replicas, "local:4"`
	noReplica  = "must have at least 1 replica"
)

// String returns the policy as a config spells it, such as "open" or "local:4", or "inherit" if p is zero.
func (p Policy) String() string {
	if p.Name == Local {
		return p.Name + ":" + strconv.Itoa(p.Replicas)
	}
	return cmp.Or(p.Name, "inherit")
}

// Problem returns a text that says what p must be, or an empty text if p is valid.
func (p Policy) Problem() string {
	if p.Name == Local && p.Replicas < 1 {
		return noReplica
	}
	return ""
}

// ParsePolicy returns the policy that is written in text. If text is not a policy, reason says what a
// policy must be.
func ParsePolicy(text string) (p Policy, reason string) {
	switch text {
	case Open, Closed:
		return Policy{Name: text}, ""
	case Local:
		return Policy{text, 1}, ""
	}
	replicas, local := strings.CutPrefix(text, Local+":")
	count, err := strconv.ParseUint(replicas, 10, 31)
	switch {
	case !local || err != nil:
		return Policy{}, policyForm
	case count < 1:
		return Policy{}, noReplica
	}
	return Policy{Local, int(count)}, ""
}

// Policy reads the failure policy of the rule with the config n.
func (r *Reader) Policy(n *confmap.Node) Policy {
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

// policyIn returns the failure policy that the given value was probably meant to be, such as "closed" for
// "FAIL_CLOSED", or an empty text. The value is that of another field, in which the user may have written
// a failure policy by mistake.
func policyIn(value any) string {
	text, _ := confmap.TextOf(value)
	text = strings.TrimPrefix(confmap.Fold(text), "fail")
	if _, reason := ParsePolicy(text); reason != "" {
		return ""
	}
	return text
}
