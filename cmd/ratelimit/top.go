package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

var topCommand = command{
	name:    "top",
	summary: "who is closest to a limit now, in Redis or PostgreSQL",
	examples: `
ratelimit top -redis redis://127.0.0.1:6379 -config limits.json
ratelimit top -redis redis://:secret@db:6379/2 -config limits.json -name shop -n 5
ratelimit top -postgres postgres://db/shop -config limits.json
ratelimit top -config limits.json -every 0 -json
`,
	about: `
Shows for each rule the keys that have the smallest part of their limit left. In
a terminal it is shown again every two seconds, until you press Ctrl-C, and in a
pipe once. The server is redis://127.0.0.1:6379/0 if none is given.

Nothing is written, and no command takes the server long. In Redis, the names
are read by SCAN in steps of -count, and the states by scripts that write
nothing, 20 keys each. Of a Cluster, give the address of each master. In
PostgreSQL, a step reads -count rows of the table; a replica, and a role that
may only SELECT, are enough. After each step there is a pause that is as long
as the step took.
`,
	run: runTop,
}

// A topJSON is what the command top prints with the flag -json.
type topJSON struct {
	Server string    `json:"server"`
	Time   time.Time `json:"time"`
	Keys   int       `json:"keys"`             // number of keys whose state was read
	Others int       `json:"others"`           // number of keys in the server to which no rule belongs
	Hashed int       `json:"hashed,omitempty"` // number of keys that do not say to which rule they belong, because their names are too long
	// Limiters has the names of the limiters to which the keys counted in Others belong, and how many keys each of them has.
	Limiters map[string]int `json:"limiters,omitempty"`
	Rules    []topRule      `json:"rules"`
}

// A topRule is what the command top prints with the flag -json for one rule of a limiter.
type topRule struct {
	Rule      string         `json:"rule"` // name of the limiter and name of the rule, with a colon between them
	Algorithm string         `json:"algorithm"`
	Rate      ratelimit.Rate `json:"-"`
	RateText  string         `json:"rate"`
	Unit      string         `json:"unit,omitempty"` // what the rule counts; empty for requests
	Keys      int            `json:"keys"`
	Top       []topKey       `json:"top"`
}

// A topKey is what the command top prints with the flag -json for one key of a rule.
type topKey struct {
	Key        string        `json:"key"`
	Limit      int           `json:"limit"`
	Left       int           `json:"left"`
	RetryAfter time.Duration `json:"retryAfterNs"`
	ResetAfter time.Duration `json:"resetAfterNs"`
	name       string        // full name of the key in the server
}

// A watch reads from a server how much of its limit each key has left. It reads once, or again and again.
type watch struct {
	*server
	rules   map[string]ratelimit.Rule
	names   []string // names of the rules, the longest first: a name may end with another name, and the longer one must match first
	name    string   // name of the limiter to show; if it is empty, all limiters are shown
	maxKeys int      // largest number of keys to print for each rule
	count   int      // how many names a step looks at
	pause   time.Duration
	partly  func(*topJSON) // gets what was found so far, if reading takes long; may be nil
}

// lookTogether is the largest number of keys whose states are read by one call of a Redis script.
const lookTogether = 20

func runTop(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	config := fs.String("config", "", "the `file` of rules")
	n := fs.Int("n", 10, "how many `keys` of each rule")
	every := everyFlag(fs)
	count := fs.Int("count", 200, "how many `names` a step looks at")
	pause := fs.Duration("pause", 5*time.Millisecond, "the shortest `pause` after a step")
	asJSON := fs.Bool("json", false, "print JSON, once")
	how := newServerFlags(fs)
	urls, err := parse(fs, args, 0, 1, "the server")
	if err != nil {
		return err
	}
	switch {
	case *config == "":
		return usageError("-config is missing: the file of rules")
	case *n < 1 || *n > 1000:
		return usageError(fmt.Sprintf("-n is %d: must be from 1 to 1000", *n))
	case *count < 1 || *count > 10_000:
		return usageError(fmt.Sprintf("-count is %d: must be from 1 to 10000", *count))
	case *pause < 0:
		return usageError(fmt.Sprintf("-pause is %v: must not be negative", *pause))
	}
	w := &watch{name: *how.name, maxKeys: *n, count: *count, pause: *pause}
	if err := w.load(*config); err != nil {
		return err
	}
	if w.server, err = how.connect(ctx, urls); err != nil {
		return err
	}
	defer w.close()
	live := t.isTerminal()
	if *every < 0 && live {
		*every = 2 * time.Second
	}
	if *every <= 0 || *asJSON {
		return w.once(ctx, t, *asJSON)
	}
	return w.again(ctx, t, *every)
}

