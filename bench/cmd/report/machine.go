package main

import (
	"bufio"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// cpu returns the model of the processor, or its architecture where the system
// does not say.
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

// speedup returns how much more all cores do at once than one does alone. The
// cores of a virtual machine may share a real one, and then work that is spread
// over them neither gains nor contends as it would elsewhere: the figures for
// all cores say little where this is near 1.
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

// spin keeps a core busy for some ten milliseconds, out of its memory.
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
