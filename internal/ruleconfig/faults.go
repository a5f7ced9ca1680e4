package ruleconfig

import (
	"math"
	"slices"
	"time"

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
	switch {
	case err != nil:
		faults = append(faults, Fault{"window", windowOf(r), err.Error()})
	case r.Window != w.String(): // each Window has only one valid spelling, so that equal rates are equal by ==
		faults = append(faults, Fault{"window", windowOf(r), "must be written " + confmap.Quote(w.String())})
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

// CountFaults is for algorithms that have no burst, and whose windows all have the length Per. It returns a function
// that returns everything that makes a rate invalid for such an algorithm. The parameter named "of" is the name of the
// algorithm in the reasons, such as "sliding window log".
func CountFaults(of string) func(r ratetext.Rate) []Fault {
	return func(r ratetext.Rate) []Fault {
		return slices.Concat(RateFaults(r), windowFaults(r), burstFaults(r, of))
	}
}

// CounterFaults returns everything that makes the rate r invalid for a sliding window counter.
func CounterFaults(r ratetext.Rate) []Fault {
	faults := CountFaults("sliding window counter")(r)
	if r.Per > math.MaxInt64/2 {
		faults = append(faults, Fault{"per", r.Per, "must be at most 146 years: a wait may last two windows"})
	}
	return faults
}

// LogFaults returns everything that makes the rate r invalid for a sliding window log. The number of requests is
// bounded, because the log stores each request.
func LogFaults(r ratetext.Rate) []Fault {
	faults := CountFaults("sliding window log")(r)
	if r.Requests > 1<<16 {
		reason := "must be at most 65536: each is stored; a sliding window counter has no such bound"
		faults = append(faults, Fault{"requests", r.Requests, reason})
	}
	return faults
}

// InFlightFaults returns everything that makes the rate r invalid for a rule that counts the requests in flight.
func InFlightFaults(r ratetext.Rate) []Fault {
	faults := CountFaults("rule with InFlight")(r)
	if r.Per > 0 && !ValidTerm(r.Per) {
		faults = append(faults, Fault{"per", r.Per, TermRange})
	}
	return faults
}

// ValidTerm reports whether d is a valid length for two times: the time for which the units of a reservation can be
// given back, and the time for which one request can be in flight.
func ValidTerm(d time.Duration) bool { return d >= time.Microsecond && d <= 24*time.Hour }

// TermRange is the reason in the error about a time for which ValidTerm returns false.
const TermRange = "must be from a microsecond to 24 hours"

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
	return []Fault{{"window", windowOf(r), "needs the algorithm FixedWindow: no other counts in such windows"}}
}

// windowOf returns the Window of r as the value of a Fault.
func windowOf(r ratetext.Rate) string { return confmap.Quote(r.Window) }
