package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

var simulateCommand = command{
	name:    "simulate",
	summary: "what limits do with made-up traffic",
	examples: `
ratelimit simulate -rate "100/m burst 20" -shape bursts
ratelimit simulate -rate 100/m -shape edge -algorithm FixedWindow,SlidingWindowLog
ratelimit simulate -config limits.json -shape poisson -send 5/s -clients 20 -duration 1h
ratelimit simulate -config limits.json -cost tokens=2000 -hold 2s
ratelimit simulate -rate 4/1m -algorithm InFlight -send 3/s -shape poisson -hold 2s
ratelimit simulate -rate 100/m -shape onoff -retry ignore -svg limit.svg -html limit.html
`,
	about: `
Sends made-up traffic to the limiter of this repository, on a clock of its own, and shows what is
granted. Each algorithm gets the same traffic: the same flags and seed print the same again.

Shapes, of the requests of each client:
  steady   one after the other, at equal distances
  poisson  independently of each other, at random
  bursts   as many at once as the burst of -send, then none until the next burst
  onoff    twice the rate for a tenth of the duration, then nothing for as long
  ramp     from none to twice the rate
  attack   as poisson, beside an attacker who sends 10 times as much, each with a new client name
  edge     a burst just before each multiple of the time of -send, and a burst at it

What a denied client does, by -retry:
  none     it gives up that request
  obey     it sends it again when it was told to
  ignore   it sends it again after the time of -retry-every
  mixed    every second client obeys, the others ignore

The columns: "wait" is the longest time that a denied request was told to wait, "through" the longest
time from the first try of a request until it was granted. "most" is the most units that one key was
granted in any window, whose begin counts and whose end does not, and "bound" the most that it ever
can be granted. Of a rule with the algorithm InFlight, they are what one key had running at once.
Each request runs for the time of -hold, from its grant. Nothing extends it.
`,
	run: runSimulate,
}

// manyRequests is the least number of requests for which simulate prints a line before it starts, because the run takes
// seconds.
const manyRequests = 2_000_000

// maxRequests is the largest number of requests that a simulation sends to each algorithm. Tests make it lower.
var maxRequests = 10_000_000

// A simulation has the settings of one run of the command simulate, after its flags were checked.
type simulation struct {
	traffic traffic.Config
	send    ratelimit.Rate
	window  time.Duration
	targets []sim.Target
	costs   []ratelimit.Cost // what each request costs in other units than requests
	hold    time.Duration    // how long each request runs; 0 if the flag -hold is not set
	rules   []ratelimit.Rule // rules of all limiters in targets
	limit   string           // for printing: the rate, or the path of the file of rules
	limited ratelimit.Rate   // value of the flag -rate; zero if the flag -config is set in its place
}

// simulateFlags hold the values of the flags of the command simulate, before they are checked.
type simulateFlags struct {
	shape, rate, send, algorithms, config, endpoints, retry string
	seed                                                    uint64
	clients                                                 numberFlag
	cost                                                    costsFlag
	duration, window, every, hold                           durationFlag
	csv, json, chart                                        bool
	svg, html                                               string
}

