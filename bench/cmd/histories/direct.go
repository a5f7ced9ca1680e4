package main

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// direct calls a method of the MemoryStore directly, and records the result. The arguments are
// random asks (requests to a store). Some of them are asks that no limiter would send.
func (st *store) direct() {
	h := st.h
	asks := make([]ratelimit.Ask, h.IntN(3))
	for i := range asks {
		a := oneOf(h, algorithms...)
		asks[i] = ratelimit.Ask{Rule: fmt.Sprint("rule", i), Key: "k", Algorithm: a, Rate: h.drawRate(a, time.Second), N: h.IntN(4)}
		if h.chance(40) {
			asks[i].Receipt = uint64(h.IntN(3))
			set(&asks[i], "Term", "HoldFor", oneOf(h, time.Second, time.Hour, 0))
			set(&asks[i], "Was", "Charged", h.IntN(4))
		}
		if h.chance(8) {
			asks[i].Algorithm = "Guess"
		}
		if h.chance(8) {
			asks[i].N = -1
		}
		asks[i].Look = h.chance(15)
	}
	ctx, done := h.drawContext()
	defer done()
	memory := st.memory
	if h.chance(2) {
		memory = new(ratelimit.MemoryStore)
	}
	text := h.asks(asks)
	switch h.IntN(4) {
	case 0:
		h.try("memory take "+text, func() string {
			all, err := memory.Take(ctx, asks)
			return results(all) + problem(err)
		})
	case 1:
		h.try("memory settle "+text, func() string { return problem(memory.Settle(ctx, asks)) })
	case 2:
		h.try("memory reset "+text, func() string { return problem(memory.Reset(ctx, asks)) })
	case 3:
		id, ttl := oneOf(h, "i", "j", ""), oneOf(h, time.Second, time.Hour, 0)
		h.try("memory once "+id+text, func() string { return directOnce((*ratelimit.MemoryStore).Once, memory, ctx, id, ttl, asks) })
	}
}

// set sets one field of an ask (a request to a store). The field is called oldName in older
// versions of the package and newName in newer versions.
func set(a *ratelimit.Ask, oldName, newName string, value any) {
	v := reflect.ValueOf(a).Elem()
	f := v.FieldByName(oldName)
	if !f.IsValid() {
		f = v.FieldByName(newName)
	}
	f.Set(reflect.ValueOf(value))
}

// directOnce calls the method Once of the MemoryStore. The type T is the struct that Once takes as
// the request. The name of this type differs between versions of the package, so directOnce sets
// its fields by position: field 1 is the ID, and field 2 is the TTL.
func directOnce[T any](
	call func(*ratelimit.MemoryStore, context.Context, T, []ratelimit.Ask) ([]ratelimit.Result, bool, error),
	m *ratelimit.MemoryStore, ctx context.Context, id string, ttl time.Duration, asks []ratelimit.Ask,
) string {
	var request T
	v := reflect.ValueOf(&request).Elem()
	v.Field(1).SetString(id)
	v.Field(2).SetInt(int64(ttl))
	all, replayed, err := call(m, ctx, request, asks)
	return fmt.Sprint(results(all), replayed, problem(err))
}
