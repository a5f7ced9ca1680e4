package ratelimit_test

import (
	"bytes"
	"context"
	"log/slog"
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

// newJournal returns a journal, and a logger that writes there, without times.
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

// deniedBy is a Decision by which this rule denies a request.
func deniedBy(rule string) ratelimit.Decision {
	return ratelimit.Decision{
		Rule: rule, KeyType: ratelimit.KeyUser, Mode: ratelimit.ModeEnforce, Cost: 2,
		Source: ratelimit.SourceMemory, Result: by(rule, no(5, 1, 12*sec, mins)),
	}
}

// TestSlogObserverWrites compares the line that is written for each kind of decision.
func TestSlogObserverWrites(t *testing.T) {
	with := func(change func(d *ratelimit.Decision)) ratelimit.Decision {
		d := deniedBy("a")
		change(&d)
		return d
	}
	const head = `level=INFO msg="rate limit: denied" rule=a key_type=user cost=2 allowed=false limit=5 retry_after=12s source=memory skipped=0`
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
		}), []string{`level=WARN msg="rate limit: allowed although the store failed" rule=a key_type=user cost=2 allowed=true limit=5 retry_after=0s source=policy skipped=0 error="connection refused"`},
			"an answer of the failure policy, even if it grants"},
		{with(func(d *ratelimit.Decision) { d.Err = errFault }),
			[]string{`level=WARN msg="rate limit: denied because the store failed" rule=a key_type=user cost=2 allowed=false limit=5 retry_after=12s source=memory skipped=0 error="connection refused"`},
			"an error"},
		{with(func(d *ratelimit.Decision) { d.Err, d.Source, d.Tier = errFault, ratelimit.SourceLimiter, "paid" }),
			[]string{`level=WARN msg="rate limit: denied because the rule's limiter failed" rule=a key_type=user cost=2 allowed=false limit=5 retry_after=12s source=limiter skipped=0 tier=paid error="connection refused"`},
			"a custom limiter"},
		{with(func(d *ratelimit.Decision) { d.Err, d.Result = ratelimit.ErrInvalidConfig, yes(5, 4, sec) }),
			[]string{`level=WARN msg="rate limit: allowed although Resolve returned an invalid rate" rule=a key_type=user cost=2 allowed=true limit=5 retry_after=0s source=memory skipped=0 error="ratelimit: invalid config"`},
			"an invalid rate"},
		{with(func(d *ratelimit.Decision) { d.Err, d.Mode = errFault, ratelimit.ModeShadow }),
			[]string{`level=WARN msg="rate limit: would have denied because the store failed" rule=a key_type=user cost=2 allowed=false limit=5 retry_after=12s source=memory skipped=0 error="connection refused"`},
			"a shadow that could not be asked"},
		{with(func(d *ratelimit.Decision) {
			d.Request = ratelimit.Request{Client: "c", Endpoint: "/e", IP: "192.0.2.1", Tier: "paid"}
		}), []string{head + " client=c endpoint=/e ip=192.0.2.1"}, "keys, if there are any"},
	} {
		j, log := newJournal()
		ratelimit.SlogObserver(log, 0).Observe(t.Context(), row.d)
		require.Equal(t, row.want, j.lines(), row.why)
	}
}

// TestSlogObserverSamples proves that one line is written per rule, kind and interval, and
// that it counts those left out.
func TestSlogObserverSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, log := newJournal()
		o := ratelimit.SlogObserver(log, 10*sec)
		shadow := deniedBy("a")
		shadow.Mode = ratelimit.ModeShadow
		failed := deniedBy("a")
		failed.Err = errFault
		for _, row := range []struct {
			after time.Duration
			d     ratelimit.Decision
			times int
			want  []string // the end of each line, up to the count
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
			pass(row.after)
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

// TestSlogObserverOfALimiter proves that keys are written to the log only if
// WithObservedRequests asks for it.
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
		require.Contains(t, lines[1], `level=WARN msg="rate limit: denied because the store failed" rule=default`)
		require.Contains(t, lines[1], "source=policy")
		require.Contains(t, lines[1], "connection refused")
		for _, line := range lines {
			require.Equal(t, row.keys, strings.Contains(line, "client=somebody"), "the client is written only with WithObservedRequests")
			require.Equal(t, row.keys, strings.Contains(line, "somebody"))
		}
	}
}