func (f *simulateFlags) define(fs *flag.FlagSet) {
	f.clients, f.cost = numberFlag{1, traffic.MaxClients}, costsFlag{value: 1, maxValue: maxRequests}
	f.every = durationFlag(time.Second)
	fs.StringVar(&f.shape, "shape", string(traffic.Bursts), "`shape` of the traffic")
	fs.StringVar(&f.rate, "rate", "60/m burst 20", "the `limit`")
	fs.StringVar(&f.algorithms, "algorithm", "all", "`algorithms` to compare, with commas between them")
	fs.StringVar(&f.config, "config", "", "`file` of rules to simulate, in place of -rate and -algorithm")
	fs.StringVar(&f.send, "send", "", "`rate` that each client sends at (default twice the limit; 120/m burst 20 with -config)")
	fs.Var(&f.clients, "clients", "`number` of clients")
	fs.Var(&f.duration, "duration", "`time` of all traffic (default five times that of -rate; 5m with -config)")
	fs.Uint64Var(&f.seed, "seed", 1, "`number` that random traffic is made of")
	fs.Var(&f.window, "window", "length of the windows in which \"most\" counts (default the `time` of each limit)")
	fs.StringVar(&f.retry, "retry", string(traffic.None), "what denied `clients` do")
	fs.Var(&f.every, "retry-every", "`time` after which clients that ignore what they are told come again")
	fs.StringVar(&f.endpoints, "endpoint", "", "`endpoints` of the requests, with commas between them (default those of -config)")
	fs.Var(&f.cost, "cost", "`units` of each request, or as unit=number of another unit, such as tokens=2000;\nmay be repeated")
	fs.Var(&f.hold, "hold", "how `long` each request runs, for rules with the algorithm InFlight")
	fs.BoolVar(&f.csv, "csv", false, "print CSV, a line for each rule")
	fs.BoolVar(&f.json, "json", false, "print JSON, with all that is counted")
	fs.BoolVar(&f.chart, "chart", true, "print a chart below the table")
	fs.StringVar(&f.svg, "svg", "", "write a picture to this `file`")
	fs.StringVar(&f.html, "html", "", "write a page with the table and the pictures to this `file`")
}

func runSimulate(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	var f simulateFlags
	f.define(fs)
	if _, err := parse(fs, args, 0, 0, ""); err != nil {
		return err
	}
	given := make(map[string]bool)
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	s, err := f.read(given)
	if err != nil {
		return err
	}
	var outcomes []*sim.Outcome
	for _, target := range s.targets {
		if n := s.traffic.Expected(); n >= manyRequests {
			t.warn("%s: about %s requests ...", plain(target.Name), chart.Number(n, 0))
		}
		per := s.send.Per
		if s.limited.Per > 0 {
			per = s.limited.Per
		}
		out, err := sim.Run(ctx, target, traffic.New(s.traffic), sim.Options{
			Start: sim.StartOf(s.rules, per), Duration: s.traffic.Duration, Window: s.window, MaxRequests: maxRequests,
			Costs: s.costs, Hold: s.hold,
		})
		if errors.Is(err, sim.ErrTooMany) {
			return usageError(fmt.Sprintf("-retry is %s: with the requests that are sent again, there are more than %s: "+
				"must have a shorter -duration, or a longer -retry-every", f.retry, number(maxRequests)))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", target.Name, err)
		}
		outcomes = append(outcomes, out)
	}
	if f.svg != "" {
		figure := s.figure(outcomes)
		if err := t.save(f.svg, figure.WriteSVG); err != nil {
			return fmt.Errorf("-svg is %q: %w", f.svg, err)
		}
	}
	if f.html != "" {
		if err := t.save(f.html, func(w io.Writer) error { return s.writePage(w, outcomes) }); err != nil {
			return fmt.Errorf("-html is %q: %w", f.html, err)
		}
	}
	switch {
	case f.csv:
		return s.printCSV(t.out, outcomes)
	case f.json:
		return s.printJSON(t.out, outcomes)
	}
	text := s.table(outcomes, t.width)
	if f.chart {
		text += "\n" + s.textChart(outcomes, t.chartWidth())
	}
	_, err = io.WriteString(t.out, text)
	return err
}

