package grpclimit

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-go/ratelimit"
)

// The trailer that tells a gRPC client after how many milliseconds to retry a call.
const (
	pushbackKey = "grpc-retry-pushback-ms"
	noRetry     = "-1" // asks the client not to retry
)

// pushback returns the trailer for a denied call that could be granted after the given wait. If the wait
// is longer than MaxPushback or exceeds the deadline of the call, the trailer asks the client not to
// retry.
func (i *Interceptors) pushback(ctx context.Context, wait time.Duration) metadata.MD {
	// For the wait Never, ms is 0. This 0 is not used, because Never is longer than any MaxPushback.
	ms, _ := ratelimit.Result{RetryAfter: wait}.RetryAfterMs()
	rounded := time.Duration(ms) * time.Millisecond
	deadline, set := ctx.Deadline()
	if wait > i.config.MaxPushback || set && rounded > time.Until(deadline) {
		return metadata.MD{pushbackKey: {noRetry}}
	}
	return metadata.MD{pushbackKey: {strconv.FormatInt(ms, 10)}}
}

// A ruleTable contains the rules of the limiter by name. After a change of the rules, a new ruleTable is
// made.
type ruleTable struct {
	rules       []ratelimit.Rule
	defaultRule *ratelimit.Rule
	byName      map[string]*ratelimit.Rule
	holds       time.Duration // the shortest Per of the rules that limit how many calls run at once; 0 if no rule does
}

// table returns the ruleTable of the current rules. It makes a new table only if the rules have changed.
func (i *Interceptors) table() *ruleTable {
	rules, defaultRule := i.limiter.Rules()
	if t := i.shown.Load(); t != nil && t.are(rules, defaultRule) {
		return t
	}
	t := &ruleTable{rules: rules, defaultRule: defaultRule, byName: make(map[string]*ratelimit.Rule, len(rules)+1)}
	add := func(r *ratelimit.Rule) {
		t.byName[r.Name] = r
		if r.Algorithm == ratelimit.AlgorithmInFlight && (t.holds == 0 || r.Rate.Per < t.holds) {
			t.holds = r.Rate.Per
		}
	}
	for i := range rules {
		add(&rules[i])
	}
	if defaultRule != nil {
		add(defaultRule)
	}
	i.shown.Store(t)
	return t
}

// The method ruleTable.are reports whether the table t was made from these rules. It compares only the
// addresses of the rules, because the limiter returns the same slice until the rules change.
func (t *ruleTable) are(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) bool {
	return t.defaultRule == defaultRule && len(t.rules) == len(rules) && (len(rules) == 0 || &t.rules[0] == &rules[0])
}

// The method closed reports whether res is a denial by the failure policy FailClosed, which denies requests
// while the store or the custom limiter of the rule fails.
func (t *ruleTable) closed(res *ratelimit.Result) bool {
	rule := t.byName[res.Rule]
	return rule != nil && res.Degraded && rule.OnStoreError == ratelimit.FailClosed
}

// hides reports whether the rule with this name must not be shown to clients, because all clients share its
// budget.
func (t *ruleTable) hides(name string) bool {
	rule := t.byName[name]
	return rule != nil && (rule.Key == ratelimit.KeyGlobal || rule.Key == ratelimit.KeyEndpoint)
}

// These bounds keep the trailer of a denial short, as a client or a proxy may refuse a long one.
const (
	maxRules = 8   // the largest number of rules that the trailer names
	maxName  = 256 // the largest number of bytes of a rule's name in the trailer
)

// The reason and the domain in the ErrorInfo of a denial, if the client is blocked by the Penalty of a rule or by an
// Override. The package httplimit tells HTTP clients the same: its problem document has the type abnormal-usage-detected.
const (
	reasonBlocked = "ABNORMAL_USAGE_DETECTED"
	reasonDomain  = "github.com/ratelimit-go/ratelimit"
)

// denial returns the error for a call that was denied with the result res. The slice each has one result for
// each rule that decided. The parameter own is true if this program makes the call as a client. Then the error
// stays in this program, so it also names the rules that a server hides from its clients.
func (i *Interceptors) denial(res ratelimit.Result, each []ratelimit.Result, own bool) error {
	t, quota := i.table(), &errdetails.QuotaFailure{}
	code, message := codes.Unavailable, "temporarily unavailable"
	blocked := res.Reason == ratelimit.ReasonPenalty || res.Reason == ratelimit.ReasonOverride
	if blocked {
		code, message = codes.ResourceExhausted, "abnormal usage detected"
	}
	for k := range each {
		rule := &each[k]
		if rule.Allowed {
			continue
		}
		if !t.closed(rule) && !blocked {
			code, message = codes.ResourceExhausted, "too many requests"
		}
		if rule.Rule != "" && (own || !t.hides(rule.Rule)) && len(quota.Violations) < maxRules {
			quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{Description: described(rule.Rule)})
		}
	}
	var details []protoadapt.MessageV1
	if res.RetryAfter != ratelimit.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(res.RetryAfter)})
	}
	if len(quota.Violations) > 0 {
		details = append(details, quota)
	}
	if blocked {
		details = append(details, &errdetails.ErrorInfo{Reason: reasonBlocked, Domain: reasonDomain})
	}
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// described returns the name of a rule for the details of an error: as valid UTF-8 and of limited length.
func described(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "\uFFFD")
}
