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

// A row is a judged line.
type row struct {
	work, target, measured, ratio, verdict string
	chosen                                 bool // whether it is one of the summary
}

// The verdicts.
const (
	meets       = "meets"
	misses      = "MISSES"
	notJudged   = "not judged"
	notMeasured = "not measured"
)

// newRow returns l as it is shown. It is judged only if judge is set.
func newRow(l line, r reading, judge bool) row {
	verdict := notJudged
	if judge {
		verdict = verdictOn(r.value, l.bound)
	}
	return row{l.work, l.target, r.measured, r.ratio, verdict, l.chosen}
}

// verdictOn compares a value with the most that it may be. A value that is no
// number was not measured and misses.
func verdictOn(value, bound float64) string {
	if value <= bound {
		return meets
	}
	return misses
}

// allKept reports whether no row misses.
func allKept(rows []row) bool {
	return !slices.ContainsFunc(rows, func(r row) bool { return r.verdict == misses })
}

// writeHeader says where, when, with what and how the figures were taken.
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

// quoted returns arg as a shell takes it.
func quoted(arg string) string {
	if strings.ContainsFunc(arg, func(r rune) bool {
		return !strings.ContainsRune("-_=./:,", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return arg
}

// writeRows writes the promises.
func writeRows(out io.Writer, rows []row) {
	cells := [][]string{{"work", "to reach", "measured median", "ratio", "verdict"}}
	for _, r := range rows {
		cells = append(cells, []string{r.work, r.target, r.measured, r.ratio, r.verdict})
	}
	writeTable(out, cells)
}

// writeMisses lists the rows that miss, if any row was judged.
func writeMisses(out io.Writer, rows []row) {
	judged := slices.ContainsFunc(rows, func(r row) bool { return r.verdict == meets || r.verdict == misses })
	switch {
	case !judged:
		fmt.Fprintln(out, "\nNothing was judged.")
	case allKept(rows):
		fmt.Fprintln(out, "\nNo line misses.")
	default:
		fmt.Fprintf(out, "\nThe lines that miss:\n\n")
	}
	for _, r := range rows {
		if r.verdict == misses {
			got := r.ratio
			if got == "" {
				got = r.measured
			}
			fmt.Fprintf(out, "- %s: %s, to reach %s\n", r.work, got, r.target)
		}
	}
}

// writeSummary writes the few rows that a README shows.
func writeSummary(out io.Writer, rows []row) {
	cells := [][]string{{"work", "measured median", "ratio", "to reach"}}
	for _, r := range rows {
		if r.chosen {
			cells = append(cells, []string{r.work, r.measured, r.ratio, r.target})
		}
	}
	writeTable(out, cells)
}

// writeSamples writes the median of everything that was timed, in nanoseconds
// per ask: a row for each workload.
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
	cells := [][]string{{"workload", "nanoseconds per ask, median"}}
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
	fmt.Fprintln(out)
	writeTable(out, cells)
}

// writeRedis writes what the subjects in Redis have shown, where any were timed.
func writeRedis(out io.Writer, l *redisLab) {
	if len(l.samples) > 0 {
		fmt.Fprintln(out)
		writeTable(out, l.table())
	}
}

// modules says where a peer is from.
var modules = map[string]string{
	"xtime":      "golang.org/x/time",
	"sethvargo":  "github.com/sethvargo/go-limiter",
	"throttled":  "github.com/throttled/throttled/v2",
	"ulule":      "github.com/ulule/limiter/v3",
	"httprate":   "github.com/go-chi/httprate",
	"uber":       "go.uber.org/ratelimit",
	"redis_rate": "github.com/go-redis/redis_rate/v10",
}

// title returns the name of a subject, with the version of a peer's module.
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

// writeTable writes rows as a Markdown table; the first is its head.
func writeTable(out io.Writer, rows [][]string) {
	for i, r := range rows {
		fmt.Fprintf(out, "| %s |\n", strings.Join(r, " | "))
		if i == 0 {
			fmt.Fprintln(out, "|"+strings.Repeat("---|", len(r)))
		}
	}
}
