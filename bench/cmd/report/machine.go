package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// cpu returns the model of the processor. If the system does not tell the model, cpu returns the
// architecture.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if name, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// speedup returns how many times as much work all cores together do as one core alone. On a virtual
// machine, several cores may share one real core. The result is then near 1, and the figures for
// all cores say little.
func speedup() float64 {
	cores := runtime.GOMAXPROCS(0)
	ratios := make([]float64, 5)
	for i := range ratios {
		start := time.Now()
		spin()
		alone := time.Since(start)

		var done sync.WaitGroup
		start = time.Now()
		for range cores {
			done.Go(spin)
		}
		done.Wait()
		ratios[i] = float64(cores) * float64(alone) / float64(time.Since(start))
	}
	return median(ratios)
}

// spin keeps a core busy for about ten milliseconds, without access to memory.
//
//go:noinline
func spin() {
	x := uint64(1)
	for range 10_000_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	if x == 0 {
		panic("xorshift reached zero")
	}
}
