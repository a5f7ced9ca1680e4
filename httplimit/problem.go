package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// The problem types registered by draft-ietf-httpapi-ratelimit-headers-11.
const (
	typeQuota   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	typeBlocked = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// Problem answers a denied request with a problem document (RFC 9457). The status is i.Status, or 429 if
// that is 0; a handler that calls the limiter itself can set i.Status to the result of [Status]. The
// document names the rules that denied, except those that are hidden from clients. Problem sets
// Content-Type, X-Content-Type-Options and Cache-Control; the Middleware has already set the other header
// fields. If [Config.Denied] is nil, the Middleware calls Problem. The problem type is "quota-exceeded", or
// "abnormal-usage-detected" if the client is blocked, or "temporary-reduced-capacity" with the status 503.
//
// A request with a gRPC Content-Type gets the status 200 and no body, as gRPC requires. The field Grpc-Status
// is 8 (RESOURCE_EXHAUSTED) where an HTTP client would get 429, 14 (UNAVAILABLE) for 503, and 13 (INTERNAL)
// for 500. The field Grpc-Retry-Pushback-Ms tells gRPC clients when to try again.
func Problem(w http.ResponseWriter, r *http.Request, i *Info) {
	kind, status := typeQuota, i.Status
	switch status {
	case 0:
		status = http.StatusTooManyRequests
	case http.StatusServiceUnavailable:
		kind = typeReduced
	case http.StatusInternalServerError: // the function Status returns 500 if there was no decision
		kind = ""
	}
	if status == http.StatusTooManyRequests && blocked(&i.Result) {
		kind = typeBlocked
	}
	writeProblem(w, r, status, kind, i)
}

// blocked reports whether res denies a request because its client is blocked: by the Penalty of a rule, or by
// an Override.
func blocked(res *ratelimit.Result) bool {
	return res.Reason == ratelimit.ReasonPenalty || res.Reason == ratelimit.ReasonOverride
}

// titles contains the title of each problem type.
var titles = map[string]string{
	typeQuota:   "Quota Exceeded",
	typeReduced: "Temporary Reduced Capacity",
	typeBlocked: "Abnormal Usage Detected",
}

// writeProblem answers with a problem document. kind is the URI of the problem type; if it is empty, the
// type is "about:blank". i is nil if there was no decision.
func writeProblem(w http.ResponseWriter, r *http.Request, status int, kind string, i *Info) {
	if isGRPC(r) {
		writeGRPC(w, r, status, i)
		return
	}
	title := titles[kind]
	if kind == "" {
		kind, title = "about:blank", http.StatusText(status)
	}
	body := `{"type":"` + kind + `","title":"` + title + `","status":` + strconv.Itoa(status)
	if i != nil && i.violated != nil && *i.violated != "" {
		body += `,"violated-policies":[` + *i.violated + `]`
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write([]byte(body + "}")) // Write fails only if the client has left
	}
}

const grpcType = "application/grpc"

// isGRPC reports whether r is a gRPC request: whether its Content-Type is "application/grpc", alone or with a
// "+" or ";" after it.
func isGRPC(r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), grpcType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// The gRPC status codes that writeGRPC sends.
const (
	grpcResourceExhausted = "8"
	grpcInternal          = "13"
	grpcUnavailable       = "14"
)

// writeGRPC answers a gRPC request. The answer has no body, so gRPC reads its header as the trailer.
func writeGRPC(w http.ResponseWriter, r *http.Request, status int, i *Info) {
	code, message := grpcResourceExhausted, "too many requests"
	switch status {
	case http.StatusServiceUnavailable:
		code, message = grpcUnavailable, "temporarily unavailable"
	case http.StatusInternalServerError:
		code, message = grpcInternal, "internal error"
	}
	h := w.Header()
	h.Set("Content-Type", r.Header.Get("Content-Type"))
	h.Set("Grpc-Status", code)
	h.Set("Grpc-Message", message)
	h.Set("Cache-Control", "no-store")
	if i != nil {
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(pushback(i, r), 10))
	}
	w.WriteHeader(http.StatusOK)
}

// maxPushback is the longest wait that writeGRPC sends to a gRPC client. A waiting client keeps the
// call and its resources for that long.
const maxPushback = 10 * time.Second

// pushback returns after how many milliseconds a gRPC client may try again. The wait is long enough for all
// Middlewares that have got the request, not only for the Middleware that has denied it. If the wait is longer
// than maxPushback or than the timeout of the client, pushback returns -1: the client should not try again.
func pushback(i *Info, r *http.Request) int64 {
	res := i.Result
	res.RetryAfter = i.later(max(res.RetryAfter, i.outer))
	ms, ok := res.RetryAfterMs()
	wait := time.Duration(ms) * time.Millisecond
	switch {
	case !ok || res.RetryAfter > maxPushback:
		return -1
	case wait > grpcTimeout(r.Header.Get("Grpc-Timeout")):
		return -1
	}
	if deadline, set := r.Context().Deadline(); set && wait > time.Until(deadline) {
		return -1
	}
	return ms
}

// grpcUnits contains the units of time in the header field Grpc-Timeout, such as "S" in "10S".
var grpcUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
}

// grpcTimeout returns the duration of a Grpc-Timeout value, which consists of at most 8 digits and a
// unit. It returns Never for any other value.
func grpcTimeout(value string) time.Duration {
	if n := len(value); n >= 2 && n <= 9 {
		count, err := strconv.ParseUint(value[:n-1], 10, 32)
		unit := grpcUnits[value[n-1]]
		if err == nil && unit > 0 && count <= uint64(ratelimit.Never/unit) {
			return time.Duration(count) * unit
		}
	}
	return ratelimit.Never
}
