package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
)

// TestNamesInJSON requires that each duration in what a command prints as JSON is a number of nanoseconds, with a name that ends in
// Ns, and that no other name does.
func TestNamesInJSON(t *testing.T) {
	durations := 0
	var look func(path string, typ reflect.Type)
	look = func(path string, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			look(path, typ.Elem())
		case reflect.Struct:
			if typ == reflect.TypeFor[time.Time]() {
				return
			}
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" && f.Anonymous {
					look(path, f.Type)
				}
				if name == "" || name == "-" {
					continue
				}
				isDuration := f.Type == reflect.TypeFor[time.Duration]()
				require.Equal(t, isDuration, strings.HasSuffix(name, "Ns"), "%s.%s", path, name)
				if isDuration {
					durations++
				}
				look(path+"."+name, f.Type)
			}
		}
	}
	for _, v := range []any{
		replayJSON{}, decisionJSON{}, topJSON{}, resetJSON{}, overridesJSON{}, suggestJSON{}, proofJSON{}, sim.Outcome{}, []report{},
	} {
		look(reflect.TypeOf(v).String(), reflect.TypeOf(v))
	}
	require.Greater(t, durations, 10)
	got := runIn(t, nil, "simulate", "-rate", "5/s", "-json")
	require.Contains(t, got.out, `"holdNs": 0,`)
	require.Contains(t, got.out, `"durationNs": 5000000000,`)
}