// The method once reads the states a single time, and prints them.
func (w *watch) once(ctx context.Context, t *terminal, asJSON bool) error {
	found, err := w.pass(ctx)
	switch {
	case err != nil:
		return err
	case asJSON:
		err = t.printJSON(found)
	default:
		err = printTop(t, found, false)
	}
	if err == nil && found.Keys == 0 && w.name != "" {
		err = w.checkName(ctx, w.name)
	}
	return err
}

// The method again reads and prints the states in a loop, until the user presses Ctrl-C. If the server fails after the first page,
// this method prints the error and goes on. While it reads many keys for the first page, it shows those that it has read so far.
func (w *watch) again(ctx context.Context, t *terminal, every time.Duration) error {
	live := t.isTerminal()
	if live {
		w.partly = func(found *topJSON) {
			found.Time = time.Now().UTC()
			_ = printTop(t, found, true)
			fmt.Fprintln(t.out, "reading ...")
		}
	}
	for first := true; ; first = false {
		found, err := w.pass(ctx)
		w.partly = nil
		switch {
		case ctx.Err() != nil && !first:
			return nil // the user pressed Ctrl-C after a page was printed
		case err != nil && first:
			return err
		case err != nil:
			_, err = fmt.Fprintf(t.out, "%v: trying again\n", err)
		default:
			err = printTop(t, found, live)
		}
		if err != nil {
			return err
		}
		if !sleep(ctx, every) {
			return nil
		}
	}
}

// everyFlag defines the flag -every. Its value is negative if it is not given.
func everyFlag(fs *flag.FlagSet) *time.Duration {
	every := time.Duration(-1)
	fs.Func("every", "how `often`; 0 is once (2s in a terminal, once in a pipe)", func(text string) (err error) {
		if every, err = time.ParseDuration(text); err == nil && every < 0 {
			err = errors.New("must not be negative")
		}
		return err
	})
	return &every
}

