package verify

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// A table is a RateLimiter with its reference. Both are asked the same.
type table struct {
	limiter *ratelimit.RateLimiter
	book    *book
	clock   *manualClock
	few     bool     // so few keys that none is ever forgotten
	free    bool     // the clock may also step back; then keys must be few
	tiers   []string // tiers of requests
	last    ratelimit.Result
	asked   time.Time // time of the call that last is the answer to
	counts  map[string]int
}

// newTable returns a RateLimiter with these rules, and its reference.
func newTable(t require.TestingT, made time.Time, rules []bookRule, opts ...ratelimit.Option) *table {
	b := &table{book: newBook(made, rules), clock: &manualClock{made}, asked: made, counts: make(map[string]int)}
	list, defaultRule := written(rules)
	var err error
	b.limiter, err = ratelimit.New(list, defaultRule, append(opts, ratelimit.WithClock(b.clock))...)
	require.NoError(t, err)
	return b
}

// move moves the clock, mostly to an instant at which something changes.
func (b *table) move(t *rapid.T) {
	beside := time.Duration(rapid.IntRange(-1, 1).Draw(t, "beside"))
	now := b.clock.now
	switch rapid.IntRange(0, 19).Draw(t, "move") {
	case 8, 9:
		now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "ns")))
	case 10, 11, 12, 13:
		if b.last.RetryAfter != ratelimit.Never {
			now = b.asked.Add(b.last.RetryAfter + beside)
		}
	case 14:
		now = b.asked.Add(b.last.ResetAfter + beside)
	case 15:
		now = b.asked.Add(b.last.Delay + beside)
	case 16:
		now = now.Add(time.Duration(10-now.Nanosecond()%10) + beside)
	case 17:
		now = now.Add(-time.Duration(rapid.IntRange(1, 30).Draw(t, "ns")))
	case 18:
		now = b.book.made
	case 19:
		now = now.Add([]time.Duration{time.Hour, -time.Hour, year}[1+beside])
	}
	if b.free || now.After(b.clock.now) {
		b.clock.now = now
	}
}

// request returns a request for some of the rules.
func (b *table) request(t *rapid.T) ratelimit.Request {
	req := ratelimit.Request{
		Client:   aFew(t, b.few, clients, "client"),
		Endpoint: aFew(t, b.few, endpoints, "endpoint"),
		IP:       aFew(t, b.few, addresses, "ip"),
		Cost:     rapid.SampledFrom([]int{1, 0, 1, 1, 2, 3, max(b.last.Remaining, 0), b.last.Remaining + 1, max(b.last.Limit, 0), b.last.Limit + 1}).Draw(t, "cost"),
	}
	if len(b.tiers) > 0 {
		req.Tier = rapid.SampledFrom(b.tiers).Draw(t, "tier")
	}
	if rapid.IntRange(0, 3).Draw(t, "by name") == 0 {
		names := make([]string, len(b.book.rules))
		for i, r := range b.book.rules {
			names[i] = r.Name
		}
		for range rapid.IntRange(1, 6).Draw(t, "names") {
			req.Rules = append(req.Rules, rapid.SampledFrom(names).Draw(t, "name"))
		}
	}
	return req
}

// ask makes one call of the limiter, and compares the whole answer.
func (b *table) ask(t *rapid.T) {
	b.move(t)
	req := b.request(t)
	verb := rapid.SampledFrom([]string{"Allow", "Allow", "Allow", "Allow", "Allow", "Check", "Check", "Check", "Check", "Peek"}).Draw(t, "verb")
	if verb == "Allow" {
		req = ratelimit.Request{Client: req.Client, Endpoint: req.Endpoint}
	}
	if rapid.IntRange(0, 9).Draw(t, "refuse") == 9 {
		b.refuse(t, req)
	}
	before := b.looks(t, req)
	got := b.call(t, verb, req)
	want, _ := b.book.ask(b.clock.now, req, verb != "Peek")
	require.Equal(t, want, got, "%s of %+v at %+d ns; rules %+v", verb, req, b.clock.now.Sub(b.book.made), b.book.rules)
	if !got.Allowed || verb == "Peek" {
		require.Equal(t, before, b.looks(t, req), "a denial or a look changes nothing: %s of %+v", verb, req)
	}
	b.last, b.asked = got, b.clock.now
	b.note(verb, req, got)
}

