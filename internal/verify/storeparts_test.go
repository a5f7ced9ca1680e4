package verify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// partCount is how many parts a partedStore has.
const partCount = 3

// A blame says which parts an error names.
type blame int

const (
	blamesAll    blame = iota // all dead parts that were asked
	blamesFirst               // the first of those
	blamesNone                // the error names no part
	blamesOthers              // only a part that was not asked
	givesUp                   // no part: the caller has given up
	waysToBlame  = iota
)

var errDead = errors.New("connection refused")

// A partsError blames parts of a store.
type partsError []int

func (partsError) Error() string  { return errDead.Error() }
func (e partsError) Parts() []int { return e }
func (partsError) Unwrap() error  { return errDead }

// A partedStore is a store in parts, of which some are dead. The last byte of a key says in
// which part it is.
type partedStore struct {
	ratelimit.Store
	dead   [partCount]bool
	blame  blame
	cancel func()

	calls  int
	blamed []int // by the last call
	failed bool  // whether the last call failed
}

func (s *partedStore) Part(a ratelimit.Ask) int { return partOf(a.Key) }

func partOf(key string) int { return int(key[len(key)-1] - '0') }

// fail returns the error of a call for asks, or nil.
func (s *partedStore) fail(asks []ratelimit.Ask) error {
	s.calls, s.blamed, s.failed = s.calls+1, nil, false
	var dead, asked []int
	for _, a := range asks {
		part := partOf(a.Key)
		asked = append(asked, part)
		if s.dead[part] {
			dead = append(dead, part)
		}
	}
	slices.Sort(dead)
	switch {
	case len(dead) == 0:
		return nil
	case s.blame == blamesAll:
		s.blamed = dead
	case s.blame == blamesFirst:
		s.blamed = dead[:1]
	case s.blame == givesUp:
		s.cancel()
		return context.Canceled
	default:
		s.blamed = asked
	}
	s.blamed, s.failed = slices.Compact(s.blamed), true
	switch s.blame {
	case blamesNone:
		return errDead
	case blamesOthers:
		return partsError{partCount}
	}
	return partsError(s.blamed)
}

func (s *partedStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if err := s.fail(asks); err != nil {
		return nil, err
	}
	return s.Store.Take(ctx, asks)
}

func (s *partedStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	if err := s.fail(asks); err != nil {
		return err
	}
	return s.Store.Reset(ctx, asks)
}

// A partModel says what the breaker of a part must do. Its pauses are shortened at random,
// so the model knows the earliest and the latest end of each pause.
type partModel struct {
	asked    bool
	failed   uint64        // how many calls have failed because of this part
	failures int           // of these, those since the part last answered
	length   time.Duration // of the pause; 0 while the part is asked
	from     time.Time
}

func (p *partModel) refuses(now time.Time) bool { return p.length > 0 && now.Sub(p.from) <= p.length/2 }
func (p *partModel) admits(now time.Time) bool  { return now.Sub(p.from) >= p.length }

// fail records that the part has failed, and reports whether its pauses begin.
func (p *partModel) fail(now time.Time) bool {
	p.failed++
	switch p.failures++; {
	case p.length > 0:
		p.length, p.from = min(2*p.length, 500*time.Millisecond), now
		return false
	case p.failures < 5:
		return false
	}
	p.length, p.from, p.failures = 50*time.Millisecond, now, 0
	return true
}

// A partsPlayer makes decisions about the parts of a store.
type partsPlayer struct {
	clock   *ratelimit.FakeClock
	store   *partedStore
	limiter *ratelimit.RateLimiter
	models  [partCount]partModel
	opened  uint64

	decisions, spanning, refused int
}

func newPartsPlayer(t require.TestingT) *partsPlayer {
	p := &partsPlayer{clock: ratelimit.NewFakeClock(starts[0])}
	memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(p.clock))
	require.NoError(t, err)
	p.store = &partedStore{Store: memory}
	rate := ratelimit.PerSecond(1000)
	p.limiter, err = ratelimit.New([]ratelimit.Rule{
		{Name: "client", Endpoint: "both*", Rate: rate},
		{Name: "endpoint", Endpoint: "both*", Rate: rate, Key: ratelimit.KeyUserEndpoint, Algorithm: ratelimit.AlgorithmLeakyBucket},
	}, &ratelimit.Rule{Rate: rate}, ratelimit.WithStore(p.store), ratelimit.WithName("test"), ratelimit.WithClock(p.clock))
	require.NoError(t, err)
	return p
}

