package ratelimit_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A journal keeps in memory what a logger writes.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// lines returns the lines that were written since the last call of lines.
func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.TrimSpace(j.text.String())
	j.text.Reset()
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// newJournal returns a journal and a logger that writes to it, without times.
func newJournal() (*journal, *slog.Logger) {
	j := new(journal)
	return j, slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// deniedBy returns a Decision by which this rule denies a request.
func deniedBy(rule string) ratelimit.Decision {
	return ratelimit.Decision{
		Rule: rule, KeyType: ratelimit.KeyUser, Mode: ratelimit.ModeEnforce, Cost: 2,
		Source: ratelimit.SourceMemory, Result: by(rule, no(5, 1, 12*sec, minute)),
	}
}

// outageBegins is the line that an outage begins with, if its first decision is by the rule a.
const outageBegins = `level=WARN msg="rate limit: the store failed; failure policies decide until it answers again" rule=a ` +
	`error="connection refused"`

// TestSlogObserverWrites compares the line of each kind of decision.
func TestSlogObserverWrites(t *testing.T) {
	with := func(change func(d *ratelimit.Decision)) ratelimit.Decision {
		d := deniedBy("a")
		change(&d)
		return d
	}
	const head = `level=INFO msg="rate limit: denied" rule=a key_type=user cost=2 allowed=false limit=5 retry_after=12s source=memory ` +
		`skipped=0`
	for _, row := range []struct {
		d    ratelimit.Decision
		want []string
		why  string
	}{
		{deniedBy("a"), []string{head}, "a denial"},
		{with(func(d *ratelimit.Decision) { d.Result = yes(5, 4, sec) }), nil, "a grant is not written"},
		{with(func(d *ratelimit.Decision) { d.Mode = ratelimit.ModeShadow }),
			[]string{strings.Replace(head, "denied", "would have denied", 1)}, "a shadow's denial"},
		{with(func(d *ratelimit.Decision) { d.Mode = ratelimit.ModeShadow; d.Result = yes(5, 4, sec) }), nil, "a shadow's grant is not written"},
		{with(func(d *ratelimit.Decision) {
			d.Err, d.Source, d.Result = errFault, ratelimit.SourcePolicy, degraded(yes(5, 4, sec))
		}), []string{outageBegins}, "an answer of the failure policy, even if it grants"},
		{with(func(d *ratelimit.Decision) { d.Err = errFault }), []string{outageBegins}, "an error"},
		{with(func(d *ratelimit.Decision) { d.Err, d.Source, d.Tier = errFault, ratelimit.SourceLimiter, "paid" }),
			[]string{`level=WARN msg="rate limit: denied because the rule's limiter failed" rule=a key_type=user cost=2 allowed=false limit=5 ` +
				`retry_after=12s source=limiter skipped=0 tier=paid error="connection refused"`},
			"a custom limiter"},
		{with(func(d *ratelimit.Decision) { d.Err, d.Result = ratelimit.ErrInvalidConfig, yes(5, 4, sec) }),
			[]string{`level=WARN msg="rate limit: allowed although Resolve returned an invalid rate" rule=a key_type=user cost=2 allowed=true ` +
				`limit=5 retry_after=0s source=memory skipped=0 error="ratelimit: invalid config"`},
			"an invalid rate"},
		{with(func(d *ratelimit.Decision) { d.Err, d.Mode = errFault, ratelimit.ModeShadow }),
			[]string{outageBegins}, "a shadow that could not be asked"},
		{with(func(d *ratelimit.Decision) {
			d.Request = ratelimit.Request{Client: "c", Endpoint: "/e", IP: "192.0.2.1", Tier: "paid"}
		}), []string{head + " client=c endpoint=/e ip=192.0.2.1"}, "keys, if there are any"},
	} {
		j, log := newJournal()
		ratelimit.SlogObserver(log, 0).Observe(t.Context(), row.d)
		require.Equal(t, row.want, j.lines(), row.why)
	}
}

// TestSlogObserverSamples proves that one line is written for each rule, kind of decision and
// interval, with the number of decisions left out.
func TestSlogObserverSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, log := newJournal()
		o := ratelimit.SlogObserver(log, 10*sec)
		shadow := deniedBy("a")
		shadow.Mode = ratelimit.ModeShadow
		failed := deniedBy("a")
		failed.Err, failed.Source = errFault, ratelimit.SourceLimiter
		for _, row := range []struct {
			after time.Duration
			d     ratelimit.Decision
			times int
			want  []string // what each line has: the number of lines left out, and an error
			why   string
		}{
			{0, deniedBy("a"), 3, []string{"skipped=0"}, "the first is written"},
			{0, deniedBy("b"), 2, []string{"skipped=0"}, "each rule has its own interval"},
			{0, shadow, 1, []string{"skipped=0"}, "each kind of decision has its own interval"},
			{0, failed, 2, []string{"skipped=0 error"}, "a failure is a third kind"},
			{10*sec - 1, deniedBy("a"), 1, nil, "a nanosecond early"},
			{1, deniedBy("a"), 2, []string{"skipped=3"}, "one line each interval, with the number of those left out"},
			{0, deniedBy("b"), 1, []string{"skipped=1"}, "left out lines are counted by rule"},
			{0, failed, 1, []string{"skipped=1 error"}, "left out lines are counted by kind"},
			{time.Hour, deniedBy("a"), 1, []string{"skipped=1"}, "the count is kept for any time"},
			{time.Hour, deniedBy("a"), 1, []string{"skipped=0"}, "lines that have been counted are not counted again"},
		} {
			advanceMachine(row.after)
			for range row.times {
				o.Observe(t.Context(), row.d)
			}
			lines := j.lines()
			require.Len(t, lines, len(row.want), row.why)
			for i := range lines {
				require.Contains(t, lines[i]+" ", " "+strings.TrimSuffix(row.want[i], " error")+" ", row.why)
				require.Contains(t, lines[i], "rule="+row.d.Rule, row.why)
			}
		}
	})
}

