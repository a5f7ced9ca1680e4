package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 registers.
const (
	typeQuota   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	typeReduced = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Problem answers a denied request with i.Status, or 429 if that is 0, and a problem document
// (RFC 9457) with the names of the rules that are shown and have denied. It is what answers if
// [Config.Denied] is nil, and sets Content-Type and X-Content-Type-Options; the other header
// fields are those that the Middleware has set.
//
// A gRPC request, by its Content-Type, gets the status 200 and no body, as gRPC requires, with
// Grpc-Status 8 (RESOURCE_EXHAUSTED), or 14 (UNAVAILABLE) for 503. Grpc-Retry-Pushback-Ms says
// when clients of gRPC may try again.
func Problem(w http.ResponseWriter, r *http.Request, i *Info) {
	kind, status := typeQuota, i.Status
	switch status {
	case 0:
		status = http.StatusTooManyRequests
	case http.StatusServiceUnavailable:
		kind = typeReduced
	}
	writeProblem(w, r, status, kind, i)
}

// titles are the titles of problem documents.
var titles = map[int]string{
	http.StatusTooManyRequests:     "Quota Exceeded",
	http.StatusServiceUnavailable:  "Temporary Reduced Capacity",
	http.StatusInternalServerError: "Internal Server Error",
}

// writeProblem answers with a problem document. kind is its type, or empty, and i is nil if
// there was no decision.
func writeProblem(w http.ResponseWriter, r *http.Request, status int, kind string, i *Info) {
	if isGRPC(r) {
		writeGRPC(w, r, status, i)
		return
	}
	title := titles[status]
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
		_, _ = w.Write([]byte(body + "}")) // if the client is gone, there is nobody to tell
	}
}

const grpcType = "application/grpc"

// isGRPC reports whether r is a gRPC request.
func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), grpcType)
}

// The status codes of gRPC.
const (
	grpcResourceExhausted = "8"
	grpcInternal          = "13"
	grpcUnavailable       = "14"
)

// writeGRPC answers a gRPC request. Without a body, the header is also the trailer.
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
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(pushback(i.Result, r), 10))
	}
	w.WriteHeader(http.StatusOK)
}

// maxPushback is the longest wait that a gRPC client is told of. It would hold the call, and
// what the call keeps, for that long.
const maxPushback = 10 * time.Second

// pushback returns after how many milliseconds a gRPC client may try again, or -1 if it had
// better not: the wait is longer than maxPushback or than the time that the client has given.
func pushback(res ratelimit.Result, r *http.Request) int64 {
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

// grpcUnits are the units of the header field Grpc-Timeout.
var grpcUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
}

// grpcTimeout returns the duration in a value of Grpc-Timeout, which has at most 8 digits and
// a unit, or Never if it has none.
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
