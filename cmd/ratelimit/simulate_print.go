package main

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// A grid is a table. It has the texts of the cells, by row and column. The first row is the header.
type grid [][]string

// The method about returns lines that describe what was simulated.
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
	if text := s.costText(); text != "" {
		lines = append(lines, "cost: "+text)
	}
	if s.hold > 0 {
		lines = append(lines, "each request runs for "+chart.Duration(s.hold))
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

// summary returns a table with the outcomes. If there is a file of rules, a second table has its rules.
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
			row = append(row, number(out.Rules[0].MaxGranted), number(out.Rules[0].Bound))
		}
		table = append(table, row)
	}
	if s.limited.Per > 0 {
		return []grid{table}
	}
	rules := grid{{"rule", "limit", "window", "asked", "denies", "most", "bound"}}
	for _, r := range outcomes[0].Rules {
		maxGranted, bound, window := number(r.MaxGranted), number(r.Bound), short(r.Window)
		if !r.Mode.Denies() {
			maxGranted, bound = string(r.Mode), "-"
		}
		limit := r.Rate.String()
		if r.Algorithm == ratelimit.AlgorithmInFlight {
			limit, window = number(r.Rate.Requests)+" for "+chart.Duration(r.Rate.Per), "at once"
		}
		if r.Unit != "" {
			limit += " " + r.Unit
		}
		rules = append(rules, []string{plain(r.Name), limit, window, number(r.Asked), number(r.Denied), maxGranted, bound})
	}
	return []grid{table, rules}
}

// remarks returns lines that explain the columns of the table. Further lines say what is unusual in the outcomes.
func (s *simulation) remarks(outcomes []*sim.Outcome) (remarks []string) {
	if s.limited.Per > 0 {
		window := cmp.Or(s.window, s.limited.Per)
		remarks = append(remarks, "most: units that one client was granted in any window of "+chart.Duration(window))
		if slices.ContainsFunc(s.rules, func(r ratelimit.Rule) bool { return holds(&r) }) {
			remarks = append(remarks, "most, of InFlight: units that one client had running at once")
		}
		remarks = append(remarks, "bound: the most that there can be")
	}
	if s.traffic.Retry != traffic.None {
		remarks = append(remarks, "through: the longest until a request was granted; never: requests that were not")
	}
	if outcomes[0].Offered == 0 {
		remarks = append(remarks, "nothing was sent: the first request would come after the -duration of "+chart.Duration(s.traffic.Duration))
	}
	remarks = append(remarks, s.assumptions()...)
	for _, out := range outcomes {
		if out.Busy > 0 {
			remarks = append(remarks, fmt.Sprintf("%s: %s denials only because others ran; their wait is a bound",
				plain(out.Name), number(out.Busy)))
		}
		if out.Never > 0 {
			remarks = append(remarks, fmt.Sprintf("%s: %s denials for ever, of more units than the limit", plain(out.Name), number(out.Never)))
		}
		if out.AttackOffered > 0 {
			remarks = append(remarks, fmt.Sprintf("%s: the attacker got %s of %s requests through",
				plain(out.Name), number(out.AttackAdmitted), number(out.AttackOffered)))
		}
	}
	return remarks
}

// costText says what each request costs. The text is empty if requests have no cost in another unit than requests.
func (s *simulation) costText() string {
	if len(s.costs) == 0 {
		return ""
	}
	texts := []string{"each request costs " + number(s.traffic.Cost)}
	for _, c := range s.costs {
		texts = append(texts, number(c.N)+" "+c.Unit)
	}
	return strings.Join(texts, ", and ")
}

// assumptions returns lines about two kinds of rules. For the first kind, a flag is missing, such as -cost for a rule that counts
// tokens. Rules of the second kind stop counting a request before it ends.
func (s *simulation) assumptions() (lines []string) {
	for i := range s.rules {
		r := &s.rules[i]
		name := plain(r.Name)
		has := func(c ratelimit.Cost) bool { return c.Unit == r.Unit }
		switch {
		case r.Unit != "" && !slices.ContainsFunc(s.costs, has):
			lines = append(lines, fmt.Sprintf("%s: not asked, as no request has %s; see -cost %s=NUMBER", name, r.Unit, r.Unit))
		case holds(r) && s.hold == 0:
			lines = append(lines, name+": without -hold, each request ends as soon as it is granted")
		case holds(r) && s.hold > r.Rate.Per:
			lines = append(lines, fmt.Sprintf("%s: a request counts for at most %s, so more may run than the limit",
				name, chart.Duration(r.Rate.Per)))
		}
	}
	return lines
}

// short returns the duration d as text of at most eight characters. For this, it rounds the duration up, but keeps at least
// three digits.
func short(d time.Duration) string {
	unit := time.Nanosecond
	for _, u := range []time.Duration{
		time.Hour, time.Minute, time.Second, 10 * time.Millisecond, time.Millisecond, 10 * time.Microsecond, time.Microsecond, 10,
	} {
		if d >= 100*u {
			unit = u
			break
		}
	}
	return chart.Duration(d + (unit-d%unit)%unit)
}

