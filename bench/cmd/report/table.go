package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ratelimit-go/ratelimit/bench"
)

// A row is a line of the report, together with its measured result.
type row struct {
	line
	reading
	missing bool // true: the line could not be measured, so there is no result
}

// writeHeader writes the machine, the Go version, the date and the command.
func writeHeader(out io.Writer, args []string, now time.Time) {
	command := []string{"go run ./bench/cmd/report"}
	for _, arg := range args {
		command = append(command, quoted(arg))
	}
	fmt.Fprintf(out, "%s, %d cores, at once %.2f × as fast as one · %s %s/%s · %s · `%s`\n\n",
		cpu(), runtime.GOMAXPROCS(0), speedup(),
		runtime.Version(), runtime.GOOS, runtime.GOARCH,
		now.UTC().Format(time.DateOnly), strings.Join(command, " "))
}

// quoted returns the given argument of a command as it must be typed in a shell.
func quoted(arg string) string {
	if strings.ContainsFunc(arg, func(r rune) bool {
		return !strings.ContainsRune("-_=./:,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return arg
}

// writeOpening writes the opening table with the figures that most readers look for, and explains
// the terms of the report.
func writeOpening(out io.Writer, rows []row, rounds int) {
	cells := [][]string{{"what", "median", "ratio", "to the fastest peer"}}
	for _, r := range rows {
		if r.headline != "" {
			cells = append(cells, []string{r.headline, r.measured, r.base.text, r.peer.text})
		}
	}
	if len(cells) > 1 {
		writeTable(out, cells)
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, `The floor is the least that standard parts can do for a limiter with keys: `+"`time.Since`"+`, one
`+"`maphash.String`"+`, an uncontended mutex and a lookup in a sharded map, without any decision. All
subjects take turns in %d rounds: a figure is the median of its rounds, "best" is the best round, and a
ratio is the median of the ratios within the rounds.
`, rounds)
}

// writePromises writes a table with a row for each promise: the bound, the worst figure, and whether
// the bound holds.
func writePromises(out io.Writer, verdicts []verdict) {
	if len(verdicts) == 0 {
		return
	}
	fmt.Fprintf(out, `
## Promises

These bounds hold on every machine on which the report was run. Each covers several measurements, of
which the worst is shown. The command fails if one does not hold.

`)
	cells := [][]string{{"promise", "bound", "worst figure", ""}}
	for _, v := range verdicts {
		cells = append(cells, []string{v.says, v.bound, v.figure(), v.status})
	}
	writeTable(out, cells)
}

// writeMeasurements writes all rows in groups. Each group is folded, and the reader of the page can
// unfold it.
func writeMeasurements(out io.Writer, rows []row) {
	fmt.Fprintf(out, "\n## Measurements\n")
	var groups []string
	byGroup := make(map[string][][]string)
	for _, r := range rows {
		if byGroup[r.group] == nil {
			groups = append(groups, r.group)
			byGroup[r.group] = [][]string{measurementHead}
		}
		byGroup[r.group] = append(byGroup[r.group], []string{r.work, r.measured, r.best, r.base.text, r.peer.text})
	}
	for _, g := range groups {
		writeFolded(out, g, byGroup[g])
	}
}

// measurementHead is the head of a table of measurements. The command alternate finds the tables by
// this head.
var measurementHead = []string{"work", "median", "best", "ratio", "to the fastest peer"}

// writeFolded writes a table that is folded until the reader of the page unfolds it.
func writeFolded(out io.Writer, title string, cells [][]string) {
	rows := "rows"
	if len(cells) == 2 {
		rows = "row"
	}
	fmt.Fprintf(out, "\n<details>\n<summary>%s: %d %s</summary>\n\n", title, len(cells)-1, rows)
	writeTable(out, cells)
	fmt.Fprintf(out, "\n</details>\n")
}

// writeSamples writes the median of everything that was timed, in nanoseconds per call. The table
// has a row for each workload.
func writeSamples(out io.Writer, l *lab) {
	var works []bench.Workload
	for _, c := range l.order {
		if !slices.Contains(works, c.work) {
			works = append(works, c.work)
		}
	}
	if len(works) == 0 {
		return
	}
	cells := [][]string{{"workload", "nanoseconds per call, median"}}
	for _, w := range works {
		var timed []string
		for _, s := range bench.Specs() {
			c := cell{s.Name, w}
			if len(l.samples[c]) > 0 {
				timed = append(timed, title(s.Name)+" "+strings.TrimSuffix(nanos(l.median(c)), " ns"))
			}
		}
		cells = append(cells, []string{strings.ReplaceAll(w.String(), "/", " "), strings.Join(timed, ", ")})
	}
	writeFolded(out, "Everything that was timed, by workload", cells)
}

// writeRedis writes the figures of all subjects in Redis, if any was timed.
func writeRedis(out io.Writer, l *redisLab) {
	if len(l.samples) > 0 {
		writeFolded(out, "Everything that was timed in Redis", l.table())
	}
}

// writePostgres writes the figures of all subjects in PostgreSQL, if any was timed.
func writePostgres(out io.Writer, l *postgresLab) {
	if len(l.samples) > 0 {
		writeFolded(out, "Everything that was timed in PostgreSQL", l.table())
	}
}

// modules maps the subject name of each peer to the path of its module.
var modules = map[string]string{
	"xtime":      "golang.org/x/time",
	"sethvargo":  "github.com/sethvargo/go-limiter",
	"throttled":  "github.com/throttled/throttled/v2",
	"ulule":      "github.com/ulule/limiter/v3",
	"httprate":   "github.com/go-chi/httprate",
	"uber":       "go.uber.org/ratelimit",
	"redis_rate": "github.com/go-redis/redis_rate/v10",
}

// title returns the name of a subject and, for a peer, the version of its module.
func title(name string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	for _, m := range info.Deps {
		if m.Path == modules[name] {
			return name + " " + m.Version
		}
	}
	return name
}

// writeTable writes rows as a Markdown table; the first row is its head.
func writeTable(out io.Writer, rows [][]string) {
	for i, r := range rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(r, " | "))
		if i == 0 {
			fmt.Fprintln(out, "|"+strings.Repeat("---|", len(r)))
		}
	}
}
