package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// A grid is a table: the texts of its cells, by row. The first row is the head.
type grid [][]string

// about returns what was simulated, for people, as sentences without an end.
func (s *simulation) about() []string {
	c := &s.traffic
	from := "1 client, which sends"
	if c.Clients > 1 {
		from = chart.Number(float64(c.Clients), 0) + " clients, each of which sends"
	}
	switch c.Shape {
	case traffic.Edge:
		from += fmt.Sprintf(" %d before and %d at each edge of %s", c.Burst, c.Burst, chart.Duration(c.Per))
	default:
		from += " " + s.send.String()
	}
	lines := []string{
		fmt.Sprintf("traffic: %s for %s (seed %d)", c.Shape, chart.Duration(c.Duration), c.Seed),
		"from: " + from,
		"limit: " + plain(s.limit),
	}
	switch c.Retry {
	case traffic.Obey:
		lines = append(lines, "retries: a denied client comes again when it was told to")
	case traffic.Ignore:
		lines = append(lines, "retries: a denied client comes again after "+chart.Duration(c.RetryEvery)+", whatever it was told")
	case traffic.Mixed:
		lines = append(lines, "retries: every second client obeys, the others come again after "+chart.Duration(c.RetryEvery))
	}
	return lines
}

// summary returns the table of the outcomes. With a file of rules, there is a table of the rules too.
func (s *simulation) summary(outcomes []*sim.Outcome) (tables []grid) {
	head := []string{"algorithm", "offered", "granted", "denied", "wait"}
	if s.limited.Per == 0 {
		head[0] = "rules"
	}
	if s.traffic.Retry != traffic.None {
		head = append(head, "through", "never")
	}
	if s.limited.Per > 0 {
		head = append(head, "most", "bound")
	}
	table := grid{head}
	for _, out := range outcomes {
		wait := short(out.LongestWait)
		if out.Never > 0 {
			wait = "never"
		}
		row := []string{plain(out.Name), number(out.Offered), number(out.Admitted), number(out.Denied), wait}
		if s.traffic.Retry != traffic.None {
			row = append(row, short(out.LongestUntil), number(out.Unserved))
		}
		if s.limited.Per > 0 {
			row = append(row, number(out.Rules[0].Most), number(out.Rules[0].Bound))
		}
		table = append(table, row)
	}
	if s.limited.Per > 0 {
		return []grid{table}
	}
	rules := grid{{"rule", "limit", "window", "asked", "denies", "most", "bound"}}
	for _, r := range outcomes[0].Rules {
		most, bound := number(r.Most), number(r.Bound)
		if r.Mode == ratelimit.ModeShadow {
			most, bound = "shadow", "-"
		}
		rules = append(rules, []string{plain(r.Name), r.Rate.String(), short(r.Window), number(r.Asked), number(r.Denied), most, bound})
	}
	return []grid{table, rules}
}

// remarks returns what the table does not say.
func (s *simulation) remarks(outcomes []*sim.Outcome) (remarks []string) {
	if s.limited.Per > 0 {
		remarks = append(remarks, "most: units that one client was granted in any window of "+chart.Duration(outcomes[0].Rules[0].Window), "bound: the most that there can be")
	}
	if s.traffic.Retry != traffic.None {
		remarks = append(remarks, "through: the longest until a request was granted; never: requests that were not")
	}
	if outcomes[0].Offered == 0 {
		remarks = append(remarks, "nothing was sent: the first request would come after the -duration of "+chart.Duration(s.traffic.Duration))
	}
	for _, out := range outcomes {
		if out.Never > 0 {
			remarks = append(remarks, fmt.Sprintf("%s: %s denials for ever, of more units than the limit", plain(out.Name), number(out.Never)))
		}
		if out.AttackOffered > 0 {
			remarks = append(remarks, fmt.Sprintf("%s: the attacker got %s of %s requests through", plain(out.Name), number(out.AttackAdmitted), number(out.AttackOffered)))
		}
	}
	return remarks
}

// short returns d in at most eight characters, rounded up to three digits or a little more.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for _, u := range []time.Duration{time.Hour, time.Minute, time.Second, 10 * time.Millisecond, time.Millisecond, 10 * time.Microsecond, time.Microsecond, 10} {
		if d >= 100*u {
			unit = u
			break
		}
	}
	return chart.Duration(d + (unit-d%unit)%unit)
}

// table returns the outcomes as they are printed on a terminal.
func (s *simulation) table(outcomes []*sim.Outcome) string {
	var b strings.Builder
	for _, line := range s.about() {
		b.WriteString(line + "\n")
	}
	for _, table := range s.summary(outcomes) {
		b.WriteString("\n" + table.text())
	}
	if remarks := s.remarks(outcomes); len(remarks) > 0 {
		b.WriteString("\n" + strings.Join(remarks, "\n") + "\n")
	}
	return b.String()
}

