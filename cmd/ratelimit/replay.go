package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

var replayCommand = command{
	name:    "replay",
	summary: "who would have been denied, by the requests in a log",
	examples: `
ratelimit replay access.log -config limits.json
ratelimit replay access.log -config limits.json -against stricter.json
ratelimit replay access.log -config old.json -against new.json -markdown
ratelimit replay access.log -config limits.json -html report.html
ratelimit replay access.log.2.gz access.log.1 access.log -config limits.json
zcat app.gz | ratelimit replay - -field client=user_id -config limits.json
ratelimit replay access.log -config limits.json -enforce -max-denied 0.1%
tail -F access.log | ratelimit replay - -config limits.json -follow
`,
	about: `
Puts the requests of a log to the limiter, on a clock that follows the log, and
says which of them it would have denied. Memory does not grow with the log.
Ctrl-C prints the report so far; with -follow, it is how the command ends.
` + aboutLogs + `
Rules in shadow or advise mode deny nothing. What they would have denied is
listed, and -enforce makes them deny. The exit code is 1 if more than -max-denied of all
requests are denied.
`,
	run: runReplay,
}

// A replayJSON is what the command replay prints with the flag -json.
type replayJSON struct {
	Config  string   `json:"config"`
	Against string   `json:"againstConfig,omitempty"`
	Log     logCount `json:"log"`
	// Warnings says what makes the answer doubtful, such as a rule that met no request.
	Warnings []string `json:"warnings,omitempty"`
	replay.Report
	shadowModes string // modes of the rules that deny nothing, as a text such as "advise or shadow"; printed without -json
}

// maxJSONSpans is the largest number of spans of time that replay -json prints.
const maxJSONSpans = 2048

// replayFlags hold the flags of the command replay.
type replayFlags struct {
	config, against, decisions string
	html                       string
	top                        int
	maxDenied                  shareFlag
	markdown, follow, json     bool
}

func (f *replayFlags) define(fs *flag.FlagSet) {
	fs.StringVar(&f.config, "config", "", "the `file` of rules")
	fs.StringVar(&f.against, "against", "", "another `file` of rules, to say what differs")
	fs.IntVar(&f.top, "top", 10, "how many offenders to list, at `most`")
	fs.Var(&f.maxDenied, "max-denied", "the `share` of denied requests above which the exit code is 1")
	fs.BoolVar(&f.markdown, "markdown", false, "print Markdown, for a pull request")
	fs.StringVar(&f.html, "html", "", "a `file` for the report as a page of HTML")
	fs.BoolVar(&f.follow, "follow", false, "draw the report every two seconds, of a log from tail -F")
	fs.StringVar(&f.decisions, "decisions", "", "a `file` for each decision, as a JSON object a line")
	fs.BoolVar(&f.json, "json", false, "print JSON")
}

// check returns a usageError if the flags do not fit the logs at paths.
func (f *replayFlags) check(paths []string) error {
	switch {
	case f.config == "":
		return usageError("-config is missing: the file of rules")
	case f.top < 1 || f.top > 1000:
		return usageError(fmt.Sprintf("-top is %d: must be from 1 to 1000", f.top))
	case f.json && f.markdown:
		return usageError("-json and -markdown are given: one of them says what to print")
	case f.follow && (len(paths) != 1 || paths[0] != "-" || f.json):
		return usageError("-follow is for the standard input, without -json: tail -F access.log | ratelimit replay - -follow")
	}
	return nil
}