// TestSlogObserverOfALimiter proves that a key is written only with WithObservedRequests.
func TestSlogObserverOfALimiter(t *testing.T) {
	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	for _, row := range []struct {
		opts []ratelimit.Option
		keys bool
	}{
		{nil, false}, {[]ratelimit.Option{ratelimit.WithObservedRequests()}, true},
	} {
		j, log := newJournal()
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, append(row.opts,
			ratelimit.WithStore(store), ratelimit.WithClock(store.clock), ratelimit.WithObserver(ratelimit.SlogObserver(log, 0)))...)
		store.do(loses, sound, errsBefore)
		for range 3 {
			l.Allow("somebody", "/e")
		}
		lines := j.lines()
		require.Len(t, lines, 2, "a denial and a failure")
		require.Contains(t, lines[0], `level=INFO msg="rate limit: denied" rule=default`)
		require.Contains(t, lines[0], "source=store")
		require.Equal(t, row.keys, strings.Contains(lines[0], "client=somebody"), "the client is written only with WithObservedRequests")
		require.Equal(t, row.keys, strings.Contains(lines[0], "somebody"))
		require.Equal(t, strings.Replace(strings.Replace(outageBegins, "rule=a", "rule=default", 1),
			`"connection refused"`, `"ratelimit: store failed: connection refused"`, 1), lines[1], "an outage is nobody's")
	}
}

// TestSlogObserverOfACustomLimiter proves that a line says whether the limiter of its own rule has
// failed or that of another rule, even if its rule also has a Rate.
func TestSlogObserverOfACustomLimiter(t *testing.T) {
	j, log := newJournal()
	fails := answering(ratelimit.Result{}, errFault)
	l := newRules(t, []ratelimit.Rule{
		{Name: "custom", Endpoint: "*", Rate: ratelimit.PerHour(4), Limiter: fails},
		{Name: "beside", Endpoint: "/e", Rate: ratelimit.PerHour(4), Additional: true},
	}, nil, ratelimit.WithObserver(ratelimit.SlogObserver(log, 0)))
	l.Allow("c", "/alone")
	l.Allow("c", "/e")
	lines := j.lines()
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `level=WARN msg="rate limit: allowed although the rule's limiter failed" rule=custom`)
	require.Contains(t, lines[1], `level=WARN msg="rate limit: allowed although the limiter of another rule failed" rule=beside`)
}

