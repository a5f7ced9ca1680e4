// Package playground computes what the page in docs/playground displays. It sends the simulated traffic of
// one client to all five algorithms, and returns pictures, numbers and texts. The same settings always give
// the same bytes.
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

// Settings has the values of the controls of the page.
type Settings struct {
	Requests int           `json:"requests"` // requests that the limit grants every Per, from 1 to MaxRequests
	Per      int           `json:"per"`      // length of a window in seconds; must be one of the values that Pers returns
	Burst    int           `json:"burst"`    // burst of the token bucket and the leaky bucket, from 1 to MaxRequests
	Shape    traffic.Shape `json:"shape"`    // shape of the traffic; must be one of the values that Shapes returns
	Load     int           `json:"load"`     // requests that the client sends, in percent of the limit, from MinLoad to MaxLoad
	Retry    traffic.Retry `json:"retry"`    // what the client does after a denial; must be one of the values that Retries returns
	Seed     uint64        `json:"seed"`     // number from which random traffic starts
	Width    int           `json:"width"`    // width of a picture in pixels, from MinWidth to MaxWidth
}

// The bounds of the settings. They keep a run short, because the page starts a new run at each move of a slider.
const (
	MaxRequests = 100
	MinLoad     = 10
	MaxLoad     = 300
	MinWidth    = 240
	MaxWidth    = 1000
)

// The constant windows is the length of the traffic, as a number of windows. Each window has the length
// Settings.Per.
const windows = 6

// A period is one possible value of Settings.Per, with its names in words.
type period struct {
	seconds   int
	one, ten  string // one is Per in words, and ten is ten times Per in words; both can follow a word such as "any": "any minute"
	theWindow string // Per in words, with an article, such as "a minute"
}

var periods = []period{
	{1, "second", "10 seconds", "a second"},
	{10, "10 seconds", "100 seconds", "10 seconds"},
	{60, "minute", "10 minutes", "a minute"},
	{3600, "hour", "10 hours", "an hour"},
}

// Pers returns the values that Settings.Per may have.
func Pers() (seconds []int) {
	for _, p := range periods {
		seconds = append(seconds, p.seconds)
	}
	return seconds
}

// Shapes returns the values that Settings.Shape may have. These are all shapes of traffic with a single client.
func Shapes() []traffic.Shape {
	return slices.DeleteFunc(traffic.Shapes(), func(s traffic.Shape) bool { return s == traffic.Attack })
}

// Retries returns the values that Settings.Retry may have. They do not include traffic.Obey, which would make a run too
// long: the client would send all denied requests again at the same instant. Only one of them would be granted, and the
// client would repeat this until all were granted.
func Retries() []traffic.Retry { return []traffic.Retry{traffic.None, traffic.Ignore} }

// Validate returns everything that is wrong with s as one joined error, or nil.
func (s *Settings) Validate() error {
	var errs []error
	between := func(field string, value, minimum, maximum int) {
		if value < minimum || value > maximum {
			errs = append(errs, fmt.Errorf("%s is %d: must be from %d to %d", field, value, minimum, maximum))
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

// The method period returns the length of a window with its names in words. It panics if s is not valid.
func (s *Settings) period() period {
	return periods[slices.IndexFunc(periods, func(p period) bool { return p.seconds == s.Per })]
}

// The method rate returns the limit for the given algorithm. Only the token bucket and the leaky bucket have a burst.
func (s *Settings) rate(a ratelimit.Algorithm) ratelimit.Rate {
	r := ratelimit.Rate{Requests: s.Requests, Per: s.per()}
	if !a.Windowed() {
		r.Burst = s.Burst
	}
	return r
}

// The method sent returns how many requests the client sends in each window, rounded up.
func (s *Settings) sent() int { return (s.Requests*s.Load + 99) / 100 }

// retryEvery returns the time after which the client sends a denied request again, if s.Retry is traffic.Ignore.
func (s *Settings) retryEvery() time.Duration { return s.per() / 2 }

// traffic returns the traffic that the settings describe.
func (s *Settings) traffic() traffic.Config {
	return traffic.Config{
		Shape: s.Shape, Requests: s.sent(), Per: s.per(), Burst: s.sent(),
		Clients: 1, Endpoints: []string{endpoint}, Cost: 1, Duration: s.duration(),
		Retry: s.Retry, RetryEvery: s.retryEvery(), Seed: s.Seed,
	}
}

// The method about describes the traffic in words.
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
