package bench

import (
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// newReserved returns a subject that is a RateLimiter. Each call of the subject reserves a unit and
// then settles the reservation.
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

// newReplayed returns a subject that is a RateLimiter. Its requests have a hundred IDs, which are
// used one after the other and then again. After the first hundred requests, nearly all requests
// get the answer that was recorded for an earlier request with the same ID.
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

// newWarm returns a function for the field Spec.New. That function makes a RateLimiter whose rules
// have a Warmup: the limit of a new key is lower at first, and grows to its full size in the given
// duration. If the duration is short, the keys reach the full limit during the run. If the duration
// is long, they do not.
func newWarm(over time.Duration) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		rule := ratelimit.Rule{Rate: l.bucket(), Warmup: ratelimit.Warmup{From: max(l.Rate-1, 1), Over: over}}
		return newChecker(everyEndpoint(rule), "", l.options())
	}
}