// TestSlogObserverOfACustomLimiter proves that a line says whose limiter has failed: a rule's own,
// also if the rule has a Rate, or that of another rule.
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

// TestSlogObserverIsSafeForConcurrentUse proves that concurrent decisions of one rule are
// written once an interval.
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

// TestSlogObserverTellsClientsApart is a regression test for issue 10: alice, who is denied all the
// time, does not hide that bob is denied. A logger that is missing is refused.
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
	require.PanicsWithValue(t, "ratelimit: SlogObserver: the logger must not be nil; slog.Default() returns one", func() { ratelimit.SlogObserver(nil, 0) })
}

// TestObserverGetsTheContext proves that an observer gets the caller's context, and is told the
// tier and the rate that decided, and the key as a number.
func TestObserverGetsTheContext(t *testing.T) {
	var ctxs []context.Context
	var told []ratelimit.Decision
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	o := ctxObserver(func(ctx context.Context, d ratelimit.Decision) { ctxs, told = append(ctxs, ctx), append(told, d) })
	paid, special := ratelimit.PerMinute(9), ratelimit.PerMinute(7)
	rule := ratelimit.Rule{Rate: ratelimit.PerMinute(1), Tiers: map[string]ratelimit.Rate{"paid": paid}}
	resolved := rule
	resolved.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) { return special, req.Client == "special" }
	type name struct{}
	ctx := context.WithValue(t.Context(), name{}, 1)
	for _, l := range []*ratelimit.RateLimiter{
		newRules(t, nil, &rule, ratelimit.WithClock(clock), ratelimit.WithObserver(o)),
		newRules(t, nil, &resolved, ratelimit.WithClock(clock), ratelimit.WithObserver(o)),
		newRules(t, nil, &resolved, ratelimit.WithClock(clock), ratelimit.WithObserver(o), ratelimit.WithStore(store), ratelimit.WithName("n")),
	} {
		ctxs, told = nil, nil
		clock.Advance(sec)
		l.Allow("c", "/")
		checked(l.Check(ctx, ratelimit.Request{Client: "c", Tier: "paid"}))
		checked(l.Check(ctx, ratelimit.Request{Client: "d", Tier: "none"}))
		checked(l.Check(nil, ratelimit.Request{Client: "special", Tier: "paid"})) //nolint:staticcheck // nil is allowed
		require.Equal(t, []context.Context{context.Background(), ctx, ctx, context.Background()}, ctxs)
		require.Equal(t, []string{"", "paid", ""}, []string{told[0].Tier, told[1].Tier, told[2].Tier})
		require.Equal(t, []ratelimit.Rate{rule.Rate, paid, rule.Rate}, []ratelimit.Rate{told[0].Rate, told[1].Rate, told[2].Rate})
		if told[3].Tier == "" {
			require.Equal(t, special, told[3].Rate)
		} else {
			require.Equal(t, paid, told[3].Rate, "without Resolve")
		}
		for _, d := range told {
			require.Equal(t, clock.Now(), d.Time)
			require.Equal(t, ratelimit.AlgorithmTokenBucket, d.Algorithm)
			require.NotZero(t, d.Key)
		}
		require.Equal(t, told[0].Key, told[1].Key, "one client")
		require.NotEqual(t, told[0].Key, told[2].Key, "another client")
	}
}

// A ctxObserver is an Observer that is a function.
type ctxObserver func(ctx context.Context, d ratelimit.Decision)

func (f ctxObserver) Observe(ctx context.Context, d ratelimit.Decision) { f(ctx, d) }