func runReplay(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	var f replayFlags
	f.define(fs)
	how := newRuleFlags(fs)
	logs := newLogFlags(fs)
	paths, err := parse(fs, args, 1, 1000, "the log")
	if err == nil {
		err = f.check(paths)
	}
	if err != nil {
		return err
	}
	clock := replay.NewClock()
	first, second, err := how.players(clock, f.config, f.against)
	if err == nil {
		err = logs.checkUnits(first, second)
	}
	if err != nil {
		return err
	}
	out := replayJSON{Config: f.config, Against: f.against, shadowModes: shadowModes(first)}
	var run *replay.Run
	work := func(each func(*accesslog.Entry, ratelimit.Result) error) error {
		run = replay.NewRun(clock, first, second, each)
		if f.follow {
			logs.follow(t, &out, run, f.top)
		}
		uncancelled := context.WithoutCancel(ctx) // run.Add need not check ctx, because the method read checks it once in 1,024 requests
		out.Log, err = logs.read(ctx, t, paths, func(e *accesslog.Entry) error { return run.Add(uncancelled, e) })
		return err
	}
	if f.decisions == "" {
		err = work(nil)
	} else {
		err = t.save(f.decisions, func(w io.Writer) error { return writeDecisions(w, work) })
	}
	interrupted := errors.Is(err, errInterrupted) && out.Log.kept > 0
	if err != nil && !interrupted {
		return err
	}
	out.Warnings = logs.doubtsOf(&out, first, second)
	strict := logs.warnOf(t, out.Warnings)
	if err := f.print(t, &out, run); err != nil {
		return err
	}
	switch {
	case interrupted && !f.follow:
		return errors.New("interrupted: this is the report so far")
	case f.maxDenied.exceeded(out.Denied, out.Requests):
		t.warn("denied: %s of %s requests (%s), more than -max-denied %s", number(out.Denied), number(out.Requests),
			percent(out.Denied, out.Requests), f.maxDenied.text())
		return errFound
	}
	return strict
}

// print prints the report of the run.
func (f *replayFlags) print(t *terminal, out *replayJSON, run *replay.Run) error {
	spans := maxPrintedSpans
	if f.json {
		spans = maxJSONSpans
	}
	if f.html != "" {
		out.Report = run.Report(f.top, maxDrawnSpans)
		if err := t.save(f.html, func(w io.Writer) error { return writeReplayPage(w, out) }); err != nil {
			return fmt.Errorf("-html is %q: %w", f.html, err)
		}
	}
	out.Report = run.Report(f.top, spans)
	switch {
	case f.json:
		return t.printJSON(out)
	case f.markdown:
		return writeMarkdown(t.out, out)
	case f.follow && t.isTerminal():
		fmt.Fprintf(t.out, "%s", clearScreen)
	}
	return printReplay(t, out)
}

// follow lowers the default of -late to one second, because the report lags behind the log by this time. If the output
// is a terminal, follow also sets f.onTick to a function that draws the report. This function is called every two seconds.
func (f *logFlags) follow(t *terminal, out *replayJSON, run *replay.Run, top int) {
	if f.late == defaultLate {
		f.late = time.Second
	}
	if !t.isTerminal() {
		return
	}
	f.onTick = func() {
		shown := *out
		if shown.Report = run.Report(top, maxPrintedSpans); shown.Requests == 0 {
			return
		}
		fmt.Fprintf(t.out, "%s", clearScreen)
		_ = printReplay(t, &shown)
	}
}

// shadowModes returns a text such as "advise or shadow": the modes of those rules of the player that deny nothing.
func shadowModes(p *replay.Player) string {
	var modes []string
	for _, r := range allRules(p.Limiter()) {
		if mode := string(r.Mode); !r.Mode.Denies() && !slices.Contains(modes, mode) {
			modes = append(modes, mode)
		}
	}
	slices.Sort(modes)
	return strings.Join(modes, " or ")
}

// ruleFlags hold the flags of a command that say how to make a limiter from a file of rules.
type ruleFlags struct {
	maxKeys *int
	enforce *bool
}

func newRuleFlags(fs *flag.FlagSet) ruleFlags {
	return ruleFlags{
		fs.Int("max-keys", 1<<20, "the largest `number` of keys of each rule"),
		fs.Bool("enforce", false, "make rules in shadow or advise mode deny"),
	}
}

// players returns a Player for each of two files of rules. A Player sends requests to a limiter that has the rules of
// the file. If the path of the second file is empty, the second Player is nil.
func (f ruleFlags) players(clock *replay.Clock, config, against string) (first, second *replay.Player, err error) {
	if first, err = f.player(clock, config); err == nil && against != "" {
		second, err = f.player(clock, against)
	}
	return first, second, err
}

// player returns a Player (which sends requests to a limiter). Its limiter has the rules in the file at path.
func (f ruleFlags) player(clock *replay.Clock, path string) (*replay.Player, error) {
	return replay.NewPlayer(clock, func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) { return f.limiter(path, opts...) })
}

