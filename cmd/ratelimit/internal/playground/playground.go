package playground

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// endpoint is the endpoint to which all requests are sent.
const endpoint = "/"

// maxSent is the largest number of requests in one run. It is never reached with valid settings.
const maxSent = 100_000

// A View has all that the page displays for one set of Settings.
type View struct {
	About      string   `json:"about"`      // description of the traffic
	Summary    string   `json:"summary"`    // how many requests each algorithm granted, in words
	Window     string   `json:"window"`     // length of a window in words, such as "minute"
	Algorithms []Answer `json:"algorithms"` // answers of the five algorithms, always in the same order
}

// An Answer has what the page displays about one algorithm.
type Answer struct {
	Name       string `json:"name"`    // name of the algorithm
	Short      string `json:"short"`   // name of the algorithm in one word
	Rate       string `json:"rate"`    // limit that the algorithm enforces, in words
	Sent       int    `json:"sent"`    // requests that were sent, including those that were sent again
	Granted    int    `json:"granted"` // how many of the sent requests were granted
	Denied     int    `json:"denied"`  // how many of the sent requests were denied
	Wait       string `json:"wait"`    // longest RetryAfter of a denied request, in words
	MaxGranted int    `json:"most"`    // most requests that were granted in any window
	Bound      int    `json:"bound"`   // most requests that the algorithm can grant in any window, whatever requests are sent
	Worst      string `json:"worst"`   // the most that the algorithm can grant for any traffic, in words
	Config     string `json:"config"`  // text of the file of rules from which the limiter was made
	SVG        string `json:"svg"`     // the picture as SVG
}

var algorithms = ratelimit.Algorithms()

var short = map[ratelimit.Algorithm]string{
	ratelimit.AlgorithmTokenBucket: "Token", ratelimit.AlgorithmLeakyBucket: "Leaky", ratelimit.AlgorithmFixedWindow: "Fixed",
	ratelimit.AlgorithmSlidingWindowCounter: "Counter", ratelimit.AlgorithmSlidingWindowLog: "Log",
}

// A run has the results of sending the traffic of the page to one algorithm.
type run struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	config    string
	out       *sim.Outcome
	granted   []time.Duration // times of the granted requests
}

// Run sends the traffic that s describes to each of the five algorithms. It returns what the page displays.
func Run(s Settings) (*View, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var runs []*run
	for _, a := range algorithms {
		r, err := s.run(a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a, err)
		}
		runs = append(runs, r)
	}
	v := &View{About: s.about(), Window: s.period().one}
	counts := make([]string, 0, len(runs))
	for i, f := range s.figures(runs) {
		r := runs[i]
		var svg strings.Builder
		if err := f.WriteSVG(&svg); err != nil {
			return nil, fmt.Errorf("%s: %w", r.algorithm, err)
		}
		rule := r.out.Rules[0]
		v.Algorithms = append(v.Algorithms, Answer{
			Name: string(r.algorithm), Short: short[r.algorithm], Rate: r.rate.String(),
			Sent: r.out.Offered, Granted: r.out.Admitted, Denied: r.out.Denied, Wait: rounded(r.out.LongestWait),
			MaxGranted: rule.MaxGranted, Bound: rule.Bound, Worst: s.worst(r), Config: r.config, SVG: svg.String(),
		})
		counts = append(counts, fmt.Sprintf("%s %d of %d", r.algorithm, r.out.Admitted, r.out.Offered))
	}
	v.Summary = fmt.Sprintf("Granted in %s: %s.", chart.Duration(s.duration()), strings.Join(counts, ", "))
	return v, nil
}

// The method run makes a limiter of the given algorithm from a file of rules. It sends the traffic that s describes
// to this limiter.
func (s *Settings) run(a ratelimit.Algorithm) (*run, error) {
	r := &run{algorithm: a, rate: s.rate(a)}
	var err error
	if r.config, err = config(a, r.rate); err != nil {
		return nil, err
	}
	target := sim.Target{
		Name: string(a),
		New:  func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) { return limiter(r.config, opts...) },
		See: func(request traffic.Request, res ratelimit.Result, _ []ratelimit.Result) {
			if res.Allowed {
				r.granted = append(r.granted, request.At)
			}
		},
	}
	r.out, err = sim.Run(context.Background(), target, traffic.New(s.traffic()), sim.Options{
		Start: sim.AlignedStart(s.per()), Duration: s.duration(), MaxRequests: maxSent,
	})
	return r, err
}

// A document is a file of rules in the format of the package configfile, as JSON.
type document struct {
	Rules []rule `json:"rules"`
}

// A rule is one rule of a document.
type rule struct {
	Endpoint  string              `json:"endpoint"`
	Key       ratelimit.KeyType   `json:"key"`
	Algorithm ratelimit.Algorithm `json:"algorithm"`
	Rate      string              `json:"rate"`
}

// config returns the text of a file with one rule, which limits each user with the given algorithm and rate.
func config(a ratelimit.Algorithm, r ratelimit.Rate) (string, error) {
	text, err := json.MarshalIndent(document{[]rule{{endpoint + "*", ratelimit.KeyUser, a, r.String()}}}, "", "  ")
	return string(text) + "\n", err
}

// limiter makes a limiter from a text that the function config returned. It decodes the rules as the package
// configfile does. That package also reads files and reports mistakes, which is not needed here: the text is in no
// file and has no mistakes.
func limiter(config string, opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	var file struct {
		Rules []ratelimit.Rule `json:"rules"`
	}
	if err := json.Unmarshal([]byte(config), &file); err != nil {
		return nil, err
	}
	return ratelimit.New(file.Rules, nil, opts...)
}

// rounded returns the duration d as text. It rounds up. A duration below one minute keeps three digits, and a
// longer duration keeps whole seconds.
func rounded(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	if d >= time.Minute {
		unit = time.Second
	}
	return chart.Duration((d + unit - 1).Truncate(unit))
}

// worst says in words how much the algorithm of the run r can grant at most, whatever requests are sent.
func (s *Settings) worst(r *run) string {
	in := func(d time.Duration) string { return chart.Number(float64(r.algorithm.MaxIn(r.rate, d)), 0) }
	p := s.period()
	text := fmt.Sprintf("Whatever is sent: at most %s at once, %s in any %s, %s in any %s. ",
		in(0), in(s.per()-1), p.one, in(10*s.per()-1), p.ten)
	switch r.algorithm {
	case ratelimit.AlgorithmTokenBucket:
		text += "A full bucket is granted at once, and each further request has to be refilled first."
	case ratelimit.AlgorithmLeakyBucket:
		text += "A full queue is granted at once, and each further request has to drain first."
		if r.out.LongestDelay > 0 {
			text += fmt.Sprintf(" Each is to be held until its turn: here for up to %s.", rounded(r.out.LongestDelay))
		}
	case ratelimit.AlgorithmFixedWindow:
		text += "A window can be spent just before its end, and the next one right after it."
	case ratelimit.AlgorithmSlidingWindowCounter:
		text += "It takes what the last window granted as spread evenly. If it came late, more gets through."
	case ratelimit.AlgorithmSlidingWindowLog:
		text += fmt.Sprintf("It remembers each grant for %s, so no window has more than the limit.", p.theWindow)
	}
	return text
}
