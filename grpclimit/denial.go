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

// The trailer that tells a gRPC client after how many milliseconds to send a call again.
const (
	pushbackKey = "grpc-retry-pushback-ms"
	noRetry     = "-1" // the client should not
)

// pushback returns the trailer of a call that was denied for wait. The client should not send it
// again by itself if it would wait for longer than MaxPushback, or until after its deadline.
func (i *Interceptors) pushback(ctx context.Context, wait time.Duration) metadata.MD {
	ms, _ := ratelimit.Result{RetryAfter: wait}.RetryAfterMs() // 0 for Never, which is beyond MaxPushback
	rounded := time.Duration(ms) * time.Millisecond
	deadline, set := ctx.Deadline()
	if wait > i.config.MaxPushback || set && rounded > time.Until(deadline) {
		return metadata.MD{pushbackKey: {noRetry}}
	}
	return metadata.MD{pushbackKey: {strconv.FormatInt(ms, 10)}}
}

// A ruleTable has the rules of one time by their names.
type ruleTable struct {
	rules       []ratelimit.Rule
	defaultRule *ratelimit.Rule
	byName      map[string]*ratelimit.Rule
}

// table returns the rules of now. It is made anew after the rules have changed.
func (i *Interceptors) table() *ruleTable {
	rules, defaultRule := i.limiter.Rules()
	if t := i.shown.Load(); t != nil && t.are(rules, defaultRule) {
		return t
	}
	t := &ruleTable{rules, defaultRule, make(map[string]*ratelimit.Rule, len(rules)+1)}
	for i := range rules {
		t.byName[rules[i].Name] = &rules[i]
	}
	if defaultRule != nil {
		t.byName[defaultRule.Name] = defaultRule
	}
	i.shown.Store(t)
	return t
}

// are reports whether t is of these rules. The limiter shares them while they do not change.
func (t *ruleTable) are(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) bool {
	return t.defaultRule == defaultRule && len(t.rules) == len(rules) && (len(rules) == 0 || &t.rules[0] == &rules[0])
}

// closed reports whether the denial of res is that of FailClosed, for want of a store.
func (t *ruleTable) closed(res *ratelimit.Result) bool {
	rule := t.byName[res.Rule]
	return rule != nil && res.Degraded && rule.OnStoreError == ratelimit.FailClosed
}

// hides reports whether clients are not told of the rule of this name, as it is about what
// others do too.
func (t *ruleTable) hides(name string) bool {
	rule := t.byName[name]
	return rule != nil && (rule.Key == ratelimit.KeyGlobal || rule.Key == ratelimit.KeyEndpoint)
}

// The most that a denial tells of rules. A client or a proxy may refuse a longer trailer.
const (
	maxRules = 8   // rules that are named
	maxName  = 256 // bytes of a name
)

// denial returns the error for a call that the rules of each have denied. If own is set, it is for
// this program itself, and has the rules too that hide from clients.
func (i *Interceptors) denial(res ratelimit.Result, each []ratelimit.Result, own bool) error {
	t, quota := i.table(), &errdetails.QuotaFailure{}
	code, message := codes.Unavailable, "temporarily unavailable"
	for k := range each {
		rule := &each[k]
		if rule.Allowed {
			continue
		}
		if !t.closed(rule) {
			code, message = codes.ResourceExhausted, "too many requests"
		}
		if (own || !t.hides(rule.Rule)) && len(quota.Violations) < maxRules {
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
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err()
}

// described returns the name of a rule as the details can hold it.
func described(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "\uFFFD")
}