// limiter returns a limiter that has the rules in the file at path.
func (f ruleFlags) limiter(path string, opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
	if *f.maxKeys < 1 {
		return nil, usageError(fmt.Sprintf("-max-keys is %d: must be at least 1", *f.maxKeys))
	}
	opts = append(opts, ratelimit.WithMaxKeys(*f.maxKeys))
	file, l, err := loadRules(path, opts...)
	if err != nil || !*f.enforce {
		return l, err
	}
	rules, byDefault := l.Rules()
	rules = append([]ratelimit.Rule(nil), rules...)
	for i := range rules {
		rules[i].Mode = ratelimit.ModeEnforce
	}
	if byDefault != nil {
		enforced := *byDefault
		enforced.Mode, byDefault = ratelimit.ModeEnforce, &enforced
	}
	if l, err = ratelimit.New(rules, byDefault, opts...); err == nil {
		err = l.ReloadOverrides(file.Overrides()...)
	}
	return l, err
}

// A decisionJSON is one line in the file that -decisions writes: a request and its answer.
type decisionJSON struct {
	Time       int64             `json:"time"` // nanoseconds since the Unix epoch, as in the log
	Client     string            `json:"client"`
	Endpoint   string            `json:"endpoint"`
	IP         string            `json:"ip,omitempty"`
	Tier       string            `json:"tier,omitempty"`
	Attrs      map[string]string `json:"attrs,omitempty"`
	Cost       int               `json:"cost"`
	Costs      map[string]int    `json:"costs,omitempty"` // costs in other units
	Allowed    bool              `json:"allowed"`
	Limit      int               `json:"limit"`
	Remaining  int               `json:"remaining"`
	RetryAfter time.Duration     `json:"retryAfterNs"`
	ResetAfter time.Duration     `json:"resetAfterNs"`
	Delay      time.Duration     `json:"delayNs"`
	Rule       string            `json:"rule"`
}

// writeDecisions writes a line of JSON to w for each request of a log, with its answer. The function work decides on
// the requests. It gets a function as its argument, and calls this function with each request and its answer.
func writeDecisions(w io.Writer, work func(each func(*accesslog.Entry, ratelimit.Result) error) error) error {
	b := bufio.NewWriterSize(w, 1<<16)
	e := json.NewEncoder(b)
	err := work(func(in *accesslog.Entry, res ratelimit.Result) error {
		var costs map[string]int
		for _, c := range in.Costs {
			if costs == nil {
				costs = make(map[string]int)
			}
			costs[c.Unit] = c.N
		}
		return e.Encode(decisionJSON{
			in.Time, in.Client, in.Endpoint, in.IP, in.Tier, in.Attrs, in.Cost, costs,
			res.Allowed, res.Limit, res.Remaining, res.RetryAfter, res.ResetAfter, res.Delay, res.Rule,
		})
	})
	if err != nil {
		return err
	}
	return b.Flush()
}

// A shareFlag is a flag for a share, such as 0.1% or 0.001. The field share has the value of the flag as an exact
// fraction. It is nil if the flag is not given.
type shareFlag struct{ share *big.Rat }

func (f *shareFlag) String() string { return "" }

// Set reads a share, which must be from 0% to 100%.
func (f *shareFlag) Set(text string) error {
	digits, percent := strings.CutSuffix(text, "%")
	r, ok := new(big.Rat).SetString(digits)
	if ok && percent {
		r.Quo(r, big.NewRat(100, 1))
	}
	if !ok || len(text) > 20 || strings.ContainsAny(text, "eE_xX/") || r.Sign() < 0 || r.Cmp(big.NewRat(1, 1)) > 0 {
		return fmt.Errorf("must be a share from 0%% to 100%%, such as 0.1%%")
	}
	if r.IsInt() && r.Sign() > 0 && !percent {
		return errors.New("may mean 1% or 100%: write it with %")
	}
	f.share = r
	return nil
}

// of(n) is the share of the number n: n multiplied by the share, rounded down. If the flag is not given, the result is n.
func (f *shareFlag) of(n uint64) uint64 {
	if f.share == nil {
		return n
	}
	all := new(big.Int).SetUint64(n)
	all.Mul(all, f.share.Num())
	return all.Quo(all, f.share.Denom()).Uint64()
}

// exceeded reports whether count is more than the share of n that the flag allows.
func (f *shareFlag) exceeded(count, n uint64) bool { return count > f.of(n) }

// text returns the share as a percentage, such as "0.1 %".
func (f *shareFlag) text() string {
	v := new(big.Rat).Mul(f.share, big.NewRat(100, 1))
	text := v.FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".") + " %"
}
