package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// useAlgorithms makes targets (limiters to test), one for each algorithm. The parameter names is the list of the algorithms, such
// as "TokenBucket,FixedWindow". The parameter rate is the limit of all targets, as text.
func (s *simulation) useAlgorithms(rate, names string) (err error) {
	if s.limited, err = rateOf("-rate", rate); err != nil {
		return err
	}
	s.limit = s.limited.String()
	all := ratelimit.Algorithms()
	if s.limited.Window != "" {
		all = []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow}
		s.limit += "; only FixedWindow has such windows"
	}
	var chosen []ratelimit.Algorithm
	for _, name := range listed(names) {
		var a ratelimit.Algorithm
		switch err := a.UnmarshalText([]byte(name)); {
		case strings.EqualFold(name, "all"):
			chosen = append(chosen, all...)
		case err != nil || a == "":
			return usageError(fmt.Sprintf("-algorithm has %q: must be all, or some of %s", name, joined(all)))
		case slices.Contains(chosen, a):
			return usageError(fmt.Sprintf("-algorithm has %q twice: must have each once", name))
		default:
			chosen = append(chosen, a)
		}
	}
	repeated := len(chosen) > len(all)+1 || len(chosen) > len(all) && !slices.Contains(chosen, ratelimit.AlgorithmInFlight)
	if len(chosen) == 0 || repeated {
		return usageError(fmt.Sprintf("-algorithm is %q: must be all, or some of %s", names, joined(all)))
	}
	var left error // why an algorithm is left out
	var without []ratelimit.Algorithm
	for _, a := range chosen {
		r := s.limited
		if r.Burst > 0 && a.Windowed() {
			r.Burst = 0
			s.limit = s.limited.String() + "; windows and logs have no burst"
		}
		rule := ratelimit.Rule{Name: string(a), Algorithm: a, Rate: r}
		target := sim.Target{Name: string(a), New: func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
			return ratelimit.New(nil, &rule, opts...)
		}}
		if _, err := target.New(); err != nil {
			if left = usageError(fmt.Sprintf("-rate is %q: for %s, %s", rate, a, problemOf(err))); !strings.EqualFold(names, "all") {
				return left
			}
			without = append(without, a)
			continue
		}
		s.targets, s.rules = append(s.targets, target), append(s.rules, rule)
	}
	switch {
	case len(s.targets) == 0:
		return left
	case len(without) > 0:
		s.limit += "; too high for " + joined(without)
	}
	if s.limited.Per == 0 { // windows of a calendar: the traffic is made as if each were as long as the first one of the simulation
		s.limited.Per = calendar.LengthAt(string(s.limited.Window), 0, sim.AlignedStart(0))
	}
	if len(s.traffic.Endpoints) == 0 {
		s.traffic.Endpoints = []string{"/"}
	}
	return nil
}

// useFile makes one target (a limiter to test) from the rules in the file at path. If the flag -endpoint is not set,
// the requests are sent to the endpoints that these rules name.
func (s *simulation) useFile(path string) error {
	policy := ratelimit.WithFailurePolicy(ratelimit.FailClosed) // has no effect, because no rule has a store here
	f, l, err := loadRules(path, policy)
	if err != nil {
		return err
	}
	s.limit, s.rules = path, allRules(l)
	s.targets = []sim.Target{{Name: path, New: fileTarget(f, policy)}}
	if len(s.traffic.Endpoints) > 0 {
		return nil
	}
	rules, byDefault := l.Rules()
	others := byDefault != nil // whether at least one rule applies to endpoints that no rule names
	for _, r := range rules {
		endpoint := strings.TrimSuffix(r.Endpoint, "*")
		others = others || endpoint == ""
		if endpoint != "" && !slices.Contains(s.traffic.Endpoints, endpoint) {
			s.traffic.Endpoints = append(s.traffic.Endpoints, endpoint)
		}
	}
	if others {
		s.traffic.Endpoints = append(s.traffic.Endpoints, "/other")
	}
	return nil
}

func fileTarget(f *configfile.File, more ratelimit.Option) func(...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	return func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) { return f.New(append(opts, more)...) }
}

// setSend sets the rate at which each client sends. The argument is this rate as text. If the text is empty and
// there is a file of rules, the rate is 120 a minute. If the text is empty and there is no file of rules, the rate
// is twice the limit. With the shape traffic.Edge, a client sends twice the limit in two bursts: one burst just
// before the start of each window, and one at the start.
func (s *simulation) setSend(text string) (err error) {
	switch {
	case text != "":
		if s.send, err = rateOf("-send", text); err != nil {
			return err
		}
		if s.send.Window != "" { // clients send evenly, and not by a calendar
			return usageError(fmt.Sprintf("-send is %q: must be a number in a length of time, such as \"120/m\" or \"20000/30d\"", text))
		}
	case s.limited == (ratelimit.Rate{}):
		s.send = ratelimit.PerMinute(120).WithBurst(20)
	case s.traffic.Shape == traffic.Edge:
		s.send = ratelimit.Rate{Requests: s.limited.Requests, Per: s.limited.Per}
	default:
		s.send = ratelimit.Rate{Requests: twice(s.limited.Requests), Per: s.limited.Per, Burst: twice(s.limited.Burst)}
	}
	s.traffic.Requests, s.traffic.Per, s.traffic.Burst = s.send.Requests, s.send.Per, s.send.Burst
	if s.traffic.Burst == 0 {
		s.traffic.Burst = s.send.Requests
	}
	return nil
}

// twice(n) is 2n. If n is above maxRequests, the result is n, so that it cannot overflow.
func twice(n int) int {
	if n > maxRequests {
		return n
	}
	return 2 * n
}

// rateOf reads a rate such as "100/m burst 20" from a text. The text is the value of a flag. If it is wrong, the
// error names this flag.
func rateOf(flag, text string) (ratelimit.Rate, error) {
	r, err := ratelimit.ParseRate(text)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return r, usageError(fmt.Sprintf("%s is %q: %s", flag, text, reasonOf(err)))
	}
	return r, nil
}

// reasonOf returns a text that says why there is an error. For a ConfigError, this is the field Reason, which says
// what a good value is. For any other error, it is the whole text of the error.
func reasonOf(err error) string {
	var e *ratelimit.ConfigError
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}

// problemOf returns the same text as the function reasonOf. If the count or the burst of a rate is wrong, it adds
// "its count" or "its burst" before this text.
func problemOf(err error) string {
	var e *ratelimit.ConfigError
	if errors.As(err, &e) && (strings.HasSuffix(e.Field, ".requests") || strings.HasSuffix(e.Field, ".burst")) {
		field := map[bool]string{true: "its burst ", false: "its count "}[strings.HasSuffix(e.Field, ".burst")]
		return field + e.Reason
	}
	return reasonOf(err)
}

// listed splits a text at its commas. It returns all parts except empty ones.
func listed(text string) (list []string) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

func joined[T ~string](names []T) string {
	var b strings.Builder
	for i, name := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}
