package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// writeMarkdown writes the report of replay in Markdown, for a comment on a pull request or the summary of a workflow.
func writeMarkdown(w io.Writer, r *replayJSON) error {
	var b strings.Builder
	fmt.Fprintf(&b, "### Rate limits: %s\n\n", code(r.Config))
	if r.Report.Against != nil {
		b.Reset()
		fmt.Fprintf(&b, "### Rate limits: %s instead of %s\n\n", code(r.Against), code(r.Config))
	}
	fmt.Fprintf(&b, "%s, %s to %s UTC.\n\n", countText(r.Requests, "request"), stamp(&r.From), stamp(&r.To))
	for _, text := range r.Warnings {
		fmt.Fprintf(&b, "> **Warning:** %s\n\n", markdown(text))
	}
	if d := r.Report.Against; d != nil {
		rows := [][]string{
			{"", "requests", "share"},
			{"denied by " + code(r.Config), number(r.Denied), percent(r.Denied, r.Requests)},
			{"denied by " + code(r.Against), number(d.Denied), percent(d.Denied, r.Requests)},
			{"**newly denied**", number(d.OnlyTwo.Denied), percent(d.OnlyTwo.Denied, r.Requests)},
			{"no longer denied", number(d.OnlyOne.Denied), percent(d.OnlyOne.Denied, r.Requests)},
		}
		markdownTable(&b, rows)
		markdownOffenders(&b, "Newly denied", d.OnlyTwo.Offenders)
		markdownOffenders(&b, "No longer denied", d.OnlyOne.Offenders)
		_, err := io.WriteString(w, b.String())
		return err
	}
	rows := [][]string{{"rule", "requests", "denied", "share"}}
	for _, rule := range r.Rules {
		mode := ""
		if rule.Shadow {
			mode = " (" + r.shadowModes + ")"
		}
		rows = append(rows, []string{
			code(name(rule.Name)) + mode, number(rule.Requests), number(rule.Denied), percent(rule.Denied, rule.Requests),
		})
	}
	markdownTable(&b, rows)
	markdownOffenders(&b, "Top offenders", r.Offenders)
	_, err := io.WriteString(w, b.String())
	return err
}

// markdownOffenders writes a list of clients with many denials.
func markdownOffenders(b *strings.Builder, title string, list []replay.Offender) {
	if len(list) == 0 {
		return
	}
	rows := [][]string{{title, "by rule", "denied"}}
	for _, o := range list {
		rows = append(rows, []string{code(name(o.Client)), code(name(o.Rule)), number(o.Denied)})
	}
	markdownTable(b, rows)
}

// markdownTable writes a table whose first row is the header. Columns of numbers, which have the header requests, denied or
// share, are aligned to the right, and all others to the left.
func markdownTable(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i > 0 {
			continue
		}
		b.WriteString("|")
		for _, header := range row {
			if header == "requests" || header == "denied" || header == "share" {
				b.WriteString("---:|")
			} else {
				b.WriteString("---|")
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// code returns a text as code in Markdown. The text may be from a log. Characters in it that would end the code or the cell of a
// table are replaced or escaped.
func code(text string) string {
	return "`" + strings.NewReplacer("`", "'", "|", "\\|").Replace(plain(text)) + "`"
}

// markdown escapes a text for Markdown.
func markdown(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;", "|", "\\|", "*", "\\*", "`", "'", "[", "\\[", "@", "&#64;").Replace(plain(text))
}