// longestName is the number of characters that a name has in a table.
const longestName = 22

// cut returns text, or as much of it as a table has room for.
func cut(text string) string {
	if runes := []rune(text); len(runes) > longestName {
		return string(runes[:longestName-1]) + "…"
	}
	return text
}

// text returns the table for a terminal: its first column to the left, and the others to the right.
func (g grid) text() string {
	widths := make([]int, len(g[0]))
	for _, row := range g {
		for i, cell := range row {
			widths[i] = max(widths[i], min(utf8.RuneCountInString(cell), longestName))
		}
	}
	gap, sum := 2, 0
	for _, w := range widths {
		sum += w + gap
	}
	if sum-gap > 80 {
		gap = 1
	}
	var b strings.Builder
	for _, row := range g {
		line := ""
		for i, cell := range row {
			cell = cut(cell)
			if i == 0 {
				line = fmt.Sprintf("%-*s", widths[i], cell)
				continue
			}
			line += fmt.Sprintf("%*s", gap+widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// textChart returns the chart for a terminal of this width.
func (s *simulation) textChart(outcomes []*sim.Outcome, width int) string {
	t := chart.Text{Width: width, From: "0s", To: chart.Duration(s.traffic.Duration)}
	if len(outcomes) == 1 {
		t.Height = 3
	}
	t.Rows = []chart.Row{{Name: strings.Repeat("x", longestName)}}
	bins := 1
	for n := 1; n <= min(t.Columns(), sim.Bins); n++ {
		if sim.Bins%n == 0 {
			bins = n
		}
	}
	t.Rows = nil
	for i, out := range outcomes {
		if i == 0 && s.traffic.Retry == traffic.None {
			t.Rows = append(t.Rows, chart.Row{Name: "offered", Values: values(out, bins, offered)})
		}
		name := cut(plain(out.Name))
		t.Rows = append(t.Rows,
			chart.Row{Name: name, Values: values(out, bins, granted)},
			chart.Row{Name: strings.Repeat(" ", min(utf8.RuneCountInString(name), longestName-7)) + " denied", Values: values(out, bins, denied)})
	}
	most := 0.0
	for _, r := range t.Rows {
		for _, v := range r.Values {
			most = max(most, v)
		}
	}
	return fmt.Sprintf("requests granted and denied in each %s; a full block is %s\n%s", s.partText(bins), chart.Number(most, 0), t.String())
}

// The counts of a bin.
func offered(b sim.Bin) int { return b.Offered }
func granted(b sim.Bin) int { return b.Admitted }
func denied(b sim.Bin) int  { return b.Offered - b.Admitted }

// values returns the sums of a count over n equal parts of the time.
func values(out *sim.Outcome, n int, count func(sim.Bin) int) []float64 {
	sums := make([]float64, n)
	for i, b := range out.Bins {
		sums[i*n/sim.Bins] += float64(count(b))
	}
	return sums
}

// printCSV prints a line for each rule of each outcome.
func (s *simulation) printCSV(w io.Writer, outcomes []*sim.Outcome) error {
	c := csv.NewWriter(w)
	records := [][]string{{
		"name", "offered", "admitted", "denied", "attack_offered", "attack_admitted", "longest_wait_ns", "never", "longest_until_ns", "unserved",
		"rule", "algorithm", "rate", "mode", "asked", "rule_denied", "keys", "window_ns", "most", "bound",
	}}
	for _, out := range outcomes {
		for _, r := range out.Rules {
			record := []any{
				plain(out.Name), out.Offered, out.Admitted, out.Denied, out.AttackOffered, out.AttackAdmitted, int64(out.LongestWait), out.Never, int64(out.LongestUntil), out.Unserved,
				plain(r.Name), r.Algorithm, r.Rate, r.Mode, r.Asked, r.Denied, r.Keys, int64(r.Window), r.Most, r.Bound,
			}
			texts := make([]string, len(record))
			for i, v := range record {
				texts[i] = fmt.Sprint(v)
			}
			records = append(records, texts)
		}
	}
	return c.WriteAll(records)
}

// printJSON prints all that was counted.
func (s *simulation) printJSON(w io.Writer, outcomes []*sim.Outcome) error {
	return writeJSON(w, map[string]any{
		"shape": s.traffic.Shape, "send": s.send, "clients": s.traffic.Clients, "cost": s.traffic.Cost, "retry": s.traffic.Retry,
		"durationNanoseconds": s.traffic.Duration, "seed": s.traffic.Seed, "outcomes": outcomes,
	})
}