// TestSlogObserverOfAnOutage has 10,000 clients during an outage of nearly five minutes. The log has one line when it begins,
// one a minute, and one when it is over, whatever the interval of the observer is.
func TestSlogObserverOfAnOutage(t *testing.T) {
	for _, every := range []time.Duration{0, sec, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			j, log := newJournal()
			store := newFaultyStore(t, nil)
			l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerDay(100)}, ratelimit.WithStore(store),
				ratelimit.WithFailurePolicy(ratelimit.FailLocal(1)), ratelimit.WithObserver(ratelimit.SlogObserver(log, every)))
			ask := func(seconds int) {
				for i := range 100 * seconds {
					l.Allow(strconv.Itoa(i%10000), "/")
					advanceMachine(10 * time.Millisecond)
				}
			}
			ask(1)
			require.Empty(t, j.lines(), "a store that answers")

			store.from(errsBefore)
			began := time.Now()
			ask(299)
			lines := j.lines()
			require.Len(t, lines, 5, "one when it begins, and one for each minute")
			require.Equal(t, strings.Replace(strings.Replace(outageBegins, "rule=a", "rule=default", 1),
				`"connection refused"`, `"ratelimit: store failed: connection refused"`, 1), lines[0])
			for i, line := range lines[1:] {
				require.Contains(t, line, fmt.Sprintf(
					`level=WARN msg="rate limit: the store still fails" lasted=%dm0s decisions=%d denied=0 error=`, i+1, 6000*(i+1)+1))
			}

			store.from(sound)
			decisions := 29_900
			for l.Allow("0", "/").Degraded { // until the breaker lets a call through, at an instant that it draws at random
				decisions++
				advanceMachine(sec)
			}
			over := time.Since(began)
			ask(1)
			require.Equal(t, []string{
				fmt.Sprintf(`level=WARN msg="rate limit: the store answers again" lasted=%v decisions=%d denied=0`, over, decisions),
			}, j.lines(), "one line when it is over")
			ask(60)
			require.Empty(t, j.lines())
		})
	}
}

// TestSlogObserverOfACustomLimiterWithManyClients proves that a custom limiter that fails for everybody has one line in
// an interval, and not one for each client.
func TestSlogObserverOfACustomLimiterWithManyClients(t *testing.T) {
	j, log := newJournal()
	l := newRules(t, []ratelimit.Rule{{Name: "custom", Endpoint: "*", Limiter: answering(ratelimit.Result{}, errFault)}}, nil,
		ratelimit.WithObserver(ratelimit.SlogObserver(log, time.Hour)))
	for i := range 100 {
		l.Allow(strconv.Itoa(i), "/")
	}
	require.Len(t, j.lines(), 1)
}

// TestSlogObserverIsSafeForConcurrentUse proves that concurrent decisions of one rule are written
// once in each interval.
func TestSlogObserverIsSafeForConcurrentUse(t *testing.T) {
	j, log := newJournal()
	o := ratelimit.SlogObserver(log, time.Hour)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				o.Observe(t.Context(), deniedBy(string(rune('a'+i%3))))
			}
		})
	}
	wg.Wait()
	require.Len(t, j.lines(), 3, "one line for each rule")
}

// TestSlogObserverTellsClientsApart is a regression test for issue 10: a client that is denied all
// the time must not hide the denial of another. It also proves that a nil logger is refused.
func TestSlogObserverTellsClientsApart(t *testing.T) {
	j, log := newJournal()
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1)}, ratelimit.WithObserver(ratelimit.SlogObserver(log, time.Hour)))
	for range 100 {
		l.Allow("alice", "/")
	}
	l.Allow("bob", "/")
	l.Allow("bob", "/")
	lines := j.lines()
	require.Len(t, lines, 2, "one line for alice, and one for bob")
	require.NotContains(t, strings.Join(lines, ""), "alice", "names are private")
	require.PanicsWithValue(t, "ratelimit: SlogObserver: the logger must not be nil; slog.Default() returns one",
		func() { ratelimit.SlogObserver(nil, 0) })
}