// decide makes one decision, or one reset, and compares the outcome.
func (p *partsPlayer) decide(t *rapid.T) {
	if ms := rapid.SampledFrom([]int{0, 0, 0, 0, 10, 25, 50, 100, 300, 500}).Draw(t, "ms"); ms > 0 {
		p.clock.Advance(time.Duration(ms) * time.Millisecond)
	}
	part := rapid.IntRange(0, partCount-1)
	parts, client, endpoint := []int{part.Draw(t, "part")}, "c", "one"
	client += string(rune('0' + parts[0]))
	if rapid.Bool().Draw(t, "two keys") {
		parts = append(parts, part.Draw(t, "other part"))
		endpoint = "both" + string(rune('0'+parts[1]))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.store.cancel, p.store.calls = cancel, 0
	p.decisions++
	if len(parts) > 1 && parts[0] != parts[1] {
		p.spanning++
	}
	var answered bool
	switch rapid.IntRange(0, 5).Draw(t, "verb") {
	case 0:
		if p.store.blame == givesUp {
			p.store.blame = blamesAll // Reset has no context
		}
		must, mustNot := p.permitted(parts)
		if !must && !mustNot {
			p.clock.Advance(500 * time.Millisecond) // the longest pause is over
		}
		answered = p.limiter.Reset(context.Background(), ratelimit.Request{Client: client, Endpoint: endpoint}) == nil
		if mustNot { // it goes through, and tells the breakers nothing
			require.Equal(t, 1, p.store.calls)
			require.Equal(t, !p.store.failed, answered)
			p.refused++
			return
		}
	case 1, 2:
		res, err := p.limiter.Check(ctx, ratelimit.Request{Client: client, Endpoint: endpoint})
		answered = err == nil
		require.Equal(t, errors.Is(err, ratelimit.ErrStore), res.Degraded)
	default:
		if p.store.blame == givesUp {
			p.store.blame = blamesAll
		}
		res := p.limiter.Allow(client, endpoint)
		require.True(t, res.Allowed)
		answered = !res.Degraded
	}
	p.compare(t, parts, answered)
}

// permitted reports whether the breakers of parts must permit a call now, and whether they must
// not.
func (p *partsPlayer) permitted(parts []int) (must, mustNot bool) {
	must = true
	for _, i := range parts {
		must = must && p.models[i].admits(p.clock.Now())
		mustNot = mustNot || p.models[i].refuses(p.clock.Now())
	}
	return must, mustNot
}

// compare requires that a decision about parts went as it had to.
func (p *partsPlayer) compare(t *rapid.T, parts []int, answered bool) {
	now := p.clock.Now()
	must, mustNot := p.permitted(parts)
	require.LessOrEqual(t, p.store.calls, 1)
	switch called := p.store.calls == 1; {
	case mustNot:
		require.False(t, called, "a part of %v pauses: %+v", parts, p.models)
	case must:
		require.True(t, called, "no part of %v pauses: %+v", parts, p.models)
	}
	if p.store.calls == 0 {
		require.False(t, answered)
		p.refused++
		return
	}
	for _, i := range parts {
		p.models[i].asked = true
	}
	if answered {
		require.False(t, p.store.failed)
		for _, i := range parts {
			p.models[i].failures, p.models[i].length = 0, 0
		}
		return
	}
	for _, i := range p.store.blamed {
		if p.models[i].fail(now) {
			p.opened++
		}
	}
}

// stats requires that the statistics are those of the models.
func (p *partsPlayer) stats(t *rapid.T) {
	want := ratelimit.StoreStats{Opened: p.opened}
	for i, m := range p.models {
		if m.asked {
			want.Parts++
		}
		if m.failed > 0 {
			want.Failures = append(want.Failures, ratelimit.StoreFailures{Part: i, Class: "other", Calls: m.failed})
		}
		if m.length > 0 {
			want.Open++
		}
	}
	got := p.limiter.StoreStats()
	if p.opened > 0 {
		require.ErrorIs(t, got.LastError, errDead)
		require.ErrorIs(t, got.LastError, ratelimit.ErrStore)
		got.LastError = nil
	}
	require.Equal(t, want, got)
}

// TestPropertiesOfParts makes random decisions about a store of several parts, which die
// and come back. A part must be asked if and only if its breaker, and those of the other
// parts of the same decision, permit it.
func TestPropertiesOfParts(t *testing.T) {
	t.Parallel()
	schedules, decisions, spanning, refused, opened := 0, 0, 0, 0, uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		p := newPartsPlayer(t)
		for range stepsEach {
			if rapid.IntRange(0, 9).Draw(t, "change") == 0 {
				i := rapid.IntRange(0, partCount-1).Draw(t, "which")
				p.store.dead[i] = !p.store.dead[i]
			}
			p.store.blame = blame(rapid.IntRange(0, waysToBlame-1).Draw(t, "blame"))
			p.decide(t)
			p.stats(t)
		}
		schedules, decisions, opened = schedules+1, decisions+p.decisions, opened+p.opened
		spanning, refused = spanning+p.spanning, refused+p.refused
	})
	t.Logf("%d schedules, %d decisions, %d about two parts, %d not asked, %d times a part was left alone: 0 counterexamples",
		schedules, decisions, spanning, refused, opened)
	require.GreaterOrEqual(t, schedules, wantChecks())
	require.Equal(t, schedules*stepsEach, decisions)
	require.Greater(t, spanning, decisions/10)
	require.Positive(t, refused)
	require.Positive(t, opened)
}
