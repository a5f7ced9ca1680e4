package connectlimit

import (
	"errors"
	"maps"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// errOutside is the error of Allow and Reserve if no Interceptor limits the call with the given context.
var errOutside = connect.NewError(connect.CodeInternal, errors.New("connectlimit: the context is not that of a limited call"))

// maxName is the largest number of bytes of a rule's name in the details of an error.
const maxName = 256

// The reason and the domain in the ErrorInfo of a denial, if the client is blocked by the Penalty of a rule or by an
// Override. Package grpclimit tells gRPC clients the same.
const (
	reasonBlocked = "ABNORMAL_USAGE_DETECTED"
	reasonDomain  = "github.com/ratelimit-go/ratelimit"
)

// Denial returns the error for a denied call: with the code resource_exhausted, or unavailable if all rules that denied
// did so by [ratelimit.FailClosed]. The details of the error have a RetryInfo, unless the call would be denied after any
// wait. They have a QuotaFailure with the names of the rules that denied, except those that are hidden from clients. If
// the client is blocked, they have an ErrorInfo with the reason ABNORMAL_USAGE_DETECTED. The client also gets the header
// fields of the response in the metadata of the error.
func Denial(i *httplimit.Info) *connect.Error {
	blocked := i.Result.Reason == ratelimit.ReasonPenalty || i.Result.Reason == ratelimit.ReasonOverride
	code, message := connect.CodeResourceExhausted, "too many requests"
	switch {
	case blocked:
		message = "abnormal usage detected"
	case i.Status == http.StatusServiceUnavailable:
		code, message = connect.CodeUnavailable, "temporarily unavailable"
	}
	denied := connect.NewError(code, errors.New(message))
	if wait := i.Wait(); wait != ratelimit.Never {
		attach(denied, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	quota := &errdetails.QuotaFailure{}
	for _, rule := range i.Violated() {
		name := strings.ToValidUTF8(rule[:min(len(rule), maxName)], "\uFFFD")
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{Description: name})
	}
	if len(quota.Violations) > 0 {
		attach(denied, quota)
	}
	if blocked {
		attach(denied, &errdetails.ErrorInfo{Reason: reasonBlocked, Domain: reasonDomain})
	}
	return denied
}

// attach adds a detail to the error e.
func attach(e *connect.Error, detail proto.Message) {
	if d, err := connect.NewErrorDetail(detail); err == nil {
		e.AddDetail(d)
	}
}

// answer returns the error for the client of a call that does not pass. The parameter err is what Config.Denied has
// returned; it is nil if the limiter has failed, or the call has ended.
func (x *exchange) answer(err error) error {
	if ended := x.Err(); err == nil && ended != nil {
		return ended // the client gets the code canceled or deadline_exceeded, which Connect derives from this error
	}
	if err == nil {
		return connect.NewError(connect.CodeInternal, errors.New("internal error"))
	}
	own := (*connect.Error)(nil)
	if !errors.As(err, &own) {
		return err
	}
	// Copy the error before adding header fields, because Config.Denied may return the same error for several calls.
	denied := connect.NewError(own.Code(), own.Unwrap())
	for _, detail := range own.Details() {
		denied.AddDetail(detail)
	}
	maps.Copy(denied.Meta(), own.Meta())
	maps.Copy(denied.Meta(), x.fields)
	return denied
}

// statuses are the HTTP statuses that stand for codes in the protocol Connect.
var statuses = map[connect.Code]int{
	connect.CodeCanceled:           499,
	connect.CodeUnknown:            http.StatusInternalServerError,
	connect.CodeInvalidArgument:    http.StatusBadRequest,
	connect.CodeDeadlineExceeded:   http.StatusGatewayTimeout,
	connect.CodeNotFound:           http.StatusNotFound,
	connect.CodeAlreadyExists:      http.StatusConflict,
	connect.CodePermissionDenied:   http.StatusForbidden,
	connect.CodeResourceExhausted:  http.StatusTooManyRequests,
	connect.CodeFailedPrecondition: http.StatusBadRequest,
	connect.CodeAborted:            http.StatusConflict,
	connect.CodeOutOfRange:         http.StatusBadRequest,
	connect.CodeUnimplemented:      http.StatusNotImplemented,
	connect.CodeInternal:           http.StatusInternalServerError,
	connect.CodeUnavailable:        http.StatusServiceUnavailable,
	connect.CodeDataLoss:           http.StatusInternalServerError,
	connect.CodeUnauthenticated:    http.StatusUnauthorized,
}

// statusOf returns the HTTP status that stands for the code of the error err of a handler, or 200 if err is nil.
func statusOf(err error) int {
	if err == nil {
		return http.StatusOK
	}
	if status := statuses[connect.CodeOf(err)]; status != 0 {
		return status
	}
	return http.StatusInternalServerError
}
