// Command alternate runs two programs in turns and compares the figures that they
// print: an old and a new build of the report, or of the benchmarks of a package.
//
//	go build -o new ./bench/cmd/report                 # in this checkout
//	go build -o old ./bench/cmd/report                 # in one of an older commit
//	go run ./bench/cmd/alternate [-n rounds] old new -lines tokenbucket
//
//	go test -c -o new ./bench                          # likewise
//	go run ./bench/cmd/alternate old new -test.run '^$' -test.bench Allow/algo=tokenbucket
//
// What follows the two programs is given to both. In each round both run once, and
// every other round begins with the new one, because the speed of a machine drifts.
//
// Of a report it compares the ratio of each line, or, where a line has none, the
// first number that was measured; of a benchmark, nanoseconds per operation. It prints
// Markdown: the median of each, with the least and the most, and the median over the
// rounds of new over old. It judges nothing.
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

// A program is run once and returns what it printed.
type program func() ([]byte, error)

// run runs the program at path. A report exits with 1 if a figure is missed, which is
// no error here.
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

// The names of the two programs.
var names = [2]string{"old", "new"}

// alternate runs the old and the new program in turns, so many rounds, and writes the
// comparison to out and what it is doing to progress.
func alternate(out, progress io.Writer, programs [2]program, rounds int) error {
	var order []string // of the lines, as they were met first
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

// A line is one figure that a program printed.
type line struct {
	name  string
	value float64
}

// parse returns the figures in what a report or a benchmark printed.
func parse(text string) (lines []line) {
	for row := range strings.Lines(text) {
		name, value, ok := reported(row)
		if !ok {
			name, value, ok = benchmarked(row)
		}
		if ok {
			lines = append(lines, line{name, value})
		}
	}
	return lines
}

// reported returns the figure of a row of a report: work, target, what was measured,
// ratio, verdict.
func reported(row string) (name string, value float64, ok bool) {
	cells := strings.Split(strings.Trim(row, "| \n"), " | ")
	if len(cells) != 5 || !slices.Contains([]string{"meets", "MISSES", "not judged"}, cells[4]) {
		return "", 0, false
	}
	figure := cells[3]
	if strings.TrimSpace(figure) == "" {
		figure = cells[2]
	}
	value, ok = leading(strings.TrimPrefix(figure, "×"))
	return cells[0] + ": " + cells[1], value, ok
}

// leading returns the number that text begins with.
func leading(text string) (float64, bool) {
	number, _, _ := strings.Cut(text, " ")
	value, err := strconv.ParseFloat(strings.TrimRight(number, ",;"), 64)
	return value, err == nil
}

// benchmarked returns the figure of a line of a benchmark: its name, how often it ran,
// and pairs of a number and its unit. The number of cores behind the name stays.
func benchmarked(row string) (name string, value float64, ok bool) {
	fields := strings.Fields(row)
	at := slices.Index(fields, "ns/op")
	if at < 3 || !strings.HasPrefix(fields[0], "Benchmark") {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(fields[at-1], 64)
	return fields[0], value, err == nil
}

// spread writes the median of xs, the least and the most.
func spread(xs []float64) string {
	if len(xs) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.4g (%.4g to %.4g)", median(xs), slices.Min(xs), slices.Max(xs))
}

// ratio writes the median over the rounds of new over old, where both have the line.
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

// median returns the middle of xs, of which there is at least one.
func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	mid := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[mid]
	}
	return (xs[mid-1] + xs[mid]) / 2
}
