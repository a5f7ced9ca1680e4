package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/suggest"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/topk"
)

var suggestCommand = command{
	name:    "suggest",
	summary: "limits that would have denied few of the requests in a log",
	examples: `
ratelimit suggest access.log
ratelimit suggest access.log -share 0.1% -per 1h -n 5
ratelimit suggest access.log -clients 1% -algorithm FixedWindow -o limits.json
ratelimit suggest access.log -key ip -json
`,
	about: `
Finds, for the endpoints with the most requests and for all others together, the
smallest limit of each client that would have denied at most -clients of its
clients, and at most -share of its requests. Without both, it is 1 % of the
clients: one that sends very much then does not decide what the limit is. It
prints rules in shadow mode: they deny nothing until you remove "mode".

Paths that differ by numbers, identifiers or rare names are grouped as routes,
such as /users/{id}, unless -route or -group=false is given.

Up to -requests requests are kept, of 24 bytes each. Of a larger log, it keeps
those of a half of the clients, of a quarter, and so on.
` + aboutLogs,
	run: runSuggest,
}

// An endpointJSON is what the command suggest prints for one endpoint with the flag -json.
type endpointJSON struct {
	Endpoint string                      `json:"endpoint"` // name of the endpoint; empty for all endpoints that have no entry of their own
	Requests uint64                      `json:"requests"`
	Clients  int                         `json:"clients"`
	Limits   map[ratelimit.Algorithm]int `json:"limits"` // smallest limit for each algorithm; 0 if no limit meets the goal
}

// A suggestJSON is what the command suggest prints with the flag -json.
type suggestJSON struct {
	Log       logCount        `json:"log"`
	Warnings  []string        `json:"warnings,omitempty"` // what makes the limits doubtful
	Routes    []string        `json:"routes,omitempty"`   // routes that stand for groups of paths, such as /users/{id}
	Per       time.Duration   `json:"perNs"`
	Part      uint64          `json:"oneIn"` // N, if the sample keeps the requests of one client in N; 1 for all clients
	Endpoints []endpointJSON  `json:"endpoints"`
	Config    json.RawMessage `json:"config"`
}

// suggestFlags hold the values of the flags of the command suggest.
type suggestFlags struct {
	share, clients         shareFlag
	per                    time.Duration
	n, maxKept             int
	key, algorithm, output string
	json, group            bool
}

func (f *suggestFlags) define(fs *flag.FlagSet) {
	fs.Var(&f.share, "share", "deny at most this `share` of the requests")
	fs.Var(&f.clients, "clients", "deny at most this `share` of the clients, ever (1% if -share is missing)")
	fs.DurationVar(&f.per, "per", time.Minute, "the `time` that the limits are for")
	fs.IntVar(&f.n, "n", 10, "how many `endpoints` get a rule of their own")
	fs.StringVar(&f.key, "key", "user", "whose limit it is: user or ip, the `key` of the rules")
	fs.StringVar(&f.algorithm, "algorithm", string(ratelimit.AlgorithmTokenBucket), "the `algorithm` of the rules")
	fs.IntVar(&f.maxKept, "requests", 4_000_000, "how many requests to keep, at `most`")
	fs.StringVar(&f.output, "o", "", "write the rules to this `file`")
	fs.BoolVar(&f.json, "json", false, "print JSON")
	fs.BoolVar(&f.group, "group", true, "group paths as routes")
}

// check returns a usageError if a flag has a value out of range.
func (f *suggestFlags) check() error {
	switch {
	case f.per <= 0 || f.per > 366*24*time.Hour:
		return usageError(fmt.Sprintf("-per is %v: must be above 0, and at most 8784h", f.per))
	case f.n < 0 || f.n > 1000:
		return usageError(fmt.Sprintf("-n is %d: must be from 0 to 1000", f.n))
	case f.key != "user" && f.key != "ip":
		return usageError(fmt.Sprintf("-key is %q: must be user or ip", f.key))
	case !slices.Contains(suggest.Algorithms, ratelimit.Algorithm(f.algorithm)):
		return usageError(fmt.Sprintf("-algorithm is %q: must be one of %s", f.algorithm, algorithmList()))
	case f.maxKept < 1000 || f.maxKept > 1_000_000_000:
		return usageError(fmt.Sprintf("-requests is %d: must be from 1000 to 1000000000", f.maxKept))
	}
	return nil
}

