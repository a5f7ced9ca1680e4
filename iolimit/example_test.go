package iolimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/iolimit"
)

// A server limits how many bytes each client uploads and downloads. Both count by the same rule.
func Example() {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "bytes", Rate: ratelimit.PerSecond(10 << 20)}, // 10 MiB a second for each client
	}, nil)
	if err != nil {
		panic(err)
	}
	copyBack := func(w http.ResponseWriter, r *http.Request) {
		client := r.Header.Get("X-Client") // in a service: whom the request has proved to be
		wait := func(ctx context.Context, n int) error {
			res, err := limiter.Wait(ctx, ratelimit.Request{Client: client, Endpoint: "bytes", Cost: n})
			if res.Allowed { // err may be set: the store has failed, and the policy of the rule has let the bytes pass
				return nil
			}
			return err
		}
		upload := iolimit.NewReader(r.Context(), r.Body, wait)
		download := iolimit.ResponseWriter(r.Context(), w, wait)
		_, _ = io.Copy(download, upload)
	}

	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", strings.NewReader("hello"))
	copyBack(w, r)
	fmt.Println(w.Body, limiter.Stats()[0].Allowed)
	// Output: hello 2
}
