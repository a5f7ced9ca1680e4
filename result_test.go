package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit"
)

func TestRetryAfterRoundsUp(t *testing.T) {
	for _, tt := range []struct {
		retry time.Duration
		ms, s int64
		why   string
	}{
		{1, 1, 1, "a nanosecond is not nothing"},
		{ms, 1, 1, "exactly a millisecond"},
		{ms + 1, 2, 1, "a nanosecond more"},
		{sec, 1000, 1, "exactly a second"},
		{sec + 1, 1001, 2, "a nanosecond more than a second"},
		{90 * sec, 90_000, 90, "a whole number of both"},
		{ratelimit.Never - 1, 9223372036855, 9223372037, "the longest wait there is"},
	} {
		r := ratelimit.Result{RetryAfter: tt.retry}
		gotMs, ok := r.RetryAfterMs()
		assert.True(t, ok, tt.why)
		assert.Equal(t, tt.ms, gotMs, tt.why)
		gotS, ok := r.RetryAfterSeconds()
		assert.True(t, ok, tt.why)
		assert.Equal(t, tt.s, gotS, tt.why)
	}
}

func TestRetryAfterHasNoAnswer(t *testing.T) {
	for _, tt := range []struct {
		res ratelimit.Result
		why string
	}{
		{ratelimit.Result{Allowed: true}, "granted"},
		{ratelimit.Result{RetryAfter: ratelimit.Never}, "no wait is long enough"},
		{ratelimit.Result{}, "nothing was decided"},
	} {
		n, ok := tt.res.RetryAfterMs()
		assert.False(t, ok, tt.why)
		assert.Zero(t, n, tt.why)
		n, ok = tt.res.RetryAfterSeconds()
		assert.False(t, ok, tt.why)
		assert.Zero(t, n, tt.why)
	}
}
