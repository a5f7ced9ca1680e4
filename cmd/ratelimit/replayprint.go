package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// maxPrintedSpans is the largest number of lines in the table of the times at which requests were denied.
const maxPrintedSpans = 24

// The function name returns the name of a client or a rule for printing. If the name is empty, it returns two
// quotation marks.
func name(text string) string {
	if text == "" {
		return `""`
	}
	return plain(text)
}

// percent returns the quotient of part and n as a percentage, for example "12.50 %". It returns "-"
// if n is 0.
func percent(part, n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(n))
}

const timeFormat = "2006-01-02 15:04:05"

func stamp(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(timeFormat)
}

// A sheet is the page to which a report is written, as text or as HTML. It takes lines of text, and tables whose first row
// is the header.
type sheet interface {
	line(format string, args ...any)
	table(rows [][]string, left ...int)
}

func printReplay(t *terminal, r *replayJSON) error {
	p := &page{width: t.width}
	writeReport(p, r, func() { printSpans(p, r) })
	_, err := io.WriteString(t.out, p.String())
	return err
}

// writeReport writes a report of replay. It calls the function spans at the place where the report shows when requests were
// denied.
func writeReport(p sheet, r *replayJSON, spans func()) {
	p.line("%s, %s to %s UTC", countText(r.Requests, "request"), stamp(&r.From), stamp(&r.To))
	if r.Log.Broken > 0 {
		p.line("%s of %s lines could not be read", number(r.Log.Broken), number(r.Log.Lines))
	}
	if r.Backward > 0 {
		p.line("%s out of order, by up to %s: decided at the latest time so far", countVerb(r.Backward, "is", "are"), span(r.Back))
	}
	if r.Unlimited > 0 {
		p.line("%s no rule", countVerb(r.Unlimited, "has", "have"))
	}
	p.line("denied: %s (%s) of %s of %s%s", countText(r.Denied, "request"), percent(r.Denied, r.Requests),
		number(r.Clients.Denied), about(r.Clients.Exact), countText(r.Clients.Keys, "client"))
	printRules(p, r)
	spans()
	printOffenders(p, "top offenders", r.Offenders, r.Missed)
	printHeadroom(p, r)
	if r.Report.Against != nil {
		printDifference(p, r)
	}
}

// countVerb returns a text such as "1 request has" or "2 requests have". The two verbs are parameters: the one for one request, and
// the one for several.
func countVerb(n uint64, one, several string) string {
	if n == 1 {
		several = one
	}
	return countText(n, "request") + " " + several
}

func about(exact bool) string {
	if exact {
		return ""
	}
	return "about "
}

func printRules(p sheet, r *replayJSON) {
	rows := [][]string{{"rule", "requests", "denied", "", "first", "last"}}
	shadow := false
	for _, rule := range r.Rules {
		text := name(rule.Name)
		if rule.Shadow {
			text, shadow = "* "+text, true
		}
		rows = append(rows, []string{
			text, number(rule.Requests), number(rule.Denied), percent(rule.Denied, rule.Requests),
			stamp(rule.FirstDenied), stamp(rule.LastDenied),
		})
	}
	p.line("")
	p.table(rows)
	if shadow {
		p.line("* in %s mode: what it would have denied, not in the sum above", r.shadowModes)
	}
	for _, rule := range r.Rules {
		if rule.Overflowed > 0 {
			p.line("%s has more keys than fit: %s requests shared a budget. Raise -max-keys", name(rule.Name), number(rule.Overflowed))
		}
	}
	printNotJudged(p, "", r.NotJudged)
}

// printNotJudged prints which rules could not decide on all requests, because the log does not say enough about
// these requests.
func printNotJudged(p sheet, prefix string, list []replay.NotJudged) {
	for _, r := range list {
		if r.NoUnit > 0 {
			p.line("%s%s: %s requests not judged: no %s, see -field cost:%s=COLUMN",
				prefix, name(r.Rule), number(r.NoUnit), r.Unit, r.Unit)
		}
		if r.Duration > 0 {
			p.line("%s%s: %s requests not judged: no log says how long they ran", prefix, name(r.Rule), number(r.Duration))
		}
	}
}

