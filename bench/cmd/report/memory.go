package main

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// allocations returns a line of the report for the number of memory allocations in a call for a
// known key (a key that the limiter already holds). The figure is the largest number among all
// subjects of this module.
func allocations(work string) line {
	return line{work: work, read: func(*lab) (reading, error) {
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

// The function named "known" returns workloads in which the subject already holds all keys when it is
// measured, so that no call should allocate memory. They cover each outcome, and windows that end
// during the run.
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

// allocs returns the number of allocations in one call of the subject that s describes, under the
// workload w.
func allocs(s bench.Spec, w bench.Workload) (float64, error) {
	subject, err := s.Start(w)
	if err != nil {
		return 0, err
	}
	keys := bench.NewKeys(w.Names, w.Keys, 1)
	return testing.AllocsPerRun(10_000, func() { subject.Allow(keys.Next()) }), nil
}

// bytesPerKey returns a line of the report for the bytes per key that a token bucket and each peer
// (limiter of another module) use when they hold the given number of keys.
func bytesPerKey(work string, count int) line {
	return line{work: work, read: func(*lab) (reading, error) {
		mine, err := bytesOf("tokenbucket", count)
		if err != nil {
			return reading{}, err
		}
		var peers []string
		for _, s := range bench.Specs() {
			if s.Kind != bench.Peer {
				continue
			}
			each, err := bytesOf(s.Name, count)
			if err != nil {
				return reading{}, err
			}
			peers = append(peers, fmt.Sprintf("%s %.0f", s.Name, each))
		}
		return reading{value: mine, measured: fmt.Sprintf("%.1f; %s", mine, strings.Join(peers, ", "))}, nil
	}}
}

// bytesPerKeyOfARule returns a line of the report for the bytes per key that a rule with a token bucket
// uses when it holds the given number of keys.
func bytesPerKeyOfARule(work string, count int) line {
	return line{work: work, read: func(*lab) (reading, error) {
		each, err := bytesOf("rules-user", count)
		return reading{value: each, measured: fmt.Sprintf("%.1f", each)}, err
	}}
}

// bytesOf returns the bytes per key that the subject with the given name uses when it holds the given
// number of keys. Each key has used its quota, and needs days until the quota is free again. So no
// limiter can drop a key.
func bytesOf(name string, count int) (float64, error) {
	s, err := bench.Find(name)
	if err != nil {
		return 0, err
	}
	before := heap()
	subject, err := filled(s, count)
	if err != nil {
		return 0, err
	}
	each := float64(heap()-before) / float64(count)
	runtime.KeepAlive(subject)
	return each, nil
}

// The function named "filled" makes a new subject from the Spec s, and calls it once for each of its keys.
// The parameter count is the number of these keys. Each key has 24 bytes.
func filled(s bench.Spec, count int) (bench.Subject, error) {
	subject, err := s.New(s.Limit(bench.Workload{Keys: count, Names: bench.Even, Outcome: bench.Denied}))
	if err != nil {
		return nil, err
	}
	bench.Fill(subject, bench.Even, count)
	return subject, holds(subject, count)
}

// The function named "holds" returns an error if the subject does not hold the given number of keys.
// If the subject has no method Len, its number of keys is unknown, and there is no error.
func holds(subject bench.Subject, count int) error {
	if s, ok := subject.(interface{ Len() int }); ok && s.Len() != count {
		return fmt.Errorf("holds %d keys, not %d", s.Len(), count)
	}
	return nil
}

// heap returns how many bytes on the heap are still in use.
func heap() int64 {
	// Collect twice. The first collection runs the finalizers of some objects, and only the second
	// frees these objects.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// collection returns a line of the report for the extra time of a garbage collection while a token
// bucket holds the given number of keys.
func collection(work string, count int) line {
	return line{work: work, read: func(l *lab) (reading, error) {
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
		more := with - without
		return reading{value: more, measured: fmt.Sprintf("%s; %s with, %s without",
			millis(time.Duration(more)), millis(time.Duration(with)), millis(time.Duration(without)))}, nil
	}}
}

// collections forces n garbage collections and returns the time of each, in nanoseconds.
func collections(n int) []float64 {
	runtime.GC() // collects earlier garbage; this collection is not timed
	took := make([]float64, n)
	for i := range took {
		start := time.Now()
		runtime.GC()
		took[i] = float64(time.Since(start))
	}
	return took
}

// millis formats the duration d in milliseconds.
func millis(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
}
