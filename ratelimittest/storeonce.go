package ratelimittest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An oncer is a store with the method Once, which charges a request with an ID only once.
type oncer interface {
	Once(ctx context.Context, once ratelimit.Attempt, asks []ratelimit.Ask) (results []ratelimit.Result, replayed bool, err error)
}

// mostReplays is the largest number of times that a store repeats the answer to a granted request.
const mostReplays = 100

// A keptGrant is what the modelStore remembers about a granted request with an ID.
type keptGrant struct {
	at      time.Time
	ttl     time.Duration
	replays int
	results map[stateID]ratelimit.Result
}

// answers reports whether a repetition of the request at the given time still gets the recorded grant g
// as its answer.
func (g *keptGrant) answers(at time.Time) bool {
	return g != nil && max(at.Sub(g.at), 0) < g.ttl && g.replays < mostReplays
}

// onceText returns a text that identifies a request with an ID. The order of its asks makes no
// difference.
func onceText(o ratelimit.Attempt, asks []ratelimit.Ask) string {
	texts := []string{fmt.Sprintf("%q %q", o.Client, o.ID)}
	for _, a := range asks {
		texts = append(texts, fmt.Sprintf("%q %q %q %d %t", a.Rule, a.Key, a.Algorithm, a.N, a.Shadow))
	}
	slices.Sort(texts[1:])
	return strings.Join(texts, "\n")
}

// once answers the asks of a request with an ID at the given time. If the request was granted
// before, once repeats the grant. Otherwise it does what the method take does or, if o has Look set,
// answers the asks without charging them.
func (s *modelStore) once(at time.Time, o ratelimit.Attempt, asks []ratelimit.Ask) (results []ratelimit.Result, replayed bool) {
	g := s.grants[onceText(o, asks)]
	results = make([]ratelimit.Result, len(asks))
	switch {
	case g.answers(at):
		if !o.Look {
			g.replays++
		}
		since := max(at.Sub(g.at), 0)
		for i, a := range asks {
			res := g.results[idOf(a)]
			if res.Delay = max(res.Delay-since, 0); res.ResetAfter != ratelimit.Never {
				res.ResetAfter = max(res.ResetAfter-since, 0)
			}
			results[i] = res
		}
		return results, true
	case o.Look:
		for i, a := range asks {
			results[i] = s.state(a).meet(at, a.Rate, a.N)
		}
		return results, false
	}
	results = s.take(at, asks)
	g = &keptGrant{at: at, ttl: o.TTL, results: make(map[stateID]ratelimit.Result)}
	for i, a := range asks {
		if !a.Shadow && !results[i].Allowed {
			return results, false
		}
		g.results[idOf(a)] = results[i]
	}
	s.grants[onceText(o, asks)] = g
	return results, false
}

// onceKinds returns the kinds of schedules for the subtests of Once.
func (k *storeKit) onceKinds() []scheduleKind {
	return []scheduleKind{{name: "once", algorithms: k.Algorithms, several: true, shadows: true, resets: true, ids: true}}
}

// withID turns most calls of Take into calls of Once. Often it repeats an earlier call with its
// asks in another order.
func (w *storeWriter) withID(c storeCall) storeCall {
	if !w.ids || c.reset || w.IntN(4) == 0 {
		return c
	}
	for i := range c.asks {
		c.asks[i].N = max(c.asks[i].N, 1)
	}
	c.once = ratelimit.Attempt{Client: []string{"a", "b", ""}[w.IntN(3)], ID: fmt.Sprint(w.IntN(3)), TTL: w.term(c.asks[0].Rate)}
	if len(w.sent) > 0 && w.IntN(3) > 0 {
		before := w.sent[w.IntN(len(w.sent))]
		c.asks = slices.Clone(before.asks)
		w.Shuffle(len(c.asks), func(i, j int) { c.asks[i], c.asks[j] = c.asks[j], c.asks[i] })
		if w.IntN(4) > 0 {
			c.once.Client, c.once.ID = before.once.Client, before.once.ID
		}
		if w.IntN(8) == 0 && c.asks[0].N < math.MaxInt32 {
			c.asks[0].N++
		}
	}
	c.once.Look = w.IntN(8) == 0
	if g := w.models.grants[onceText(c.once, c.asks)]; g != nil {
		end := later(g.at.Sub(w.models.start), g.ttl)
		if edge := end - time.Duration(w.IntN(2))*w.Resolution; w.IntN(3) == 0 && edge <= w.Span {
			c.at = edge
		}
		// An earlier call came after the end of the grant, so the store may have dropped the grant.
		// Now the clock has stepped back to before the end, and the store may repeat the grant or
		// not. Use a new ID, because the kit cannot tell which answer is right.
		if c.at < end && end <= w.latest {
			w.issued++
			c.once.ID = fmt.Sprintf("new %d", w.issued)
		}
	}
	w.sent = append(w.sent, c)
	return c
}

