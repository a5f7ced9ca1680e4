package frameworks

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/ratelimit-go/ratelimit"
)

// ownOfConnect has the rows of which Connect does not allow the same answers: why, and a test which proves that it is so.
var ownOfConnect = map[string]struct {
	why   string
	prove func(t *testing.T)
}{
	"a denied HEAD has no body":         {"answers HEAD by itself, before interceptors, with 405", refusesMethod(http.MethodHead)},
	"the route of a HEAD request":       {"answers HEAD by itself, before interceptors, with 405", refusesMethod(http.MethodHead)},
	"preflights":                        {"answers OPTIONS by itself, before interceptors, with 405", refusesMethod(http.MethodOptions)},
	"requests without a route":          {"calls interceptors only for procedures", missesProcedure},
	"gRPC has an answer of its own":     {"writes the error in the protocol of the client, with RetryInfo and without a pushback", answersGRPC},
	"answers of the service":            {"has no status but those of its codes", answersByCode},
	"a stream is sent while it is made": {"ends a stream with its code, so Count gets the status at the end", countsStreamAtItsEnd},
}

// refusesMethod proves that requests with this method are not charged, because Connect answers them.
func refusesMethod(method string) func(t *testing.T) {
	return func(t *testing.T) {
		s := onConnect.run(t, options{}, perMinute(1))
		for range 3 {
			res := s.ask(t, method, "/items/1")
			assert.Equal(t, 405, res.StatusCode)
			assert.Empty(t, res.Header.Get("Ratelimit"))
		}
		assert.Equal(t, 200, s.get(t, "/items/1"))
		assert.Equal(t, 429, s.get(t, "/items/1"))
	}
}

func missesProcedure(t *testing.T) {
	s := onConnect.run(t, options{}, perMinute(1), ratelimit.Rule{Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)})
	for range 3 {
		res := s.ask(t, http.MethodPost, "/nothing")
		assert.Equal(t, 404, res.StatusCode)
		assert.Empty(t, res.Header.Get("Ratelimit"))
	}
	assert.Equal(t, 200, s.get(t, "/items/1"))
	assert.Equal(t, 429, s.get(t, "/items/1"))
}

func answersGRPC(t *testing.T) {
	for name, protocol := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb()} {
		s := onConnect.run(t, options{}, perMinute(1))
		client := connect.NewClient[word, word](s.client, s.url+procedureOf("/items"), protocol)
		res, err := client.CallUnary(t.Context(), connect.NewRequest(&word{Value: "1"}))
		require.NoError(t, err, name)
		assert.Equal(t, "item 1", res.Msg.GetValue(), name)
		assert.NotEmpty(t, res.Header().Get("Ratelimit"), name)

		_, err = client.CallUnary(t.Context(), connect.NewRequest(&word{Value: "1"}))
		denied := (*connect.Error)(nil)
		require.ErrorAs(t, err, &denied, name)
		assert.Equal(t, connect.CodeResourceExhausted, denied.Code(), name)
		require.NotEmpty(t, denied.Details(), name)
		detail, err := denied.Details()[0].Value()
		require.NoError(t, err, name)
		retry, ok := detail.(*errdetails.RetryInfo)
		require.True(t, ok, name)
		assert.Equal(t, time.Minute, retry.GetRetryDelay().AsDuration(), name)
		assert.Equal(t, "60", denied.Meta().Get("Retry-After"), name)
		assert.Empty(t, denied.Meta().Get("Grpc-Retry-Pushback-Ms"), name)
	}
}

func answersByCode(t *testing.T) {
	s := onConnect.run(t, options{denied: true}, perMinute(1))
	assert.Equal(t, 200, s.get(t, "/items/1"))
	assert.Equal(t, 400, s.get(t, "/items/1"), "the status of failed_precondition")
	assert.True(t, strings.HasSuffix(s.answers[1], ` {"code":"failed_precondition","message":"slow down"}`), s.answers[1])
	assert.Contains(t, s.answers[1], `[Retry-After: 60]`)

	b := onConnect.run(t, options{blocked: true}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(1), Penalty: ratelimit.Penalty{After: 2, Within: time.Minute, For: time.Hour},
	})
	b.get(t, "/items/1")
	assert.Equal(t, 429, b.get(t, "/items/1"), "a usual denial")
	b.get(t, "/items/1")
	assert.Equal(t, 403, b.get(t, "/items/1"), "the status of permission_denied")
}

func countsStreamAtItsEnd(t *testing.T) {
	s := onConnect.run(t, options{count: func(status int) bool { return status >= 400 }}, perMinute(1))
	client := connect.NewClient[word, word](s.client, s.url+streamProcedure)
	for range 2 {
		stream, err := client.CallServerStream(t.Context(), connect.NewRequest(&word{}))
		require.NoError(t, err)
		require.True(t, stream.Receive(), stream.Err())
		assert.Equal(t, "one", stream.Msg().GetValue())
		assert.NotEmpty(t, stream.ResponseHeader().Get("Ratelimit"))
		assert.Equal(t, 429, s.get(t, "/empty"), "the stream is charged for as long as its code is not known")
		s.release <- struct{}{}
		require.True(t, stream.Receive(), stream.Err())
		assert.Equal(t, "two", stream.Msg().GetValue())
		require.False(t, stream.Receive())
		require.NoError(t, stream.Err())
		require.NoError(t, stream.Close())
		assert.Equal(t, 200, s.get(t, "/empty"), "a stream without an error is not charged")
	}
}
