package main

import (
	"fmt"
	"runtime"
	"time"
)

// A figure is a function that returns one number of a sample: of the calls to one subject in one
// round.
type figure[S any] func(S) float64

// The method of returns the median of the figure f over the samples.
func (f figure[S]) of(samples []S) float64 {
	var xs []float64
	for _, s := range samples {
		xs = append(xs, f(s))
	}
	return median(xs)
}

// ratio divides the figure of each sample by the figure of the base's sample from the same round,
// and returns the median of these ratios.
func (f figure[S]) ratio(samples, base []S) float64 {
	var ratios []float64
	for i := range samples {
		ratios = append(ratios, f(samples[i])/f(base[i]))
	}
	return median(ratios)
}

// The type shown is a figure, such as decisions a second, with the way in which the report shows it.
type shown[S any] struct {
	figure[S]
	write func(float64) string
	more  bool // whether a larger figure is better
}

// The method best returns the best figure among the samples, as text.
func (f shown[S]) best(samples []S) string {
	best := f.figure(samples[0])
	for _, s := range samples[1:] {
		if f.more {
			best = max(best, f.figure(s))
		} else {
			best = min(best, f.figure(s))
		}
	}
	return f.write(best)
}

// inTurns calls the function sample in each round once for each of n subjects, whose number is its
// argument. Each round begins with another subject. An error of sample ends inTurns.
func inTurns(rounds, n int, sample func(i int) error) error {
	for round := range rounds {
		runtime.GC()
		for i := range n {
			if err := sample((i + round) % n); err != nil {
				return err
			}
		}
	}
	return nil
}

// micros formats nanoseconds as microseconds. If they are one millisecond or more, it formats them
// as milliseconds.
func micros(ns float64) string {
	if ns >= float64(time.Millisecond) {
		return millis(time.Duration(ns))
	}
	return fmt.Sprintf("%.3g µs", ns/float64(time.Microsecond))
}

// thousands formats n in thousands, such as 12k.
func thousands(n float64) string { return fmt.Sprintf("%.3gk", n/1000) }

// perSec formats decisions a second.
func perSec(n float64) string { return thousands(n) + "/s" }

// percent formats a share between 0 and 1 in percent.
func percent(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) }