// sleep waits for the duration d, and then returns true. If ctx ends before that, sleep returns false at once.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// load reads the rules from the file at path.
func (w *watch) load(path string) error {
	_, l, err := loadRules(path)
	if err != nil {
		return err
	}
	rules, byDefault := l.Rules()
	if byDefault != nil {
		rules = append(slices.Clip(rules), *byDefault)
	}
	w.rules = make(map[string]ratelimit.Rule)
	for _, r := range rules {
		w.rules[r.Name] = r
		w.names = append(w.names, r.Name)
	}
	slices.SortFunc(w.names, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return nil
}

// The method rule returns the rule to which the stored state s belongs. If there is no such rule, it returns false. The text
// s.ask.Rule has the name of the limiter and the name of the rule, with a colon between them.
func (w *watch) rule(s *state) (r ratelimit.Rule, ok bool) {
	for _, name := range w.names {
		candidate := w.rules[name]
		limiter, ends := strings.CutSuffix(s.ask.Rule, ":"+name+afterName(&candidate))
		if ends && (w.name == "" || w.name == limiter) {
			r, ok = candidate, true
			break
		}
	}
	return r, ok && r.Algorithm == s.ask.Algorithm && s.warms == (r.Warmup != ratelimit.Warmup{})
}

// afterName returns the part of the text state.ask.Rule that follows the name of the rule r. If the rule has a unit, this part is
// a zero byte and the unit. Otherwise it is empty.
func afterName(r *ratelimit.Rule) string {
	if r.Unit == "" {
		return ""
	}
	return "\x00" + r.Unit
}

// The method pass reads the states of all keys in the server once.
func (w *watch) pass(ctx context.Context) (*topJSON, error) {
	found := &topJSON{Server: w.address, Rules: []topRule{}, Limiters: make(map[string]int)}
	shown := time.Now()
	at := make(map[string]int) // index in found.Rules of each rule, by the name of the rule
	for from := ""; ; {
		began := time.Now()
		all, next, err := w.step(ctx, from, w.count)
		if err != nil {
			return nil, err
		}
		states := w.ofRules(all, found)
		if err := w.within(ctx, func(ctx context.Context) error { return w.tiers(ctx, states) }); err != nil {
			return nil, err
		}
		for part := range slices.Chunk(states, lookTogether) {
			if err := w.show(ctx, part, found, at); err != nil {
				return nil, err
			}
		}
		if from = next; from == "" {
			break
		}
		if w.partly != nil && time.Since(shown) > time.Second/2 {
			shown = time.Now()
			w.partly(found)
		}
		if !sleep(ctx, max(w.pause, time.Since(began))) {
			return nil, errors.New("interrupted")
		}
	}
	found.Time = time.Now().UTC()
	slices.SortFunc(found.Rules, func(a, b topRule) int { return strings.Compare(a.Rule, b.Rule) })
	return found, nil
}

// ofRules returns the states that belong to a rule of the file, and sets their rates to those of the rule. It counts all other
// states in found.
func (w *watch) ofRules(all []state, found *topJSON) (states []state) {
	for _, s := range all {
		r, ok := w.rule(&s)
		switch {
		case s.hashed:
			found.Hashed++
		case !ok:
			found.Others++
			found.Limiters[s.limiter()]++
		default:
			s.rate, s.ask.Rate, s.ask.Warmup, s.ask.Penalty = r.Rate, r.Rate, r.Warmup, r.Penalty
			for _, rate := range r.Tiers {
				if rate != ratelimit.Unlimited {
					s.rates = append(s.rates, rate)
				}
			}
			states = append(states, s)
		}
	}
	return states
}

// show reads the given states together, and adds the results to found. If one of them is not the state of a limiter, the call fails,
// and show then makes a separate call for each state.
func (w *watch) show(ctx context.Context, states []state, found *topJSON, at map[string]int) error {
	var results []ratelimit.Result
	foreign := false
	err := w.within(ctx, func(ctx context.Context) (err error) {
		results, err = w.look(ctx, states)
		var failed ratelimit.StoreErrorAnswered
		foreign = errors.As(err, &failed) && failed.Answered()
		return err
	})
	switch {
	case foreign && len(states) == 1:
		found.Others++
		found.Limiters[states[0].limiter()]++
		return nil
	case foreign:
		for i := range states {
			if err := w.show(ctx, states[i:i+1], found, at); err != nil {
				return err
			}
		}
		return nil
	case err != nil:
		return err
	}
	for i := range states {
		s := &states[i]
		j, ok := at[s.ask.Rule]
		if !ok {
			j = len(found.Rules)
			at[s.ask.Rule] = j
			rule, unit, _ := strings.Cut(s.ask.Rule, "\x00")
			found.Rules = append(found.Rules, topRule{
				Rule: rule, Algorithm: string(s.ask.Algorithm), Rate: s.rate, RateText: s.rate.String(), Unit: unit, Top: []topKey{},
			})
		}
		res := &results[i]
		found.Rules[j].add(topKey{s.ask.Key, res.Limit, res.Remaining, res.RetryAfter, res.ResetAfter, s.name}, w.maxKeys)
		found.Keys++
	}
	return nil
}

// The method add counts the key k. It keeps at most maxKeys keys: the keys that have used the largest part of their limit.
func (r *topRule) add(k topKey, maxKeys int) {
	r.Keys++
	if slices.ContainsFunc(r.Top, func(other topKey) bool { return other.name == k.name }) {
		r.Keys-- // the command SCAN of Redis has returned this key before, so it is not a new key
		return
	}
	compare := func(a, b topKey) int {
		return cmp.Or(
			cmp.Compare(int64(a.Left)*int64(b.Limit), int64(b.Left)*int64(a.Limit)),
			cmp.Compare(b.ResetAfter, a.ResetAfter),
			strings.Compare(a.name, b.name),
		)
	}
	i, _ := slices.BinarySearchFunc(r.Top, k, compare)
	if r.Top = slices.Insert(r.Top, i, k); len(r.Top) > maxKeys {
		r.Top = r.Top[:maxKeys]
	}
}

func printTop(t *terminal, found *topJSON, over bool) error {
	p := &page{width: t.width}
	if over {
		p.WriteString(clearScreen)
	}
	p.line("%s, %s UTC: %s", found.Server, found.Time.Format(timeFormat), countText(found.Keys, "key"))
	if found.Others > 0 {
		p.line("%s to no rule of the file: %s", belong(found.Others), listOf(found.Limiters))
	}
	if found.Hashed > 0 {
		p.line("%s of unknown rules: names above 200 bytes are stored as a hash", countText(found.Hashed, "key"))
	}
	for _, r := range found.Rules {
		p.line("")
		limit := strings.TrimSpace(r.Algorithm + " " + r.RateText + " " + r.Unit)
		p.line("%s: %s, %s", name(r.Rule), limit, countText(r.Keys, "key"))
		rows := [][]string{{"key", "left", "of", "denied for", "as new after"}}
		for _, k := range r.Top {
			denied := "-"
			if k.RetryAfter > 0 {
				denied = wait(rounded(k.RetryAfter))
			}
			rows = append(rows, []string{name(k.Key), number(k.Left), number(k.Limit), denied, wait(rounded(k.ResetAfter))})
		}
		p.table(rows)
		if r.Algorithm == string(ratelimit.AlgorithmInFlight) {
			p.line("these times are bounds: requests may end earlier")
		}
	}
	_, err := io.WriteString(t.out, p.String())
	return err
}

// belong returns a text such as "1 key belongs" or "2 keys belong".
func belong(n int) string {
	if n == 1 {
		return "1 key belongs"
	}
	return countText(n, "key") + " belong"
}

// rounded returns the duration d, rounded up to tenths of a second.
func rounded(d time.Duration) time.Duration {
	if d == ratelimit.Never {
		return d
	}
	const unit = 100 * time.Millisecond
	return (d + unit - 1).Truncate(unit)
}