func printSpans(p sheet, r *replayJSON) {
	if r.Denied == 0 {
		return
	}
	format := "2006-01-02 15:04"
	unit := fmt.Sprintf("%d hours", r.Width/time.Hour)
	switch days := int(r.Width / (24 * time.Hour)); {
	case r.Width == time.Hour:
		unit = "hour"
	case days == 1:
		unit, format = "day", "2006-01-02"
	case days > 1:
		unit, format = fmt.Sprintf("%d days", days), "2006-01-02"
	}
	rows := [][]string{{"by " + unit + ", UTC", "requests", "denied", ""}}
	maxDenied := uint64(1)
	for _, s := range r.Spans {
		maxDenied = max(maxDenied, s.Denied)
	}
	for _, s := range r.Spans {
		bar := strings.Repeat("#", int((s.Denied*30+maxDenied-1)/maxDenied))
		rows = append(rows, []string{s.Start.Format(format), number(s.Requests), number(s.Denied), fmt.Sprintf("%-30s", bar)})
	}
	p.line("")
	p.table(rows)
}

func printOffenders(p sheet, title string, list []replay.Offender, missed uint64) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{title, "by rule", "denied", "at least"}}
	exact := true
	for _, o := range list {
		rows = append(rows, []string{name(o.Client), name(o.Rule), number(o.Denied), number(o.Denied - o.Error)})
		exact = exact && o.Error == 0
	}
	if exact {
		for i, row := range rows {
			rows[i] = row[:3]
		}
	}
	p.line("")
	p.table(rows, 1)
	if missed > 0 && !exact {
		p.line("denied is at most; a client that is not listed was denied at most %s times", number(max(missed, list[len(list)-1].Denied)))
	}
}

func printHeadroom(p sheet, r *replayJSON) {
	rows := [][]string{{"keys by the least that was left", "denied", "none", "<10 %", "<25 %", "<50 %", "more"}}
	exact := true
	for _, rule := range r.Rules {
		k := rule.Keys
		if k.Keys == 0 {
			continue
		}
		exact = exact && k.Exact
		rows = append(rows, []string{
			name(rule.Name), number(k.Denied), number(k.None), number(k.Tenth), number(k.Fourth), number(k.Half), number(k.More),
		})
	}
	if len(rows) == 1 {
		return
	}
	p.line("")
	p.table(rows)
	if !exact {
		p.line("estimates, by a part of the keys")
	}
}

func printDifference(p sheet, r *replayJSON) {
	d := r.Report.Against
	one, two := plain(r.Config), plain(r.Against)
	p.line("")
	p.line("%s denies %s (%s), %s", two, number(d.Denied), percent(d.Denied, r.Requests), one+" "+number(r.Denied))
	p.line("denied by both: %s", number(d.Both))
	for _, side := range []struct {
		name string
		replay.Only
	}{{one, d.OnlyOne}, {two, d.OnlyTwo}} {
		p.line("")
		p.line("denied only by %s: %s (%s)", side.name, number(side.Denied), percent(side.Denied, r.Requests))
		if side.Denied == 0 {
			continue
		}
		rows := [][]string{{"rule", "denied"}}
		for _, rule := range side.Rules {
			rows = append(rows, []string{name(rule.Rule), number(rule.Denied)})
		}
		p.table(rows)
		printOffenders(p, "top clients", side.Offenders, 0)
	}
	if d.Overflow {
		p.line("%s has more keys than fit: requests shared a budget. Raise -max-keys", two)
	}
	if len(d.NotJudged) > 0 {
		p.line("")
		printNotJudged(p, two+": ", d.NotJudged)
	}
}