// The method read checks the flags, and returns the simulation that they describe. The given map has the names of the
// flags that were set. The error is a usageError, or says what is wrong with the file of rules.
func (f *simulateFlags) read(given map[string]bool) (*simulation, error) {
	s := &simulation{window: time.Duration(f.window), costs: f.cost.costs, hold: time.Duration(f.hold)}
	s.traffic = traffic.Config{
		Shape: traffic.Shape(f.shape), Clients: f.clients.value, Cost: f.cost.value, Duration: time.Duration(f.duration),
		Retry: traffic.Retry(f.retry), RetryEvery: time.Duration(f.every), Seed: f.seed, Endpoints: listed(f.endpoints),
	}
	switch {
	case !slices.Contains(traffic.Shapes(), s.traffic.Shape):
		return nil, usageError(fmt.Sprintf("-shape is %q: must be one of %s", f.shape, joined(traffic.Shapes())))
	case !slices.Contains(traffic.Retries(), s.traffic.Retry):
		return nil, usageError(fmt.Sprintf("-retry is %q: must be one of %s", f.retry, joined(traffic.Retries())))
	case given["duration"] && f.duration <= 0 || s.traffic.Duration > traffic.MaxDuration:
		return nil, usageError(fmt.Sprintf("-duration is %v: must be above 0 and at most %v", s.traffic.Duration, traffic.MaxDuration))
	case given["retry-every"] && (s.traffic.Retry == traffic.None || s.traffic.Retry == traffic.Obey):
		return nil, usageError(fmt.Sprintf("-retry-every is %v, but -retry is %s: must be ignore or mixed", s.traffic.RetryEvery, f.retry))
	case f.every <= 0:
		return nil, usageError(fmt.Sprintf("-retry-every is %v: must be above 0", s.traffic.RetryEvery))
	case given["window"] && f.window <= 0:
		return nil, usageError(fmt.Sprintf("-window is %v: must be above 0", s.window))
	case f.csv && f.json:
		return nil, usageError("-csv and -json are both set: must be one of them")
	case f.config != "" && (given["rate"] || given["algorithm"]):
		return nil, usageError(fmt.Sprintf("-config is %q, so -rate and -algorithm must not be set: the file has them", f.config))
	}
	var err error
	if f.config != "" {
		err = s.useFile(f.config)
	} else {
		err = s.useAlgorithms(f.rate, f.algorithms)
	}
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(f.cost.check(s.rules), s.checkHold(given["hold"])); err != nil {
		return nil, err
	}
	if err := s.setSend(f.send); err != nil {
		return nil, err
	}
	switch {
	case given["duration"]:
	case f.config != "":
		s.traffic.Duration = 5 * time.Minute
	default:
		s.traffic.Duration = 5 * min(s.limited.Per, traffic.MaxDuration/5)
	}
	if n := s.traffic.Expected(); n > float64(maxRequests) {
		return nil, usageError(fmt.Sprintf("-send, -clients and -duration make about %s requests: must be at most %s",
			chart.Number(n, 0), number(maxRequests)))
	}
	return s, nil
}

// checkHold returns a usageError if the flag -hold is out of range, or if no rule limits how many requests run at once. The
// argument given says whether the flag is set.
func (s *simulation) checkHold(given bool) error {
	switch {
	case given && (s.hold <= 0 || s.hold > traffic.MaxDuration):
		return usageError(fmt.Sprintf("-hold is %v: must be above 0 and at most %v", s.hold, traffic.MaxDuration))
	case given && !slices.ContainsFunc(s.rules, func(r ratelimit.Rule) bool { return holds(&r) }):
		return usageError(fmt.Sprintf("-hold is %v, but no rule has the algorithm InFlight", s.hold))
	}
	return nil
}

// A numberFlag is a flag for a whole number from 1 to maxValue.
type numberFlag struct{ value, maxValue int }

func (f *numberFlag) String() string { return strconv.Itoa(f.value) }

// Set reads the number from the text of the flag.
func (f *numberFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > f.maxValue {
		return fmt.Errorf("must be a whole number from 1 to %d", f.maxValue)
	}
	f.value = n
	return nil
}

// A durationFlag is a flag for a duration.
type durationFlag time.Duration

func (f *durationFlag) String() string { return time.Duration(*f).String() }

// Set reads the duration from the text of the flag, such as 1h30m.
func (f *durationFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("must be a length of time, such as 90s, 5m or 1h30m")
	}
	*f = durationFlag(d)
	return nil
}
