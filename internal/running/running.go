// Package running keeps the reservation of a request alive for as long as the request runs. The
// reserved units count as in flight: a limit on concurrent requests counts them until they are given back.
package running

import (
	"errors"
	"sync/atomic"
	"time"
)

// A Reservation has the two methods of a Reservation of the root package that this package calls.
type Reservation interface {
	// Extend makes the units stay in flight for longer. If they are no longer in flight, it returns an error. The
	// functions [Keep] and [Extend] get this error as their parameter over.
	Extend() error

	// Done ends the reservation: its units are no longer in flight.
	Done() error
}

// Keep keeps the units of the reservation r in flight. To do so, it calls [Extend] with the same parameters, which
// extends r at regular intervals. When the request has ended, the caller must call the result end, which ends the
// reservation.
func Keep(r Reservation, every, per time.Duration, over error, failed func(error)) (end func()) {
	stop := Extend(r, every, per, over, failed)
	return func() {
		stop()
		if err := r.Done(); err != nil {
			failed(err)
		}
	}
}

// Extend extends the reservation r at regular intervals. The parameter every is the length of an interval. If it is 0,
// an interval is half as long as the parameter per, the time for which the units stay in flight if they are not
// extended. If it is below 0, Extend does nothing.
//
// Extend stops when the caller calls the result stop. It also stops when r returns the error in the parameter over,
// which says that the units are no longer in flight. After any other error of r, Extend passes the error to the function
// in the parameter failed, and tries again after an eighth of the interval. It does not wait for a whole interval, because
// the units might not stay in flight for so long.
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
