package main

import (
	"bytes"
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
)

var suggestCommand = command{
	name:    "suggest",
	summary: "limits that would have denied few of the requests in a log",
	examples: `
ratelimit suggest access.log
ratelimit suggest access.log -share 0% -per 1h -n 5
ratelimit suggest access.log -clients 1% -algorithm FixedWindow -o limits.json
ratelimit suggest access.log -key ip -json
`,
	about: `
Finds, for the endpoints with the most requests and for all others together, the
smallest limit of each client that would have denied at most -share of the
requests for that endpoint, and at most -clients of its clients. Then it prints
rules in shadow mode: they deny nothing until you remove "mode".

Up to -requests requests are kept, of 24 bytes each. Of a larger log, it keeps
those of a half of the clients, of a quarter, and so on.
` + aboutLogs,
	run: runSuggest,
}

// An endpointJSON is what suggest -json says of an endpoint.
type endpointJSON struct {
	Endpoint string                      `json:"endpoint"` // empty for the rest
	Requests uint64                      `json:"requests"`
	Clients  int                         `json:"clients"`
	Limits   map[ratelimit.Algorithm]int `json:"limits"` // 0 where no limit can do it
}

// A suggestJSON is what suggest -json prints.
type suggestJSON struct {
	Log       logCount        `json:"log"`
	Per       string          `json:"per"`
	Part      uint64          `json:"oneIn"` // one in so many clients was looked at
	Endpoints []endpointJSON  `json:"endpoints"`
	Config    json.RawMessage `json:"config"`
}

func runSuggest(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	var share, clients shareFlag
	fs.Var(&share, "share", "deny at most this `share` of the requests (0.1% if -clients is missing)")
	fs.Var(&clients, "clients", "deny at most this `share` of the clients, ever")
	per := fs.Duration("per", time.Minute, "the `time` that the limits are for")
	n := fs.Int("n", 10, "how many `endpoints` get a rule of their own")
	key := fs.String("key", "user", "whose limit it is: user or ip, the `key` of the rules")
	algorithm := fs.String("algorithm", string(ratelimit.AlgorithmTokenBucket), "the `algorithm` of the rules")
	most := fs.Int("requests", 4_000_000, "how many requests to keep, at `most`")
	output := fs.String("o", "", "write the rules to this `file`")
	asJSON := fs.Bool("json", false, "print JSON")
	logs := newLogFlags(fs)
	paths, err := parse(fs, args, 1, 1000)
	if err != nil {
		return err
	}
	switch {
	case *per <= 0 || *per > 366*24*time.Hour:
		return usageError(fmt.Sprintf("-per is %v: must be above 0, and at most 8784h", *per))
	case *n < 0 || *n > 1000:
		return usageError(fmt.Sprintf("-n is %d: must be from 0 to 1000", *n))
	case *key != "user" && *key != "ip":
		return usageError(fmt.Sprintf("-key is %q: must be user or ip", *key))
	case !slices.Contains(suggest.Algorithms, ratelimit.Algorithm(*algorithm)):
		return usageError(fmt.Sprintf("-algorithm is %q: must be one of %s", *algorithm, algorithmList()))
	case *most < 1000 || *most > 1_000_000_000:
		return usageError(fmt.Sprintf("-requests is %d: must be from 1000 to 1000000000", *most))
	}
	if share.share == nil && clients.share == nil {
		_ = share.Set("0.1%")
	}
	sample := suggest.NewSample(*most)
	var out suggestJSON
	out.Log, err = logs.read(ctx, t, paths, func(e *accesslog.Entry) error {
		r := suggest.Request{Time: e.Time, Client: e.Client, Endpoint: e.Endpoint, Cost: e.Cost}
		if *key == "ip" {
			r.Client = e.IP
		}
		sample.Add(&r)
		return nil
	})
	if err != nil {
		return err
	}
	out.Part, out.Per = sample.Part(), per.String()
	goal := suggest.Goal{Requests: share.of, Clients: clients.of}
	for _, g := range sample.Groups(*n) {
		e := endpointJSON{g.Endpoint, g.Requests, g.Clients, make(map[ratelimit.Algorithm]int)}
		for _, a := range suggest.Algorithms {
			if e.Limits[a], err = smallest(ctx, g, a, *per, goal, e.Limits); err != nil {
				return err
			}
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	config := configOf(out.Endpoints, ratelimit.Algorithm(*algorithm), *per, *key)
	out.Config = config
	if *output != "" {
		if err := save(*output, func(w io.Writer) error { _, err := w.Write(config); return err }); err != nil {
			return err
		}
	}
	if *asJSON {
		return t.printJSON(out)
	}
	return printSuggestions(t, &out, &share, &clients, *output == "")
}

func algorithmList() string {
	var names []string
	for _, a := range suggest.Algorithms {
		names = append(names, string(a))
	}
	return strings.Join(names, ", ")
}

// smallest returns the limit for an algorithm. A leaky bucket grants what a token bucket grants.
func smallest(ctx context.Context, g *suggest.Group, a ratelimit.Algorithm, per time.Duration, goal suggest.Goal, known map[ratelimit.Algorithm]int) (int, error) {
	if limit, ok := known[ratelimit.AlgorithmTokenBucket]; ok && a == ratelimit.AlgorithmLeakyBucket {
		return limit, nil
	}
	limit, err := g.Smallest(ctx, a, per, goal)
	if ctx.Err() != nil {
		return 0, errors.New("interrupted")
	}
	return limit, err
}

// configOf returns a file of rules with the limits for an algorithm. An endpoint for which there is no
// limit has no rule.
func configOf(endpoints []endpointJSON, a ratelimit.Algorithm, per time.Duration, key string) []byte {
	quote := func(text string) string {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		_ = e.Encode(text) // a string can be encoded
		return string(plainJSON(bytes.TrimSpace(b.Bytes())))
	}
	var rules []string
	rest := ""
	for _, e := range endpoints {
		if e.Limits[a] == 0 {
			continue
		}
		text := `"mode": "shadow"`
		if key != "user" { // which it is without
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
	p.line("smallest limit of a client in %s that would have denied at most", out.Per)
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
