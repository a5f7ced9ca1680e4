package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// inDoubt is the threshold for warnings about a log. A command warns if more than 1 of every 100 requests have a problem.
const inDoubt = 100

// doubts returns warnings about the times in the logs. It warns if too many requests are late.
func (f *logFlags) doubts(count *logCount) (texts []string) {
	if count.late*inDoubt > count.kept {
		texts = append(texts, fmt.Sprintf("%s of %s requests (%s) are late by more than %s, by up to %s: decided at the latest time so far; "+
			"see -late, and name each log", number(count.late), number(count.kept), percent(uint64(count.late), uint64(count.kept)),
			span(f.late), span(count.latest.Round(time.Millisecond))))
	}
	return texts
}

// doubtsAbout returns a warning for each given [replay.Doubt], such as that a rule met no request. If the command has two files of
// rules, the parameter file is the name of the file with these rules, and each warning begins with this name. Otherwise file is
// empty.
func (f *logFlags) doubtsAbout(file string, doubts []replay.Doubt) (texts []string) {
	prefix := ""
	if file != "" {
		prefix = plain(file) + ": "
	}
	for _, d := range doubts {
		switch rule := quote(d.Rule); {
		case d.Part == "" && len(f.routes) > 0:
			texts = append(texts, fmt.Sprintf("%srule %s met no request: no -route gives a request the endpoint %s",
				prefix, rule, quote(d.Endpoint)))
		case d.Part == "" && strings.Contains(d.Endpoint, "{"):
			texts = append(texts, fmt.Sprintf("%srule %s met no request: the log has paths, not routes; see -route %s",
				prefix, rule, quoteArg(d.Endpoint)))
		case d.Part == "":
			texts = append(texts, fmt.Sprintf("%srule %s met no request: no line has the endpoint %s", prefix, rule, quote(d.Endpoint)))
		case d.Empty == d.Requests:
			texts = append(texts, fmt.Sprintf("%srule %s limits by %s, and no line has one: all requests share one budget; see -field %s=COLUMN",
				prefix, rule, partName(d.Part), fieldName(d.Part)))
		default:
			texts = append(texts, fmt.Sprintf(
				"%srule %s limits by %s, and %s of %s requests (%s) have none: they share one budget; see -field %s=COLUMN", prefix, rule,
				partName(d.Part), number(d.Empty), number(d.Requests), percent(d.Empty, d.Requests), fieldName(d.Part)))
		}
	}
	return texts
}

// doubtsOf returns all warnings for the output of replay. The second player is nil if there is only one file of rules.
func (f *logFlags) doubtsOf(out *replayJSON, first, second *replay.Player) []string {
	texts := f.doubts(&out.Log)
	if second == nil {
		return append(texts, f.doubtsAbout("", first.Doubts())...)
	}
	texts = append(texts, f.doubtsAbout(out.Config, first.Doubts())...)
	return append(texts, f.doubtsAbout(out.Against, second.Doubts())...)
}

// partName returns the part of a key as a text, such as "ip" or "the attribute tenant".
func partName(part string) string {
	if name, ok := strings.CutPrefix(part, "attr:"); ok {
		return "the attribute " + plain(name)
	}
	return fieldName(part)
}

// fieldName returns the name that a part of a key has in the flag -field.
func fieldName(part string) string {
	if part == "user" {
		return "client"
	}
	return plain(part)
}

// quoteArg returns a text as an argument for a shell.
func quoteArg(text string) string { return "'" + strings.ReplaceAll(plain(text), "'", `'\''`) + "'" }

// warnOf prints warnings to the error output. It returns errFound if -strict is set and there is at least one warning.
func (f *logFlags) warnOf(t *terminal, texts []string) error {
	for _, text := range texts {
		t.warn("warning: %s", text)
	}
	if f.strict && len(texts) > 0 {
		return errFound
	}
	return nil
}
