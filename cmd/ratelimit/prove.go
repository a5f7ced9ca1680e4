package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/prove"
)

var proveCommand = command{
	name:    "prove",
	summary: "the most that all rules together let through",
	examples: `
ratelimit prove limits.json
ratelimit prove limits.json -replicas 8 -store redis -policy local:8
ratelimit prove limits.json -in 1s,10s -endpoint /db -schedule
ratelimit prove limits.json -assert 'any 10s of /db <= 5000' \
    -assert 'any 1m of /login by one client <= 10'
`,
	about: `
Says, for each endpoint and interval, how many requests all rules together let
through at most: those of one client, and those of all clients. An interval has
its beginning, but not its end. Nothing is let through beyond these numbers:

  exact    one rule decides, and some requests reach its bound
  reached  several rules decide, and -schedule prints requests that reach it
  bound    it may not be reached

Without -store redis, each of the -replicas counts alone. With it, the columns
"outage" are for an interval in which the store fails once: the policies of the
rules then answer, or -policy for rules without one. -lease is WithLeases. A
client has one tier, that with the most requests. Rules in shadow mode and with
InFlight bound nothing. The exit code is 1 if an -assert may be broken.
`,
	run: runProve,
}

// proveFlags hold the flags of the command prove.
type proveFlags struct {
	replicas, lease   int
	store, policy     string
	in, endpoints     string
	unit              string
	asserts           listFlag
	schedule, jsonOut bool
}

func (f *proveFlags) define(fs *flag.FlagSet) {
	fs.IntVar(&f.replicas, "replicas", 1, "how many `processes` have the rules")
	fs.StringVar(&f.store, "store", "memory", "where keys are: `memory` of each process, or redis")
	fs.StringVar(&f.policy, "policy", "local:1", "the `policy` of rules without onStoreError: open, closed or local:N")
	fs.IntVar(&f.lease, "lease", 0, "how many `units` a process takes ahead, as WithLeases says")
	fs.StringVar(&f.in, "in", "", "`lengths` of intervals, with commas between them (default the windows of the rules)")
	fs.StringVar(&f.endpoints, "endpoint", "", "`endpoints`, with commas between them (default those of the rules)")
	fs.StringVar(&f.unit, "unit", "", "count this `unit`, and not requests")
	fs.Var(&f.asserts, "assert", "a `promise`, such as 'any 10s of /db <= 5000'; may be repeated")
	fs.BoolVar(&f.schedule, "schedule", false, "print requests that reach the numbers")
	fs.BoolVar(&f.jsonOut, "json", false, "print JSON")
}

// setup returns the prove.Setup that the flags describe, for the file of rules at path.
func (f *proveFlags) setup(path string) (s prove.Setup, err error) {
	switch {
	case f.replicas < 1 || f.replicas > 1_000_000:
		return s, usageError(fmt.Sprintf("-replicas is %d: must be from 1 to 1000000", f.replicas))
	case f.lease < 0 || f.lease > 1_000_000:
		return s, usageError(fmt.Sprintf("-lease is %d: must be from 0 to 1000000", f.lease))
	case f.store != "memory" && f.store != "redis":
		return s, usageError(fmt.Sprintf("-store is %q: must be memory or redis", f.store))
	case f.lease > 0 && f.store == "memory":
		return s, usageError("-lease is given without -store redis: only a store has leases")
	}
	var policy ratelimit.FailurePolicy
	if err := policy.UnmarshalText([]byte(f.policy)); err != nil || policy == (ratelimit.FailurePolicy{}) {
		return s, usageError(fmt.Sprintf("-policy is %q: must be open, closed or local:N", f.policy))
	}
	return prove.Setup{
		Make: func(opts ...ratelimit.Option) (*ratelimit.RateLimiter, error) {
			_, l, err := loadRules(path, opts...)
			return l, err
		},
		Replicas: f.replicas, Shared: f.store == "redis", Lease: f.lease, Policy: policy, Unit: f.unit,
	}, nil
}

// A proofJSON is what the command prove prints with the flag -json.
type proofJSON struct {
	Config     string       `json:"config"`
	Overridden []string     `json:"overridden,omitempty"` // who has an exemption or another rate, so that more is let through
	Proofs     []proofRow   `json:"proofs"`
	Asserts    []assertJSON `json:"asserts,omitempty"`
}

