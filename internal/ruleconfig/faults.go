package ruleconfig

import (
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// RateFaults returns everything that makes the rate r invalid for every algorithm.
func RateFaults(r ratetext.Rate) (faults []Fault) {
	if r.Requests < 1 {
		faults = append(faults, Fault{"requests", r.Requests, "must be at least 1"})
	}
	w, err := calendar.Parse(r.Window)
	if err != nil {
		faults = append(faults, Fault{"window", windowOf(r), err.Error()})
	}
	switch {
	case w.Calendar() != nil && r.Per != 0:
		faults = append(faults, Fault{"per", r.Per, "must be 0: the windows of a calendar have lengths of their own"})
	case w.Calendar() == nil && err == nil && r.Per <= 0:
		faults = append(faults, Fault{"per", r.Per, "must be longer than zero"})
	}
	if r.Burst < 0 {
		faults = append(faults, Fault{"burst", r.Burst, "must be at least 1, or 0 for as many as requests"})
	}
	return faults
}

// BucketFaults returns everything that makes the rate r invalid for a bucket.
func BucketFaults(r ratetext.Rate) []Fault {
	faults := slices.Concat(RateFaults(r), windowFaults(r))
	switch burst := burstOf(r); {
	case burst > exact.MaxBurst && r.Burst == 0:
		return append(faults, Fault{"requests", r.Requests, "must be at most 4294967295 without a burst"})
	case burst > exact.MaxBurst:
		return append(faults, Fault{"burst", r.Burst, "must be at most 4294967295"})
	}
	return faults
}

// CountFaults returns everything that makes the rate r invalid for an algorithm that has no burst, and only windows of the
// length Per. The text of is what the reasons call the algorithm.
func CountFaults(r ratetext.Rate, of string) []Fault {
	return slices.Concat(RateFaults(r), windowFaults(r), burstFaults(r, of))
}

// FixedFaults returns everything that makes the rate r invalid for a fixed window.
func FixedFaults(r ratetext.Rate) []Fault {
	return slices.Concat(RateFaults(r), burstFaults(r, "fixed window"))
}

func burstFaults(r ratetext.Rate, of string) []Fault {
	if r.Burst <= 0 {
		return nil
	}
	return []Fault{{"burst", r.Burst, "must be 0: a " + of + " has no burst"}}
}

func windowFaults(r ratetext.Rate) []Fault {
	if r.Window == "" {
		return nil
	}
	return []Fault{{"window", windowOf(r), "must be left out: only a FixedWindow has other windows"}}
}

// windowOf returns the Window of r as the value of a Fault.
func windowOf(r ratetext.Rate) string { return confmap.Quote(r.Window) }
