package httplimit

import (
	"net/http"
	"reflect"
	"runtime"
	"sync/atomic"
	"time"
)

// inFlight is a table of the responses that Middlewares are serving now. A Middleware finds out by this
// table that another Middleware, or the same one, is already serving the response. A value in the context
// of the request could tell this too, but then each request would have to be copied.
//
// The table works like a set-associative cache: the address of the response's header map selects a set, and
// the response takes any free place of the set. If no place is free, the request is copied after all, and the
// copy gets a context (a carrier) that says which Middleware is serving the response.
var inFlight [1 << 10][4]place

// A place is one entry of inFlight. It contains no pointer, so the garbage collector does not scan the
// table.
type place struct {
	header atomic.Uintptr // the address of the response's header map; 0 if the place is free

	// owner is the number of the Middleware that is serving the response. That Middleware writes the field
	// header first, and then owner. Other goroutines read owner only if they find the address of their own
	// response in header.
	owner uint64

	// wait is a time after which the owner would grant the request again. It is written and read like owner.
	wait time.Duration
}

// addressOf returns the address of the map h. It is 0 if h is nil.
func addressOf(h http.Header) uintptr { return reflect.ValueOf(h).Pointer() }

// placesOf returns the set of places for a response whose header map has this address. The lowest 4
// bits are dropped, as the addresses of maps are multiples of 16.
func placesOf(header uintptr) *[4]place {
	return &inFlight[header>>4%uintptr(len(inFlight))]
}

// takePlace records in the table inFlight that m is serving the response whose header map has this
// address, and returns the entry. The entry gets the given wait. takePlace returns nil if no entry is
// free. It also returns nil for the address 0, which marks free entries.
func (m *Middleware) takePlace(header uintptr, wait time.Duration) *place {
	if header == 0 {
		return nil
	}
	places := placesOf(header)
	for i := range places {
		if p := &places[i]; p.header.Load() == 0 && p.header.CompareAndSwap(0, header) {
			p.owner, p.wait = m.number, wait
			return p
		}
	}
	return nil
}

// leave frees the place, so that another response can take it. h is the header map of the response. The map must stay alive
// until the place is free, so that no other map gets the same address.
func (p *place) leave(h http.Header) {
	p.header.Store(0)
	runtime.KeepAlive(h)
}

// serving reports whether any Middleware is serving the response whose header map has this address, and
// whether m is serving it. The parameter outer is the innermost carrier (the context that a Middleware has made)
// of the request, or nil. The result wait is a time after which all these Middlewares would grant the request again.
func (m *Middleware) serving(header uintptr, outer *carrier) (some, same bool, wait time.Duration) {
	places := placesOf(header)
	for i := range places {
		if p := &places[i]; header != 0 && p.header.Load() == header {
			some, same = true, same || p.owner == m.number
			wait = max(wait, p.wait)
		}
	}
	for c := outer; c != nil; c = c.outer {
		if addressOf(c.header) == header {
			some, same = true, same || c.owner == m
			wait = max(wait, c.wait)
		}
	}
	return some, same, wait
}
