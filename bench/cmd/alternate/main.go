// Command alternate runs two programs in turns and compares the figures that they
// print. The programs are an old and a new build of the report, or of the benchmarks
// of a package.
//
//	go build -o new ./bench/cmd/report                 # in this checkout
//	go build -o old ./bench/cmd/report                 # in a checkout of an older commit
//	go run ./bench/cmd/alternate [-n rounds] old new -lines tokenbucket
//
//	go test -c -o new ./bench                          # likewise
//	go run ./bench/cmd/alternate old new -test.run '^$' -test.bench Allow/algo=tokenbucket
//
// The arguments after the two programs are passed to each of them. In each round each
// program runs once. The old program begins the first round, the new program the
// second, and so on, because the speed of a machine drifts.
//
// The command prints a table in Markdown with a row for each figure. The row shows the
// figure's median, minimum and maximum for each program. It also shows the median over
// all rounds of the new program's figure divided by the old program's.
//
// The figures of a report are its ratios, or the median where a line has no ratio. The
// figures of a benchmark are nanoseconds per operation. The command can also read
// reports of an older layout, whose rows end with a verdict.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
)

func main() {
	rounds := flag.Int("n", 5, "how many `rounds` there are")
	flag.Parse()
	if flag.NArg() < 2 || *rounds < 1 {
		fmt.Fprintln(os.Stderr, "usage: alternate [-n rounds] old new [arguments of both]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var programs [2]program
	for i, path := range flag.Args()[:2] {
		programs[i] = func() ([]byte, error) { return run(ctx, path, flag.Args()[2:]) }
	}
	err := alternate(os.Stdout, os.Stderr, programs, *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "alternate:", err)
		os.Exit(1)
	}
}

// A program is a function that runs the old or the new executable once and returns what the
// executable printed.
type program func() ([]byte, error)

// run runs the executable at the given path and returns what it printed. Exit code 1 is not treated
// as an error, because bench/cmd/report exits with it if a measured figure breaks a promised bound.
func run(ctx context.Context, path string, args []string) ([]byte, error) {
	c := exec.CommandContext(ctx, path, args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return out, err
}

// The variable names holds the labels of the two programs in the output.
var names = [2]string{"old", "new"}

// alternate runs the old and the new program in turns. It writes the comparison to out, and a
// message at each step to progress.
func alternate(out, progress io.Writer, programs [2]program, rounds int) error {
	var order []string // names of the figures, in the order in which they were first printed
	figures := make(map[string]*[2][]float64)
	for round := range rounds {
		for i := range programs {
			i = (i + round) % 2
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, rounds, names[i])
			printed, err := programs[i]()
			if err != nil {
				return err
			}
			lines := parse(string(printed))
			if len(lines) == 0 {
				return fmt.Errorf("the %s program printed no figures", names[i])
			}
			for _, l := range lines {
				if figures[l.name] == nil {
					order = append(order, l.name)
					figures[l.name] = new([2][]float64)
				}
				figures[l.name][i] = append(figures[l.name][i], l.value)
			}
		}
	}
	fmt.Fprintln(out, "| line | old: median (least to most) | new | new / old |\n|---|---|---|---|")
	for _, name := range order {
		f := figures[name]
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", name, spread(f[0]), spread(f[1]), ratio(f[0], f[1]))
	}
	return nil
}

// A line is one figure that a program printed, with the name of the figure.
type line struct {
	name  string
	value float64
}

// parse returns the figures in a text that a report or a benchmark has printed.
func parse(text string) (lines []line) {
	measurements := false // whether the row that is being read belongs to a table of measurements
	for row := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(row, "|\n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(row, "|"):
			measurements = false
			lines = append(lines, benchmarked(row)...)
		case slices.Equal(cells, []string{"work", "median", "best", "ratio", "to the fastest peer"}):
			measurements = true
		case measurements && len(cells) == 5:
			lines = append(lines, reported(cells)...)
		case len(cells) == 5 && slices.Contains([]string{"meets", "MISSES", "not judged"}, cells[4]):
			lines = append(lines, judged(cells)...)
		}
	}
	return lines
}

// reported returns the figures in a row of a report. The cells of the row hold the name of the
// measurement, its median, its best round, its ratio to a base (the figure that it is compared
// with), and its ratio to the fastest peer (limiter of another module). The ratios are the figures.
// If the row has no ratio, the median is the only figure.
func reported(cells []string) (lines []line) {
	if _, base, ok := strings.Cut(cells[3], " × "); ok {
		base, _, _ = strings.Cut(base, " (")
		lines = append(lines, numbered(cells[0]+": "+base, cells[3])...)
	}
	lines = append(lines, numbered(cells[0]+": fastest peer", cells[4])...)
	if len(lines) == 0 {
		lines = numbered(cells[0], cells[1])
	}
	return lines
}

// judged returns the figure in a row of an older report. The cells of the row hold the name of the
// measurement, its bound, its median, its ratio, and whether the bound was met. The figure is the
// ratio or, if the row has no ratio, the median. The figure gets the name that it would have in a
// newer report.
func judged(cells []string) []line {
	name := cells[0]
	if _, base, ok := strings.Cut(cells[1], " × "); ok {
		name += ": " + base
	}
	figure := cells[3]
	if figure == "" {
		figure = cells[2]
	}
	return numbered(name, figure)
}

// numbered reads the number at the beginning of the given text, and returns one line with this
// number and the given name. If the text does not begin with a number, numbered returns no line.
func numbered(name, text string) []line {
	if value, ok := leading(strings.TrimPrefix(text, "×")); ok {
		return []line{{name, value}}
	}
	return nil
}

// leading reads the number at the beginning of the given text. The number ends at the first space.
// If there is no number, leading returns false.
func leading(text string) (float64, bool) {
	number, _, _ := strings.Cut(text, " ")
	value, err := strconv.ParseFloat(strings.TrimRight(number, ",;"), 64)
	return value, err == nil
}

// benchmarked reads a row that a benchmark printed, and returns its nanoseconds per operation. The
// row holds the benchmark's name, the number of runs, and pairs of a number and a unit. The name in
// the result keeps its suffix, such as -2 for two cores.
func benchmarked(row string) []line {
	fields := strings.Fields(row)
	at := slices.Index(fields, "ns/op")
	if at < 3 || !strings.HasPrefix(fields[0], "Benchmark") {
		return nil
	}
	return numbered(fields[0], fields[at-1])
}

// spread returns a text with the median, the minimum and the maximum of the given numbers.
func spread(xs []float64) string {
	if len(xs) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", median(xs), slices.Min(xs), slices.Max(xs))
}

// ratio divides the new program's figure by the old program's in each round, and returns the median
// of the quotients as text. The text is empty if there is no quotient, for example because only one
// of the programs printed the figure.
func ratio(before, after []float64) string {
	var ratios []float64
	for i := range min(len(before), len(after)) {
		if before[i] != 0 {
			ratios = append(ratios, after[i]/before[i])
		}
	}
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf("%.3f", median(ratios))
}

// median returns the median of the given numbers. There must be at least one.
func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	mid := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[mid]
	}
	return (xs[mid-1] + xs[mid]) / 2
}
