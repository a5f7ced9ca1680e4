// Package playground sends made-up traffic of one client to all five algorithms, for the page in
// docs/playground. It has all of that page but its looks: what the settings mean, the pictures, the
// numbers, and the words. The same settings give the same bytes.
package playground

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// Settings are what the controls of the page say.
type Settings struct {
	Requests int           `json:"requests"` // that the limit grants every Per, from 1 to MaxRequests
	Per      int           `json:"per"`      // in seconds, one of Pers
	Burst    int           `json:"burst"`    // of the buckets, from 1 to MaxRequests
	Shape    traffic.Shape `json:"shape"`    // of the traffic, one of Shapes
	Load     int           `json:"load"`     // what the client sends, in percent of the limit, from MinLoad to MaxLoad
	Retry    traffic.Retry `json:"retry"`    // what the client does that is denied, one of Retries
	Seed     uint64        `json:"seed"`     // of traffic that is random
	Width    int           `json:"width"`    // of a picture in pixels, from MinWidth to MaxWidth
}

// The bounds of the settings. They keep a run short enough for a page that is drawn anew with each
// move of a slider.
const (
	MaxRequests = 100
	MinLoad     = 10
	MaxLoad     = 300
	MinWidth    = 240
	MaxWidth    = 1000
)

// windows is how many times the Per of the limit the traffic lasts.
const windows = 6

// A period is a Per, in words.
type period struct {
	seconds   int
	one, ten  string // it, and ten times it, after "any"
	theWindow string // a window of it
}

var periods = []period{
	{1, "second", "10 seconds", "a second"},
	{10, "10 seconds", "100 seconds", "10 seconds"},
	{60, "minute", "10 minutes", "a minute"},
	{3600, "hour", "10 hours", "an hour"},
}

// Pers returns the values that Per may have.
func Pers() (seconds []int) {
	for _, p := range periods {
		seconds = append(seconds, p.seconds)
	}
	return seconds
}

// Shapes returns the shapes that Shape may have: those that one client makes.
func Shapes() []traffic.Shape {
	return slices.DeleteFunc(traffic.Shapes(), func(s traffic.Shape) bool { return s == traffic.Attack })
}

// Retries returns the values that Retry may have. Obey is none of them: all denied requests of the client
// would come again at the same instant, of which one is granted, so their number would grow with the
// square of what is sent.
func Retries() []traffic.Retry { return []traffic.Retry{traffic.None, traffic.Ignore} }

// Validate returns everything that is wrong with s, joined, or nil.
func (s *Settings) Validate() error {
	var errs []error
	between := func(field string, value, least, most int) {
		if value < least || value > most {
			errs = append(errs, fmt.Errorf("%s is %d: must be from %d to %d", field, value, least, most))
		}
	}
	between("requests", s.Requests, 1, MaxRequests)
	if !slices.Contains(Pers(), s.Per) {
		errs = append(errs, fmt.Errorf("per is %d: must be one of %s", s.Per, list(Pers())))
	}
	between("burst", s.Burst, 1, MaxRequests)
	if !slices.Contains(Shapes(), s.Shape) {
		errs = append(errs, fmt.Errorf("shape is %q: must be one of %s", s.Shape, list(Shapes())))
	}
	between("load", s.Load, MinLoad, MaxLoad)
	if !slices.Contains(Retries(), s.Retry) {
		errs = append(errs, fmt.Errorf("retry is %q: must be one of %s", s.Retry, list(Retries())))
	}
	between("width", s.Width, MinWidth, MaxWidth)
	return errors.Join(errs...)
}

func list[T any](values []T) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(values), "[]")), ", ")
}

func (s *Settings) per() time.Duration { return time.Duration(s.Per) * time.Second }

func (s *Settings) duration() time.Duration { return windows * s.per() }

// period returns the Per of s in words. s must be valid.
func (s *Settings) period() period {
	return periods[slices.IndexFunc(periods, func(p period) bool { return p.seconds == s.Per })]
}

// rate returns the limit, as a has it.
func (s *Settings) rate(a ratelimit.Algorithm) ratelimit.Rate {
	r := ratelimit.Rate{Requests: s.Requests, Per: s.per()}
	if a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket {
		r.Burst = s.Burst
	}
	return r
}

// sent returns how many requests the client sends every Per, rounded up.
func (s *Settings) sent() int { return (s.Requests*s.Load + 99) / 100 }

// retryEvery is the time after which a client comes again that ignores what it was told.
func (s *Settings) retryEvery() time.Duration { return s.per() / 2 }

// traffic returns the traffic of s.
func (s *Settings) traffic() traffic.Config {
	return traffic.Config{
		Shape: s.Shape, Requests: s.sent(), Per: s.per(), Burst: s.sent(),
		Clients: 1, Endpoints: []string{endpoint}, Cost: 1, Duration: s.duration(),
		Retry: s.Retry, RetryEvery: s.retryEvery(), Seed: s.Seed,
	}
}

// about returns the traffic in words.
func (s *Settings) about() string {
	n, every := s.sent(), "every "+chart.Duration(s.per())
	if s.Shape == traffic.OnOff || s.Shape == traffic.Ramp {
		n *= 2
	}
	requests := fmt.Sprintf("%d requests", n)
	if n == 1 {
		requests = "1 request"
	}
	text := map[traffic.Shape]string{
		traffic.Steady:  requests + " " + every + ", at equal distances",
		traffic.Poisson: requests + " " + every + " on average, at random",
		traffic.Bursts:  requests + " at once, " + every,
		traffic.OnOff:   requests + " " + every + " for " + chart.Duration(s.duration()/10) + ", then none for as long",
		traffic.Ramp:    "more and more, from none to " + requests + " " + every,
		traffic.Edge:    requests + " just before each end of a window, and as many right after it",
	}[s.Shape]
	then := map[traffic.Retry]string{
		traffic.None:   "It gives up a request that is denied.",
		traffic.Ignore: "It sends a denied request again after " + chart.Duration(s.retryEvery()) + ", until it is granted.",
	}[s.Retry]
	return "One client sends " + text + ". " + then
}