// checkOnce checks which calls of Once are refused, how often a grant is repeated, and that
// simultaneous calls are charged only once. Other subtests compare the answers with a model.
func checkOnce(k *storeKit, a ratelimit.Ask) error {
	s, ctx := k.store.(oncer), context.Background()
	good, none := ratelimit.Attempt{Client: "a", ID: k.prefix(), TTL: time.Minute}, a
	noID, short, long := good, good, good
	noID.ID, short.TTL, long.TTL, none.N = "", time.Microsecond-1, 366*24*time.Hour+1, -1
	for _, bad := range []struct {
		ctx  context.Context
		once ratelimit.Attempt
		ask  ratelimit.Ask
		want error
	}{
		{ctx, noID, a, ratelimit.ErrInvalidConfig}, {ctx, short, a, ratelimit.ErrInvalidConfig}, {ctx, long, a, ratelimit.ErrInvalidConfig},
		{ctx, good, none, ratelimit.ErrInvalidCount}, {ended, good, a, context.Canceled},
	} {
		if _, _, err := s.Once(bad.ctx, bad.once, []ratelimit.Ask{bad.ask}); !errors.Is(err, bad.want) {
			return fmt.Errorf("with %+v and %s, the error is %w", bad.once, askText(bad.ask), err)
		}
	}
	first, err := onceTogether(s, good, a)
	if err != nil {
		return err
	}
	look := good
	look.Look = true
	for i := range mostReplays - goroutines + 1 {
		if _, replayed, err := s.Once(ctx, look, []ratelimit.Ask{a}); err != nil || !replayed {
			return fmt.Errorf("a look at a grant returns %t, %w", replayed, err)
		}
		again, replayed, err := s.Once(ctx, good, []ratelimit.Ask{a})
		if err != nil || !replayed || !slices.Equal(again, first) {
			return fmt.Errorf("replay %d is %v, %t, %w, and the first answer %v", goroutines+i, again, replayed, err, first)
		}
	}
	last, replayed, err := s.Once(ctx, good, []ratelimit.Ask{a})
	if left := min(burst(a.Rate), math.MaxInt32) - 2; err != nil || replayed || len(last) != 1 || last[0].Allowed != (left >= 0) {
		return fmt.Errorf("after %d replays, it returns %v, %t, %w", mostReplays, last, replayed, err)
	}
	return nil
}

// onceTogether makes the same call of Once from several goroutines. It returns an error unless all
// goroutines get equal answers and only one of the calls is charged.
func onceTogether(s oncer, once ratelimit.Attempt, a ratelimit.Ask) ([]ratelimit.Result, error) {
	var answers [goroutines]struct {
		results  []ratelimit.Result
		replayed bool
		err      error
	}
	var all sync.WaitGroup
	for g := range answers {
		all.Go(func() {
			got := &answers[g]
			got.results, got.replayed, got.err = s.Once(context.Background(), once, []ratelimit.Ask{a})
		})
	}
	all.Wait()
	replays := 0
	for _, got := range answers {
		if got.err != nil || len(got.results) != 1 || got.results[0].Remaining != burst(a.Rate)-1 {
			return nil, fmt.Errorf("at once, it returns %v, %w", got.results, got.err)
		}
		if got.replayed {
			replays++
		}
	}
	if replays != goroutines-1 {
		return nil, fmt.Errorf("of %d calls at once, %d were charged", goroutines, goroutines-replays)
	}
	return answers[0].results, nil
}
