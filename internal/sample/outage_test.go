package sample

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newLog returns a logger without times that writes to text.
func newLog(text *bytes.Buffer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// TestOutage plays a story, in which each row says what a decision found and which line it causes.
func TestOutage(t *testing.T) {
	const ms = time.Millisecond
	const begins = `msg="the store failed; failure policies decide until it answers again" rule=r error=refused`
	var text bytes.Buffer
	o, now := NewOutage(newLog(&text, slog.LevelWarn), ""), time.Unix(0, 0)
	for i, row := range []struct {
		after  time.Duration
		failed bool
		denied bool
		want   string
		why    string
	}{
		{0, false, false, "", "no outage"},
		{0, true, false, begins, "the first failure"},
		{0, true, true, "", "another client"},
		{time.Minute - 1, true, false, "", "a nanosecond early"},
		{1, true, true, `msg="the store still fails" lasted=1m0s decisions=4 denied=2 error=refused`, "a minute"},
		{2 * time.Minute, true, false, `msg="the store still fails" lasted=3m0s decisions=5 denied=2 error=refused`, "nobody came for a minute"},
		{time.Second - 1, false, false, "", "an answer, but less than a second after the last failure"},
		{1, true, false, "", "a failure after that answer"},
		{500 * ms, false, false, "", "the store answers"},
		{500*ms - 1, false, false, "", "a nanosecond early"},
		{1, false, false, `msg="the store answers again" lasted=3m1.5s decisions=6 denied=2`, "it lasted until the first answer"},
		{time.Minute - 1, true, false, begins, "the next outage, within a minute"},
		{time.Second, false, false, "", "so a second is not enough"},
		{59*time.Second - 1, false, false, "", "a nanosecond early"},
		{1, false, false, `msg="the store answers again" lasted=1s decisions=1 denied=0`, "a minute without a failure"},
		{time.Minute, true, true, begins, "a minute after the last outage"},
		{time.Second, false, false, `msg="the store answers again" lasted=1s decisions=1 denied=1`, "a second is enough"},
	} {
		now = now.Add(row.after)
		if row.failed {
			o.Failed(t.Context(), now, "r", row.denied, errors.New("refused"))
		} else {
			o.Answered(t.Context(), now)
		}
		require.Equal(t, row.want, strings.TrimSpace(text.String()), "row %d: %s", i, row.why)
		text.Reset()
	}
	require.False(t, o.Lasts())
}

// TestPartOfAStoreFails has a store of which one part fails and others answer, for an hour.
func TestPartOfAStoreFails(t *testing.T) {
	var text bytes.Buffer
	o, now := NewOutage(newLog(&text, slog.LevelWarn), ""), time.Unix(0, 0)
	for range 3600 {
		o.Failed(t.Context(), now, "r", false, errors.New("refused"))
		now = now.Add(time.Second)
		o.Answered(t.Context(), now)
	}
	lines := strings.Count(text.String(), "\n")
	require.Equal(t, 62, lines, "an outage of a second, then one with a line a minute")
}

// TestOutageIsNotFollowedWithoutALog proves that nothing is counted if the log does not want the lines.
func TestOutageIsNotFollowedWithoutALog(t *testing.T) {
	var text bytes.Buffer
	o := NewOutage(newLog(&text, slog.LevelError), "")
	o.Failed(t.Context(), time.Unix(0, 0), "r", false, errors.New("refused"))
	require.False(t, o.Lasts())
	require.Empty(t, text.String())
}

// TestOutageIsSafeForConcurrentUse has many clients at once: one line when the outage begins, one when it is over.
func TestOutageIsSafeForConcurrentUse(t *testing.T) {
	var text bytes.Buffer
	o, now := NewOutage(newLog(&text, slog.LevelWarn), ""), time.Unix(0, 0)
	for _, failed := range []bool{true, false} {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 100 {
					if failed {
						o.Failed(t.Context(), now, "r", false, errors.New("refused"))
					} else if o.Lasts() {
						o.Answered(t.Context(), now.Add(time.Second))
					}
				}
			})
		}
		wg.Wait()
	}
	require.Equal(t, 2, strings.Count(text.String(), "\n"))
	require.Contains(t, text.String(), "decisions=400")
}