// A proofRow has the bounds for one endpoint and one length of intervals.
type proofRow struct {
	Endpoint  string        `json:"endpoint"`
	In        time.Duration `json:"inNs"`
	Client    boundJSON     `json:"client"`
	All       boundJSON     `json:"all"`
	DownOne   *boundJSON    `json:"clientWhileStoreFails,omitempty"`
	DownAll   *boundJSON    `json:"allWhileStoreFails,omitempty"`
	schedules [2]prove.Bound
}

// A boundJSON is one bound.
type boundJSON struct {
	Most *int   `json:"most"` // null if there is no bound
	How  string `json:"how"`  // exact, reached or bound
	By   string `json:"by,omitempty"`
}

// An assertJSON has a promise of the flag -assert, such as "any 10s of /db <= 5000", and says whether it holds.
type assertJSON struct {
	Assert string    `json:"assert"`
	Holds  bool      `json:"holds"`
	Bound  boundJSON `json:"bound"`
}

func jsonOfBound(b prove.Bound) boundJSON {
	out := boundJSON{How: string(b.How), By: b.By}
	if b.Most != prove.Unlimited {
		out.Most = &b.Most
	}
	return out
}

func (b *boundJSON) text() string {
	if b.Most == nil {
		return "no limit"
	}
	return number(*b.Most) + " " + b.How
}

func runProve(_ context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	var f proveFlags
	f.define(fs)
	paths, err := parse(fs, args, 1, 1, "the file of rules")
	if err != nil {
		return err
	}
	setup, err := f.setup(paths[0])
	if err != nil {
		return err
	}
	p, err := prove.New(setup)
	if err != nil {
		return err
	}
	out := proofJSON{Config: paths[0], Overridden: p.Overridden()}
	if len(f.asserts) == 0 || f.in != "" || f.endpoints != "" {
		if out.Proofs, err = f.proofs(p); err != nil {
			return err
		}
	}
	broken := false
	for _, text := range f.asserts {
		a, err := f.assert(p, text)
		if err != nil {
			return err
		}
		broken = broken || !a.Holds
		out.Asserts = append(out.Asserts, a)
	}
	if f.jsonOut {
		err = t.printJSON(out)
	} else {
		err = printProofs(t, &f, &out)
	}
	if err == nil && broken {
		return errFound
	}
	return err
}

// lengths returns the lengths of time in a text such as "1s,1m,7d".
func lengths(list string) (all []time.Duration, err error) {
	for text := range strings.SplitSeq(list, ",") {
		rate, err := ratelimit.ParseRate("1/" + strings.TrimSpace(text))
		if err != nil || rate.Per <= 0 || rate.Burst > 0 {
			return nil, fmt.Errorf("%q is no length of time: must be one such as 10s, 1m or 7d", text)
		}
		all = append(all, rate.Per)
	}
	return all, nil
}

