// Package running keeps what a request has in flight, for as long as the request runs.
package running

import (
	"errors"
	"sync/atomic"
	"time"
)

// A Reservation has the two methods of a Reservation of the root package that this package calls.
type Reservation interface {
	// Extend makes what is in flight last longer. Its error matches the error named over in [Extend] if it is over already.
	Extend() error

	// Done ends what is in flight.
	Done() error
}

// Keep extends what r has in flight, as [Extend] does. The caller must call the result, which ends what is in flight,
// when the request has ended.
func Keep(r Reservation, every, per time.Duration, over error, failed func(error)) (end func()) {
	stop := Extend(r, every, per, over, failed)
	return func() {
		stop()
		if err := r.Done(); err != nil {
			failed(err)
		}
	}
}

// Extend extends what r has in flight at the given interval (every), until the function stop is called, or until it is
// over. If every is 0, the interval is half of the parameter per, after which it would be over. If every is below 0,
// Extend does nothing. The function failed gets the errors of r, except for the error over. After such an error, Extend
// tries again after an eighth of the interval, because the next whole interval may end too late.
func Extend(r Reservation, every, per time.Duration, over error, failed func(error)) (stop func()) {
	if every == 0 {
		every = max(per/2, time.Millisecond)
	}
	if every < 0 {
		return func() {}
	}
	var timer atomic.Pointer[time.Timer]
	timer.Store(time.AfterFunc(every, func() {
		err := r.Extend()
		if errors.Is(err, over) {
			return
		}
		next := every
		if err != nil {
			failed(err)
			next = max(every/8, time.Millisecond)
		}
		if t := timer.Load(); t != nil {
			t.Reset(next)
		}
	}))
	return func() {
		if t := timer.Swap(nil); t != nil {
			t.Stop()
		}
	}
}
