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

// endpoint is what all requests are for.
const endpoint = "/"

// mostSent bounds the requests of one run. The settings make fewer, see TestBounds.
const mostSent = 100_000

// A View is what the page shows.
type View struct {
	About      string   `json:"about"`      // the traffic in words
	Summary    string   `json:"summary"`    // what came of it, in words
	Window     string   `json:"window"`     // the Per of the limit, after "any"
	Algorithms []Answer `json:"algorithms"` // the five, always in the same order
}

// An Answer is what one algorithm did with the traffic.
type Answer struct {
	Name    string `json:"name"`    // of the algorithm
	Short   string `json:"short"`   // the name in one word
	Rate    string `json:"rate"`    // its limit
	Sent    int    `json:"sent"`    // requests, each as often as it was sent
	Granted int    `json:"granted"` // of them
	Denied  int    `json:"denied"`  // the others
	Wait    string `json:"wait"`    // the longest time that a denied request was told to wait
	Most    int    `json:"most"`    // the most that were granted in any window
	Bound   int    `json:"bound"`   // the most that can be granted in any window, whatever is sent
	Worst   string `json:"worst"`   // the worst case in words
	Config  string `json:"config"`  // a file of rules, which made the limiter that answered
	SVG     string `json:"svg"`     // the picture
}

var algorithms = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket, ratelimit.AlgorithmFixedWindow,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmSlidingWindowLog,
}

var short = map[ratelimit.Algorithm]string{
	ratelimit.AlgorithmTokenBucket: "Token", ratelimit.AlgorithmLeakyBucket: "Leaky", ratelimit.AlgorithmFixedWindow: "Fixed",
	ratelimit.AlgorithmSlidingWindowCounter: "Counter", ratelimit.AlgorithmSlidingWindowLog: "Log",
}

// A run is what came of the traffic for one algorithm.
type run struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	config    string
	out       *sim.Outcome
	granted   []time.Duration // when each request was granted
}

// Run sends the traffic of s to the five algorithms.
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
			Name: string(r.algorithm), Short: short[r.algorithm], Rate: r.rate.String(), Sent: r.out.Offered, Granted: r.out.Admitted, Denied: r.out.Denied,
			Wait: rounded(r.out.LongestWait), Most: rule.Most, Bound: rule.Bound, Worst: s.worst(r), Config: r.config, SVG: svg.String(),
		})
		counts = append(counts, fmt.Sprintf("%s %d of %d", r.algorithm, r.out.Admitted, r.out.Offered))
	}
	v.Summary = fmt.Sprintf("Granted in %s: %s.", chart.Duration(s.duration()), strings.Join(counts, ", "))
	return v, nil
}

// run sends the traffic to the limiter of a config.
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
		Start: sim.AlignedStart(s.per()), Duration: s.duration(), Most: mostSent,
	})
	return r, err
}

// A document is a file of rules, as configfile reads it.
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

// config returns a file of rules that limits each user, whatever the endpoint is.
func config(a ratelimit.Algorithm, r ratelimit.Rate) (string, error) {
	text, err := json.MarshalIndent(document{[]rule{{endpoint + "*", ratelimit.KeyUser, a, r.String()}}}, "", "  ")
	return string(text) + "\n", err
}

// limiter returns the limiter of a file of rules that config has made. It reads the rules as configfile
// does, without that package, which is for files and their errors.
func limiter(config string, opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	var file struct {
		Rules []ratelimit.Rule `json:"rules"`
	}
	if err := json.Unmarshal([]byte(config), &file); err != nil {
		return nil, err
	}
	return ratelimit.New(file.Rules, nil, opts...)
}

// rounded returns d for people: to three digits, rounded up.
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

// worst returns the worst case of r in words: of any traffic, not only of this one.
func (s *Settings) worst(r *run) string {
	in := func(d time.Duration) string { return chart.Number(float64(r.algorithm.MaxIn(r.rate, d)), 0) }
	p := s.period()
	text := fmt.Sprintf("Whatever is sent: at most %s at once, %s in any %s, %s in any %s. ", in(0), in(s.per()-1), p.one, in(10*s.per()-1), p.ten)
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