// proofs returns a row for each endpoint and each interval.
func (f *proveFlags) proofs(p *prove.Prover) (rows []proofRow, err error) {
	endpoints := p.Endpoints()
	if f.endpoints != "" {
		endpoints = strings.Split(f.endpoints, ",")
	}
	for _, endpoint := range endpoints {
		rules, err := p.Rules(prove.Path(endpoint))
		if err != nil {
			return nil, err
		}
		var in []time.Duration
		for _, r := range rules {
			if r.Rate.Per > 0 && !slices.Contains(in, r.Rate.Per) {
				in = append(in, r.Rate.Per)
			}
		}
		if slices.Sort(in); len(in) == 0 {
			in = []time.Duration{time.Minute}
		}
		if f.in != "" {
			if in, err = lengths(f.in); err != nil {
				return nil, usageError("-in: " + err.Error())
			}
		}
		for _, d := range in {
			row, err := f.proof(p, endpoint, d)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// proof returns the bounds for one endpoint and one length of intervals, which is the parameter in.
func (f *proveFlags) proof(p *prove.Prover, endpoint string, in time.Duration) (row proofRow, err error) {
	row = proofRow{Endpoint: endpoint, In: in}
	path := prove.Path(endpoint)
	one, err := p.Client(path, in)
	if err != nil {
		return row, err
	}
	all, err := p.All(path, in)
	if err != nil {
		return row, err
	}
	row.Client, row.All, row.schedules = jsonOfBound(one), jsonOfBound(all), [2]prove.Bound{one, all}
	if f.store == "redis" {
		for client, to := range map[bool]**boundJSON{true: &row.DownOne, false: &row.DownAll} {
			b, err := p.Down(path, in, client)
			if err != nil {
				return row, err
			}
			down := jsonOfBound(b)
			*to = &down
		}
	}
	return row, nil
}

var assertForm = regexp.MustCompile(`^any (\S+) of (\S+)(?: by (one client|all clients))?(?: (while the store fails))? <= (\d+)$`)

// assert checks one promise of the flag -assert.
func (f *proveFlags) assert(p *prove.Prover, text string) (a assertJSON, err error) {
	parts := assertForm.FindStringSubmatch(strings.Join(strings.Fields(text), " "))
	if parts == nil {
		return a, usageError(fmt.Sprintf("-assert is %q: must be like 'any 10s of /db <= 5000', 'any 1m of /login by one client <= 10' "+
			"or 'any 1m of /db while the store fails <= 9'", plain(text)))
	}
	in, err := lengths(parts[1])
	if err != nil {
		return a, usageError("-assert: " + err.Error())
	}
	most, err := strconv.Atoi(parts[5])
	if err != nil {
		return a, usageError(fmt.Sprintf("-assert has %s: the number is too large", parts[5]))
	}
	client, path := parts[3] == "one client", prove.Path(parts[2])
	var b prove.Bound
	switch {
	case parts[4] != "" && f.store != "redis":
		return a, usageError("-assert says what the store does: give -store redis")
	case parts[4] != "":
		b, err = p.Down(path, in[0], client)
	case client:
		b, err = p.Client(path, in[0])
	default:
		b, err = p.All(path, in[0])
	}
	return assertJSON{text, b.Most <= most, jsonOfBound(b)}, err
}

func printProofs(t *terminal, f *proveFlags, out *proofJSON) error {
	p := &page{width: t.width}
	if len(out.Proofs) > 0 {
		rows := [][]string{{"endpoint", "in any", "one client", "all clients"}}
		if f.store == "redis" {
			rows[0] = append(rows[0], "outage: one", "outage: all")
		}
		for _, r := range out.Proofs {
			row := []string{name(prove.Shown(r.Endpoint)), span(r.In), r.Client.text(), r.All.text()}
			if r.DownOne != nil {
				row = append(row, r.DownOne.text(), r.DownAll.text())
			}
			rows = append(rows, row)
		}
		p.table(rows)
	}
	if f.schedule {
		for _, r := range out.Proofs {
			for i, who := range []string{"one client", "all clients"} {
				printSchedule(p, fmt.Sprintf("%s, any %s, %s", name(prove.Shown(r.Endpoint)), span(r.In), who), &r.schedules[i])
			}
		}
	}
	for _, a := range out.Asserts {
		verb := map[bool]string{true: "holds", false: "may be broken"}[a.Holds]
		if !a.Holds && a.Bound.How != string(prove.Upper) {
			verb = "is broken"
		}
		p.line("assert %s: %s, %s", plain(a.Assert), verb, a.Bound.text())
	}
	if len(out.Overridden) > 0 {
		p.line("overrides let more through: %s", plain(strings.Join(out.Overridden, ", ")))
	}
	if p.Len() == 0 {
		return errors.New("there is no rule in the file")
	}
	_, err := io.WriteString(t.out, p.String())
	return err
}

// printSchedule prints a sequence of requests that reaches the bound b, with the time of each since the interval began.
func printSchedule(p *page, title string, b *prove.Bound) {
	if len(b.Schedule) == 0 {
		return
	}
	p.line("")
	p.line("%s: %s from %s on", title, countText(b.Total(), "request"), b.Start.UTC().Format("15:04:05.999999999"))
	const shown = 12
	for i, g := range b.Schedule {
		if i == shown {
			p.line("  and so on, %s more times", number(len(b.Schedule)-shown))
			break
		}
		p.line("  +%s  %s", span(g.At.Sub(b.Start)), number(g.N))
	}
}
