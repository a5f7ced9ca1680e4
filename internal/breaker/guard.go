package breaker

import (
	"context"
	"errors"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// errPanicked is the error that the breakers get for a call of a store that panicked.
var errPanicked = errors.New("it panicked")

// Guard makes one call of the store, by running the function that is passed as call. The Pass is the
// permission for this call. Afterwards, Guard tells the breakers how the call ended. The parameter now is a
// function that reads the clock. If the store panics, the call counts as failed, and the panic goes on.
//
// Guard uses four methods of the error of a call, if [errors.As] finds them:
//
//   - Answered reports whether the store has answered. Then the call counts as successful.
//   - Parts returns the numbers of the parts of the store that failed.
//   - Call returns a number that all callers of one shared call have in common.
//   - Later calls a function once the call has ended. Guard uses it if the caller gave up before.
func (s *Set) Guard(ctx context.Context, pass Pass, now func() keytable.Instant, call func() error) error {
	returned := false
	defer func() {
		if !returned {
			s.failed.add(pass.parts, panicClass)
			s.Failed(pass, now(), errPanicked, 0, 0)
		}
	}()
	err := call()
	if returned = true; err == nil {
		s.Succeeded(pass)
		return nil
	}
	var later interface{ Later(f func(err error)) } // declared after the return above, because it allocates memory; a success must not
	switch {
	case ctx.Err() == nil:
		s.ended(pass, now, err, false)
	case errors.As(err, &later):
		left := ctx.Err()
		later.Later(func(err error) { s.ended(pass, now, err, errors.Is(err, left)) })
	default:
		s.ended(pass, now, err, true)
	}
	return err
}

// The method ended tells the breakers that a call of the store, which the Pass had permitted, has ended
// with the error err or, if err is nil, with success. The parameter left is true if the caller gave up
// before the store answered; err then does not say whether the store would have answered.
func (s *Set) ended(pass Pass, now func() keytable.Instant, err error, left bool) {
	var answering interface{ Answered() bool }
	var shared interface{ Call() uint64 }
	if err != nil && !left {
		s.failed.add(pass.failing(err), classOf(err))
	}
	switch {
	case err == nil || errors.As(err, &answering) && answering.Answered():
		s.Succeeded(pass)
	case left:
		s.Abandoned(pass)
	case errors.As(err, &shared):
		s.Failed(pass, now(), err, Blamed(err), shared.Call())
	default:
		s.Failed(pass, now(), err, Blamed(err), 0)
	}
}
