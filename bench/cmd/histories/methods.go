package main

import (
	"context"
	"fmt"
	"reflect"

	"github.com/ratelimit-go/ratelimit"
)

// Each of these types has one of the optional methods of a store: Part, Denied, Supports, Accepts,
// Settle or Once.
type (
	parts    struct{ st *store }
	denies   struct{ st *store }
	supports struct{ st *store }
	accepts  struct{ st *store }
	settles  struct{ st *store }

	// The type named "once" has the method Once of a store. The type parameter T is the type of the request
	// that this method gets. The name of that type differs between versions of the package.
	once[T any] struct {
		st   *store
		call func(m *ratelimit.MemoryStore, ctx context.Context, once T, asks []ratelimit.Ask) ([]ratelimit.Result, bool, error)
	}
)

// Part returns the number of the part of the store that holds the state for the ask (a request to
// the store). The number depends on the fields Rule and Key of the ask.
func (p parts) Part(a ratelimit.Ask) int {
	part := (len(a.Rule) + int(hashOf(a.Key)%7)) % p.st.parts
	p.st.h.event("store.part %q %q = %d", a.Rule, a.Key, part)
	return part
}

// Denied asks the MemoryStore whether it would deny the ask (a request to a store). If it would deny
// the ask, Denied returns this denial and true, but only in 60 % of the calls. In all other cases,
// Denied returns false.
func (d denies) Denied(a ratelimit.Ask) (ratelimit.Result, bool) {
	look := a
	look.Look = true
	all, err := d.st.memory.Take(context.Background(), []ratelimit.Ask{look})
	known := err == nil && !all[0].Allowed && d.st.h.chance(60)
	d.st.h.event("store.denied %s = %v", d.st.h.asks([]ratelimit.Ask{a}), known)
	if !known {
		return ratelimit.Result{}, false
	}
	return all[0], true
}

// Supports returns an error if the field Requests of the rate has the value st.refuses.
func (s supports) Supports(a ratelimit.Algorithm, r ratelimit.Rate) (err error) {
	if r.Requests == s.st.refuses {
		err = errRefused
	}
	s.st.h.event("store.supports %s %+v = %s", a, r, problem(err))
	return err
}

// Accepts returns the answer of the MemoryStore for the ask (a request to a store). It also refuses
// two kinds of asks: asks that make a reservation with a rate that the method Supports refuses and,
// if st.looks is false, asks whose field Look is true.
func (a accepts) Accepts(ask ratelimit.Ask) error {
	err := a.st.memory.Accepts(ask)
	if err == nil && (ask.Rate.Requests == a.st.refuses && ask.Receipt != 0 || ask.Look && !a.st.looks) {
		err = errRefused
	}
	a.st.h.event("store.accepts %s = %s", a.st.h.asks([]ratelimit.Ask{ask}), problem(err))
	return err
}

// Settle calls the method Settle of the MemoryStore. Some calls fail at random.
func (s settles) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	return s.st.serve(ctx, "settle "+s.st.h.asks(asks), func() (string, error) { return "", s.st.memory.Settle(ctx, asks) })
}

// Once calls the method Once of the MemoryStore. Some calls fail at random.
func (o once[T]) Once(ctx context.Context, request T, asks []ratelimit.Ask) (all []ratelimit.Result, replayed bool, err error) {
	err = o.st.serve(ctx, fmt.Sprintf("once %v %s", request, o.st.h.asks(asks)), func() (string, error) {
		all, replayed, err = o.call(o.st.memory, ctx, request, asks)
		all = o.st.miscount(all)
		return fmt.Sprint(results(all), replayed), err
	})
	return all, replayed, err
}

// onceName is the name that this version of the package has for the struct type that the method Once
// expects.
var onceName = nameOf((*ratelimit.MemoryStore).Once)

func nameOf[T any](func(*ratelimit.MemoryStore, context.Context, T, []ratelimit.Ask) ([]ratelimit.Result, bool, error)) string {
	t := reflect.TypeFor[T]()
	return t.PkgPath() + "." + t.Name()
}

// Each of these types is a store with some of the six optional methods. The methods can be combined
// in 64 ways, and 12 of these ways have a type here.
type (
	plainStore  struct{ *store }
	partedStore struct {
		*store
		parts
	}
	denyingStore struct {
		*store
		denies
	}
	supportingStore struct {
		*store
		supports
	}
	acceptingStore struct {
		*store
		accepts
	}
	settlingStore struct {
		*store
		settles
	}
	givingStore struct {
		*store
		accepts
		settles
	}
	givingParts struct {
		*store
		parts
		denies
		accepts
		settles
	}

	onceStore[T any] struct {
		*store
		once[T]
	}
	givingOnce[T any] struct {
		*store
		accepts
		settles
		once[T]
	}
	partedOnce[T any] struct {
		*store
		parts
		accepts
		settles
		once[T]
	}
	fullStore[T any] struct {
		*store
		parts
		denies
		supports
		accepts
		settles
		once[T]
	}
)

// drawMethods returns the store with a random set of the optional methods.
func (st *store) drawMethods() ratelimit.Store {
	return withMethods(st, st.h.IntN(16), (*ratelimit.MemoryStore).Once)
}

// withMethods returns the store with a set of the optional methods. The number n, from 0 to 15,
// selects the set. From number 8 on, the set has the method Once, which calls the given function.
func withMethods[T any](
	st *store, n int, call func(*ratelimit.MemoryStore, context.Context, T, []ratelimit.Ask) ([]ratelimit.Result, bool, error),
) ratelimit.Store {
	o := once[T]{st, call}
	switch n {
	case 0:
		return plainStore{st}
	case 1:
		return partedStore{st, parts{st}}
	case 2:
		return denyingStore{st, denies{st}}
	case 3:
		return supportingStore{st, supports{st}}
	case 4:
		return acceptingStore{st, accepts{st}}
	case 5:
		return settlingStore{st, settles{st}}
	case 6:
		return givingStore{st, accepts{st}, settles{st}}
	case 7:
		return givingParts{st, parts{st}, denies{st}, accepts{st}, settles{st}}
	case 8:
		return onceStore[T]{st, o}
	case 9, 10:
		return givingOnce[T]{st, accepts{st}, settles{st}, o}
	case 11, 12:
		return partedOnce[T]{st, parts{st}, accepts{st}, settles{st}, o}
	}
	return fullStore[T]{st, parts{st}, denies{st}, supports{st}, accepts{st}, settles{st}, o}
}