func (b *table) call(t *rapid.T, verb string, req ratelimit.Request) (res ratelimit.Result) {
	var err error
	switch verb {
	case "Allow":
		res = b.limiter.Allow(req.Client, req.Endpoint)
	case "Check":
		res, err = b.limiter.Check(context.Background(), req)
	case "Peek":
		res, err = b.limiter.Peek(context.Background(), req)
	}
	require.NoError(t, err)
	return res
}

// note counts what was asked.
func (b *table) note(verb string, req ratelimit.Request, res ratelimit.Result) {
	b.counts[verb]++
	those, _ := b.book.those(req)
	special := func(r bookRule) bool {
		return r.Mode == ratelimit.ModeShadow || r.Tiers != nil || r.Resolve != nil
	}
	switch {
	case len(those) < 2:
	case verb == "Allow" && len(those) <= 4 && !slices.ContainsFunc(those, special):
		b.counts["several by the short way"]++
	default:
		b.counts["several by the long way"]++
	}
	if !res.Allowed {
		b.counts["denied"]++
	}
}

// looks returns the answer of each rule to a look. It asks each rule by name.
func (b *table) looks(t *rapid.T, req ratelimit.Request) (all []ratelimit.Result) {
	for _, r := range b.book.rules {
		req.Rules = []string{r.Name}
		res, err := b.limiter.Peek(context.Background(), req)
		require.NoError(t, err)
		all = append(all, res)
	}
	return all
}

// refuse makes requests that must be refused, and must take nothing.
func (b *table) refuse(t *rapid.T, req ratelimit.Request) {
	res, err := b.limiter.Check(ended, req)
	require.NoError(t, refused(res, err, context.Canceled))
	wrong := req
	wrong.Cost = -1
	res, err = b.limiter.Check(context.Background(), wrong)
	require.NoError(t, refused(res, err, ratelimit.ErrInvalidCount))
	wrong = req
	wrong.Rules = append(slices.Clone(req.Rules), "nobody")
	res, err = b.limiter.Check(context.Background(), wrong)
	require.NoError(t, refused(res, err, ratelimit.ErrUnknownRule))
}

// deaf is an observer that does nothing.
type deaf struct{}

func (deaf) Observe(context.Context, ratelimit.Decision) {}

// TestPropertiesOfRules plays random schedules on limiters of several rules. Every whole
// answer must be the one that follows from the models of all rules, and a denial must leave
// each model as it was.
func TestPropertiesOfRules(t *testing.T) {
	t.Parallel()
	schedules, total := 0, make(map[string]int)
	rapid.Check(t, func(t *rapid.T) {
		var opts []ratelimit.Option
		if rapid.IntRange(0, 3).Draw(t, "observed") == 0 {
			opts = append(opts, ratelimit.WithObserver(deaf{}))
		}
		b := newTable(t, rapid.SampledFrom(starts).Draw(t, "made"), drawRules(t), opts...)
		b.few = rapid.Bool().Draw(t, "few keys")
		b.free = b.few
		for range stepsEach {
			b.ask(t)
			if rapid.IntRange(0, 29).Draw(t, "reset") == 29 {
				client, endpoint := aFew(t, b.few, clients, "client"), aFew(t, b.few, endpoints, "endpoint")
				err := b.limiter.Reset(context.Background(), ratelimit.Request{Client: client, Endpoint: endpoint})
				if b.book.reset(client, endpoint) {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, ratelimit.ErrNotReset)
				}
			}
		}
		for i, s := range b.limiter.Stats() {
			want := b.book.stats[b.book.rules[i].Name]
			want.LiveKeys, want.Evicted = s.LiveKeys, s.Evicted
			require.Equal(t, *want, s)
		}
		schedules++
		for what, n := range b.counts {
			total[what] += n
		}
	})
	t.Logf("%d schedules, %d calls %v: 0 counterexamples", schedules, total["Allow"]+total["Check"]+total["Peek"], total)
	require.GreaterOrEqual(t, schedules, wantChecks())
	require.Equal(t, schedules*stepsEach, total["Allow"]+total["Check"]+total["Peek"])
	require.Positive(t, total["several by the short way"])
	require.Positive(t, total["several by the long way"])
}
