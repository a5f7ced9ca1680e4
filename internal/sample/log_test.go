package sample

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLog writes decisions at one time of day, each of which has a line or none.
func TestLog(t *testing.T) {
	denial := func(key uint64) Decision {
		return Decision{Kind: Kind{Rule: "r", Key: key}, KeyType: "user", Cost: 2, Limit: 5, RetryAfter: time.Second, Source: "memory"}
	}
	with := func(change func(d *Decision)) Decision {
		d := denial(1)
		change(&d)
		return d
	}
	const head = `msg="rate limit: denied" rule=r key_type=user cost=2 allowed=false limit=5 retry_after=1s source=memory skipped=0`
	var text bytes.Buffer
	l := NewLog(newLog(&text, slog.LevelInfo), time.Hour)
	for i, row := range []struct {
		d    Decision
		want string
		why  string
	}{
		{with(func(d *Decision) { d.Allowed = true }), "", "a grant"},
		{denial(1), head, "the first denial of a key"},
		{denial(1), "", "soon after a line of its kind"},
		{denial(2), head, "another key"},
		{with(func(d *Decision) { d.Rule, d.Reason, d.Tier = "s", "penalty", "gold" }),
			strings.Replace(head, "rule=r", "rule=s", 1) + " reason=penalty tier=gold", "what there is to say beyond"},
		{with(func(d *Decision) { d.Rule, d.Client, d.Endpoint, d.IP = "t", "c", "/e", "::1" }),
			strings.Replace(head, "rule=r", "rule=t", 1) + " client=c endpoint=/e ip=::1", "the request, if it may be written"},
		{with(func(d *Decision) { d.Cause, d.Err = CauseLimiter, errors.New("refused") }),
			strings.Replace(head, "denied", "denied because the rule's limiter failed", 1) + " error=refused", "a failure"},
		{with(func(d *Decision) { d.Key, d.Cause, d.Err = 3, CauseLimiter, errors.New("refused") }), "", "a failure concerns all keys"},
		{with(func(d *Decision) { d.Cause, d.Err = CauseStore, errors.New("refused") }),
			`msg="rate limit: the store failed; failure policies decide until it answers again" rule=r error=refused`, "an outage"},
		{with(func(d *Decision) { d.Key, d.Cause = 4, CauseStore }), "", "one line for the outage"},
	} {
		l.Write(t.Context(), &row.d)
		require.Equal(t, row.want, strings.TrimSpace(text.String()), "row %d: %s", i, row.why)
		text.Reset()
	}
	require.True(t, l.outage.Lasts())
	for _, d := range []Decision{denial(1), with(func(d *Decision) { d.FromStore, d.Allowed = true, true })} {
		require.True(t, l.outage.answered.IsZero())
		l.Write(t.Context(), &d)
	}
	require.False(t, l.outage.answered.IsZero(), "the store has answered")
}

// TestLogOfALevel proves that a line which the log does not want is not counted as written.
func TestLogOfALevel(t *testing.T) {
	var text bytes.Buffer
	l := NewLog(newLog(&text, slog.LevelWarn), time.Hour)
	l.Write(t.Context(), &Decision{Kind: Kind{Rule: "r", Key: 1}})
	require.Empty(t, text.String())
	require.Empty(t, l.sampler.kinds)
}
