package bench

import (
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// newReserved makes a checked that reserves a unit and settles for it.
func newReserved(l Limit) (Subject, error) {
	s, err := newChecked(ratelimit.KeyUser)(l)
	if err != nil {
		return nil, err
	}
	return &reserved{s.(*checked)}, nil
}

type reserved struct{ *checked }

func (s *reserved) Allow(key string) bool {
	request := s.request
	request.Client = key
	r, err := s.Reserve(s.ctx, request, time.Minute)
	return err == nil && r.Result().Allowed && r.Settle(1) == nil
}

// newReplayed makes a checked whose requests have one of a hundred IDs, in turn: all but one in a
// hundred and one get the answer that a request with the same ID had before.
func newReplayed(l Limit) (Subject, error) {
	limiter, err := newChecker(everyEndpoint(ratelimit.Rule{Rate: l.bucket()}), "", l.options(ratelimit.WithRequestIDs(time.Hour)))
	if err != nil {
		return nil, err
	}
	s := &replayed{checked: limiter.(*checked)}
	for i := range s.ids {
		s.ids[i] = "request-" + strconv.Itoa(i)
	}
	return s, nil
}

type replayed struct {
	*checked
	ids  [100]string
	next int
}

func (s *replayed) Allow(key string) bool {
	if s.next++; s.next == len(s.ids) {
		s.next = 0
	}
	request := s.request
	request.Client, request.ID = key, s.ids[s.next]
	res, err := s.Check(s.ctx, request)
	return res.Allowed && err == nil
}

// newWarm makes a checked whose rules have a Warmup that lasts as long as over: keys are through
// with a short one, and in the middle of a long one.
func newWarm(over time.Duration) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		rule := ratelimit.Rule{Rate: l.bucket(), Warmup: ratelimit.Warmup{From: max(l.Rate-1, 1), Over: over}}
		return newChecker(everyEndpoint(rule), "", l.options())
	}
}