func runSuggest(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	var f suggestFlags
	f.define(fs)
	logs := newLogFlags(fs)
	paths, err := parse(fs, args, 1, 1000, "the log")
	if err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	if units := logs.fields.Units(); len(units) > 0 {
		return usageError(fmt.Sprintf("-field has cost:%s: must be cost, as the limits found are for one unit", units[0]))
	}
	if f.share.share == nil && f.clients.share == nil {
		_ = f.clients.Set("1%")
	}
	f.group = f.group && len(logs.routes) == 0
	var out suggestJSON
	sample, err := f.read(ctx, t, logs, paths, &out)
	if err != nil {
		return err
	}
	strict := logs.warnOf(t, out.Warnings)
	out.Part, out.Per = sample.Part(), f.per
	goal := suggest.Goal{Requests: f.share.of, Clients: f.clients.of}
	for _, g := range sample.Groups(f.n) {
		e := endpointJSON{g.Endpoint, g.Requests, g.Clients, make(map[ratelimit.Algorithm]int)}
		for _, a := range suggest.Algorithms {
			if e.Limits[a], err = smallest(ctx, g, a, f.per, goal, e.Limits); err != nil {
				return err
			}
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	config := configOf(out.Endpoints, ratelimit.Algorithm(f.algorithm), f.per, f.key)
	out.Config = config
	if f.output != "" {
		if err := t.save(f.output, func(w io.Writer) error { _, err := w.Write(config); return err }); err != nil {
			return err
		}
	}
	if f.json {
		err = t.printJSON(out)
	} else {
		err = printSuggestions(t, &out, &f.share, &f.clients, f.output == "")
	}
	return cmp.Or(err, strict)
}

// heavy is the share of all requests, in percent, above which a client is named in a warning.
const heavy = 20

// read reads the logs, and fills in out.Log, out.Warnings and out.Routes.
func (f *suggestFlags) read(ctx context.Context, t *terminal, logs *logFlags, paths []string, out *suggestJSON) (*suggest.Sample, error) {
	sample, routes, clients := suggest.NewSample(f.maxKept), new(suggest.Routes), topk.New(1000)
	empty := 0
	var err error
	out.Log, err = logs.read(ctx, t, paths, func(e *accesslog.Entry) error {
		r := suggest.Request{Time: e.Time, Client: e.Client, Endpoint: e.Endpoint, Cost: e.Cost}
		if f.key == "ip" {
			r.Client = e.IP
		}
		if f.group {
			r.Endpoint = routes.Of(r.Endpoint)
		}
		if r.Client == "" {
			empty++
		}
		clients.Add(r.Client, 1)
		sample.Add(&r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out.Warnings = logs.doubts(&out.Log)
	if empty*inDoubt > out.Log.kept {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s of %s requests have no %s: they count as one client; see -field %s=COLUMN",
			number(empty), number(out.Log.kept), fieldName(f.key), fieldName(f.key)))
	}
	for _, c := range clients.Top(100 / heavy) {
		if n := c.Count - c.Error; n*100 > uint64(out.Log.kept)*heavy && c.Name != "" {
			out.Warnings = append(out.Warnings, fmt.Sprintf(
				"client %s sends %s of the requests: a limit by -share follows it, one by -clients does not",
				name(c.Name), percent(n, uint64(out.Log.kept))))
		}
	}
	if f.group {
		out.Routes = append(routes.Names(), sample.GroupRare()...)
		slices.Sort(out.Routes)
		out.Routes = slices.Compact(out.Routes)
	}
	if n := len(out.Routes); n > 0 {
		t.warn("note: paths are grouped as %s, such as %s: replay the rules with -route, or keep the paths with -group=false",
			countText(n, "route"), plain(out.Routes[0]))
	}
	return sample, nil
}

func algorithmList() string {
	var names []string
	for _, a := range suggest.Algorithms {
		names = append(names, string(a))
	}
	return strings.Join(names, ", ")
}

// smallest returns the smallest limit of the given algorithm that meets the goal. The limits that were found for other
// algorithms are in the map known. A leaky bucket grants the same requests as a token bucket. So if the limit of the token
// bucket was found before, it is also the limit of the leaky bucket.
func smallest(
	ctx context.Context, g *suggest.Group, a ratelimit.Algorithm, per time.Duration, goal suggest.Goal, known map[ratelimit.Algorithm]int,
) (int, error) {
	if limit, ok := known[ratelimit.AlgorithmTokenBucket]; ok && a == ratelimit.AlgorithmLeakyBucket {
		return limit, nil
	}
	limit, err := g.Smallest(ctx, a, per, goal)
	if ctx.Err() != nil {
		return 0, errors.New("interrupted")
	}
	return limit, err
}

// configOf returns the text of a file of rules. The limits of the rules are those that were found for the given
// algorithm. If no limit was found for an endpoint, the endpoint has no rule.
func configOf(endpoints []endpointJSON, a ratelimit.Algorithm, per time.Duration, key string) []byte {
	quote := func(text string) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(text) // encoding a string never fails
		return string(plainJSON(bytes.TrimSpace(b.Bytes())))
	}
	var rules []string
	rest := ""
	for _, e := range endpoints {
		if e.Limits[a] == 0 {
			continue
		}
		text := `"mode": "shadow"`
		if key != "user" { // a rule without a key has the key "user"
			text = `"key": ` + quote(key) + ", " + text
		}
		rate := ratelimit.Rate{Requests: e.Limits[a], Per: per}
		text += fmt.Sprintf(",\n     \"algorithm\": %q, \"rate\": %q}", a, rate.String())
		if e.Endpoint == "" {
			rest = "{" + text
		} else {
			rules = append(rules, `    {"endpoint": `+quote(e.Endpoint)+", "+text)
		}
	}
	out := "{\n  \"rules\": []"
	if len(rules) > 0 {
		out = "{\n  \"rules\": [\n" + strings.Join(rules, ",\n") + "\n  ]"
	}
	if rest != "" {
		out += ",\n  \"default\": " + rest
	}
	return []byte(out + "\n}\n")
}

func printSuggestions(t *terminal, out *suggestJSON, share, clients *shareFlag, withConfig bool) error {
	p := &page{width: t.width}
	var goals []string
	if share.share != nil {
		goals = append(goals, share.text()+" of the requests")
	}
	if clients.share != nil {
		goals = append(goals, clients.text()+" of the clients")
	}
	p.line("smallest limit of a client in %s that would have denied at most", span(out.Per))
	p.line("%s for the endpoint", strings.Join(goals, " and "))
	if out.Part > 1 {
		p.line("found from all requests of one in %s clients", number(out.Part))
	}
	rows := [][]string{{"endpoint", "requests", "clients", "token", "leaky", "fixed", "counter", "log"}}
	for _, e := range out.Endpoints {
		row := []string{name(e.Endpoint), number(e.Requests), number(e.Clients)}
		if e.Endpoint == "" {
			row[0] = "all others"
		}
		for _, a := range suggest.Algorithms {
			if limit := e.Limits[a]; limit > 0 {
				row = append(row, number(limit))
			} else {
				row = append(row, "-")
			}
		}
		rows = append(rows, row)
	}
	p.line("")
	p.table(rows)
	if withConfig {
		fmt.Fprintf(p, "\n%s", out.Config)
	}
	_, err := io.WriteString(t.out, p.String())
	return err
}