// The method table returns text for a terminal: the description of the simulation, the tables and the remarks.
func (s *simulation) table(outcomes []*sim.Outcome, width int) string {
	p := &page{width: width}
	for _, line := range s.about() {
		p.line("%s", line)
	}
	for _, table := range s.summary(outcomes) {
		p.line("")
		table.print(p)
	}
	for i, line := range s.remarks(outcomes) {
		if i == 0 {
			p.line("")
		}
		p.line("%s", line)
	}
	return p.String()
}

// maxName is the largest number of characters that a table shows of a name.
const maxName = 22

// truncate returns a text of at most maxName characters unchanged. A longer text is cut: the result then has maxName
// characters, and the last of them is "…".
func truncate(text string) string {
	if runes := []rune(text); len(runes) > maxName {
		return string(runes[:maxName-1]) + "…"
	}
	return text
}

// print adds the table g to a page. The first column is aligned to the left, all further columns to the right. If the table
// is wider than the page, each row is written as several lines.
func (g grid) print(p *page) {
	widths := make([]int, len(g[0]))
	for _, row := range g {
		for i, cell := range row {
			widths[i] = max(widths[i], min(utf8.RuneCountInString(cell), maxName))
		}
	}
	gap, sum := 2, 0
	for _, w := range widths {
		sum += w + gap
	}
	if sum-gap > p.width {
		sum -= (gap - 1) * len(widths)
		gap = 1
	}
	if sum-gap > p.width {
		p.cards(g)
		return
	}
	for _, row := range g {
		line := ""
		for i, cell := range row {
			cell = truncate(cell)
			if i == 0 {
				line = fmt.Sprintf("%-*s", widths[i], cell)
				continue
			}
			line += fmt.Sprintf("%*s", gap+widths[i], cell)
		}
		p.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// textChart returns a chart of the outcomes for a terminal. The argument width is the width of the terminal in
// columns.
func (s *simulation) textChart(outcomes []*sim.Outcome, width int) string {
	t := chart.Text{Width: width, From: "0s", To: chart.Duration(s.traffic.Duration)}
	if len(outcomes) == 1 {
		t.Height = 3
	}
	t.Rows = []chart.Row{{Name: strings.Repeat("x", maxName)}}
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
		name := truncate(plain(out.Name))
		indent := min(utf8.RuneCountInString(name), maxName-7, max(width/2-7, 0))
		t.Rows = append(t.Rows,
			chart.Row{Name: name, Values: values(out, bins, granted)},
			chart.Row{Name: strings.Repeat(" ", indent) + " denied", Values: values(out, bins, denied)})
	}
	highest := 0.0
	for _, r := range t.Rows {
		for _, v := range r.Values {
			highest = max(highest, v)
		}
	}
	p := &page{width: width}
	p.line("requests granted and denied in each %s; a full block is %s", s.partText(bins), chart.Number(highest, 0))
	return p.String() + t.String()
}

// These functions return one of the counts of a Bin: the requests that were sent, granted or denied in one part of the
// duration.
func offered(b sim.Bin) int { return b.Offered }
func granted(b sim.Bin) int { return b.Admitted }
func denied(b sim.Bin) int  { return b.Offered - b.Admitted }

// values divides the duration of the simulation into n equal parts, and returns one value for each part. A part has several bins,
// and each bin b has the counts of a short time. The value of a part is the sum of count(b) for all its bins.
func values(out *sim.Outcome, n int, count func(sim.Bin) int) []float64 {
	sums := make([]float64, n)
	for i, b := range out.Bins {
		sums[i*n/sim.Bins] += float64(count(b))
	}
	return sums
}

// printCSV prints a line of CSV for each rule of each outcome.
func (s *simulation) printCSV(w io.Writer, outcomes []*sim.Outcome) error {
	c := csv.NewWriter(w)
	records := [][]string{{
		"name", "offered", "granted", "denied", "attack_offered", "attack_granted", "longest_wait_ns", "never", "longest_until_ns", "unserved",
		"rule", "algorithm", "rate", "mode", "asked", "rule_denied", "keys", "window_ns", "most", "bound", "unit", "busy",
	}}
	for _, out := range outcomes {
		for _, r := range out.Rules {
			record := []any{
				plain(out.Name), out.Offered, out.Admitted, out.Denied, out.AttackOffered, out.AttackAdmitted,
				int64(out.LongestWait), out.Never, int64(out.LongestUntil), out.Unserved,
				plain(r.Name), r.Algorithm, r.Rate, r.Mode, r.Asked, r.Denied, r.Keys, int64(r.Window), r.MaxGranted, r.Bound, r.Unit, out.Busy,
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

// costsJSON returns what each request costs, for each unit other than requests.
func (s *simulation) costsJSON() map[string]int {
	costs := make(map[string]int)
	for _, c := range s.costs {
		costs[c.Unit] = c.N
	}
	return costs
}

// printJSON prints the settings and all counts as JSON.
func (s *simulation) printJSON(w io.Writer, outcomes []*sim.Outcome) error {
	return writeJSON(w, map[string]any{
		"shape": s.traffic.Shape, "send": s.send, "clients": s.traffic.Clients, "cost": s.traffic.Cost, "costs": s.costsJSON(),
		"holdNs": s.hold, "retry": s.traffic.Retry,
		"durationNs": s.traffic.Duration, "seed": s.traffic.Seed, "outcomes": outcomes,
	})
}
