package otelmetrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimit-go/ratelimit"
)

// Spans is a [ratelimit.Observer] that describes each decision on the span in the context that the limiter got from its
// caller. [NewSpans] makes one. A span that is not recorded costs no allocation.
//
// The span gets these attributes from the decision that the caller got:
//
//   - rate_limiting.limiter is the name of the limiter, see [Options];
//   - rate_limiting.policy is the name of the rule that decided, if there is one;
//   - rate_limiting.result is "allowed" or "denied";
//   - rate_limiting.source is the [ratelimit.Decision.Source];
//   - rate_limiting.limit and rate_limiting.remaining are those of the [ratelimit.Result], if a rule decided;
//   - rate_limiting.degraded is true if a failure policy has answered, and otherwise missing;
//   - rate_limiting.retry_after is how many seconds the caller of a denied request has to wait. It is missing if
//     no wait is long enough.
//
// A denial also adds the event "rate_limiting.denied" with the same attributes. A rule in shadow or advise mode that would have
// denied adds only the event, with the result "shadow_denied" or "advised". If a request needs several decisions, the span has
// the attributes of the last one, and an event for each denial. A denial does not set the status of the span.
//
// No attribute contains a client, an address or a key.
type Spans struct{ limiter attribute.KeyValue }

// NewSpans returns Spans. Pass them to a limiter by [ratelimit.WithObserver]. Of the Options, they use only Limiter. Several limiters
// may share one Spans.
func NewSpans(o Options) *Spans { return &Spans{o.limiter()} }

// Observe implements [ratelimit.Observer].
func (s *Spans) Observe(ctx context.Context, d ratelimit.Decision) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	result, enforced := resultOf(&d)
	if !enforced && d.Result.Allowed {
		return
	}
	set := s.attributes(&d, result)
	if enforced {
		span.SetAttributes(set...)
	}
	if !d.Result.Allowed {
		span.AddEvent(prefix+"denied", trace.WithAttributes(set...))
	}
}

// resultOf returns the attribute rate_limiting.result of a decision, and whether the rule that decided enforces its limit.
func resultOf(d *ratelimit.Decision) (result string, enforced bool) {
	switch {
	case d.Result.Allowed:
		result = "allowed"
	case d.Mode == ratelimit.ModeShadow:
		result = "shadow_denied"
	case d.Mode == ratelimit.ModeAdvise:
		result = "advised"
	default:
		result = "denied"
	}
	return result, d.Mode != ratelimit.ModeShadow && d.Mode != ratelimit.ModeAdvise
}

// attributes returns the attributes of a decision with this result.
func (s *Spans) attributes(d *ratelimit.Decision, result string) []attribute.KeyValue {
	set := append(make([]attribute.KeyValue, 0, 8), s.limiter,
		attribute.String(prefix+"result", result), attribute.String(prefix+"source", string(d.Source)))
	if d.Rule != "" {
		set = append(set, attribute.String(prefix+"policy", truncate(d.Rule)),
			attribute.Int64(prefix+"limit", int64(d.Result.Limit)), attribute.Int64(prefix+"remaining", int64(d.Result.Remaining)))
	}
	if d.Result.Degraded {
		set = append(set, attribute.Bool(prefix+"degraded", true))
	}
	if !d.Result.Allowed && d.Result.RetryAfter < ratelimit.Never {
		set = append(set, attribute.Float64(prefix+"retry_after", d.Result.RetryAfter.Seconds()))
	}
	return set
}
