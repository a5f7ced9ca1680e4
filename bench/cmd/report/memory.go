package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// allocations promises that an ask for a known key allocates nothing.
func allocations(work string) line {
	return line{work: work, target: "0", bound: 0, read: func(*lab) (reading, error) {
		var worst float64
		var which []string
		for _, s := range bench.Specs() {
			if s.Kind != bench.Ours && s.Kind != bench.Rules {
				continue
			}
			for _, w := range known(s) {
				got, err := allocs(s, w)
				if err != nil {
					return reading{}, err
				}
				if got > 0 {
					which = append(which, fmt.Sprintf("%s/%v %g", s.Name, w, got))
				}
				worst = max(worst, got)
			}
		}
		measured := "0"
		if worst > 0 {
			measured = strings.Join(which, ", ")
		}
		return reading{value: worst, measured: measured}, nil
	}}
}

// known returns workloads of s that are to allocate nothing: each outcome, and windows
// that turn.
func known(s bench.Spec) []bench.Workload {
	works := []bench.Workload{{Keys: 100, Outcome: bench.Allowed}, {Keys: 100, Outcome: bench.Denied}}
	for _, w := range []bench.Workload{
		{Keys: 1, Outcome: bench.Mixed},
		{Keys: 1, Outcome: bench.Allowed, Window: time.Millisecond},
		{Keys: 1, Outcome: bench.Denied, Window: time.Millisecond},
	} {
		if s.Can(w) {
			works = append(works, w)
		}
	}
	return works
}

// allocs returns how many allocations an ask of s makes under w.
func allocs(s bench.Spec, w bench.Workload) (float64, error) {
	subject, err := s.Start(w)
	if err != nil {
		return 0, err
	}
	keys := bench.NewKeys(w.Names, w.Keys, 1)
	return testing.AllocsPerRun(10_000, func() { subject.Allow(keys.Next()) }), nil
}

// bytesPerKey promises how much memory a token bucket keeps for each of count
// keys: its own and all that hangs on it, after collections. Each key has
// taken its one unit for thirty days, so that none may be forgotten.
func bytesPerKey(work string, count int, bound float64) line {
	return line{work: work, target: fmt.Sprintf("≤ %g", bound), bound: bound, read: func(l *lab) (reading, error) {
		var mine float64
		var peers []string
		for _, s := range bench.Specs() {
			if s.Name != "tokenbucket" && s.Kind != bench.Peer {
				continue
			}
			before := heap()
			subject, err := filled(s, count)
			if err != nil {
				return reading{}, err
			}
			each := float64(heap()-before) / float64(count)
			runtime.KeepAlive(subject)
			if s.Name == "tokenbucket" {
				mine = each
			} else {
				peers = append(peers, fmt.Sprintf("%s %.0f", s.Name, each))
			}
		}
		return reading{value: mine, measured: fmt.Sprintf("%.1f; %s", mine, strings.Join(peers, ", "))}, nil
	}}
}

// filled returns a subject of s that holds count keys of 24 bytes each.
func filled(s bench.Spec, count int) (bench.Subject, error) {
	subject, err := s.New(s.Limit(bench.Workload{Keys: count, Names: bench.Even, Outcome: bench.Denied}))
	if err != nil {
		return nil, err
	}
	bench.Fill(subject, bench.Even, count)
	return subject, holds(subject, count)
}

// holds reports an error if subject can say how many keys it has and that is
// not count.
func holds(subject bench.Subject, count int) error {
	if s, ok := subject.(interface{ Len() int }); ok && s.Len() != count {
		return fmt.Errorf("holds %d keys, not %d", s.Len(), count)
	}
	return nil
}

// heap returns how many bytes are reachable.
func heap() int64 {
	// What the first collection finalizes, the second frees.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// collection promises how much longer a collection takes while a token bucket
// holds count keys.
func collection(work string, count int, bound time.Duration) line {
	return line{work: work, target: "≤ " + millis(bound), bound: float64(bound), read: func(l *lab) (reading, error) {
		s, err := bench.Find("tokenbucket")
		if err != nil {
			return reading{}, err
		}
		before := collections(l.rounds)
		subject, err := filled(s, count)
		if err != nil {
			return reading{}, err
		}
		with := median(collections(l.rounds))
		runtime.KeepAlive(subject)
		without := median(append(before, collections(l.rounds)...))
		extra := with - without
		return reading{
			value:    extra,
			measured: fmt.Sprintf("%s; %s with, %s without", millis(time.Duration(extra)), millis(time.Duration(with)), millis(time.Duration(without))),
		}, nil
	}}
}

// collections forces n collections and returns how long each took, in
// nanoseconds.
func collections(n int) []float64 {
	runtime.GC() // of what went before
	took := make([]float64, n)
	for i := range took {
		start := time.Now()
		runtime.GC()
		took[i] = float64(time.Since(start))
	}
	return took
}

// millis writes d in milliseconds.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}
