// Command ratelimit shows what rules do before they are in service. It runs the limiter of this
// repository on a clock of its own: no request is made, and nothing waits.
//
//	ratelimit validate limits.json         what is wrong with a file, and what may surprise
//	ratelimit simulate -shape bursts ...   what a limit does with made-up traffic
//	ratelimit replay access.log ...        who would have been denied
//	ratelimit suggest access.log           limits that would have denied few
//	ratelimit explain limits.json ...      why one request is granted or denied
//	ratelimit top redis://...              who is closest to a limit now
//	ratelimit reset redis://...            give a client its limit back
//
// Each command with -h shows examples first. The exit code is 0 if all is well, 1 if the command
// has found something, 2 if it was called wrongly, and 3 if it could not do its work.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// The exit codes.
const (
	exitOK = iota
	exitFound
	exitUsage
	exitFailed
)

// A command is one thing that the program does.
type command struct {
	name     string
	summary  string // in the list of commands
	examples string // at the top of the page of -h, one command a line
	about    string // below the examples

	// run does it. It defines its flags on fs, then calls parse with the arguments. It prints
	// to t. The error is a usageError, errFound, or what went wrong.
	run func(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error
}

// A usageError says how the program was called wrongly.
type usageError string

func (e usageError) Error() string { return string(e) }

// errFound is returned by a command that has found what it looks for, and has said so.
var errFound = errors.New("found")

// errHelped is returned by parse if the arguments ask for help, which it has printed.
var errHelped = errors.New("helped")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, newTerminal(os.Stdin, os.Stdout, os.Stderr), os.Args[1:])
	stop()
	os.Exit(code)
}

// run runs the program with these arguments, and returns its exit code.
func run(ctx context.Context, t *terminal, args []string) int {
	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		to, code := t.out, exitOK
		if len(args) == 0 {
			to, code = t.err, exitUsage
		}
		printCommands(to)
		return code
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == args[0] })
	if i < 0 {
		fmt.Fprintf(t.err, "ratelimit: no command %q\n\n", args[0])
		printCommands(t.err)
		return exitUsage
	}
	c := commands()[i]
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	err := c.run(ctx, t, fs, args[1:])
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errHelped):
		c.printPage(t.out, fs)
		return exitOK
	case errors.Is(err, errFound):
		return exitFound
	case errors.As(err, &usage):
		fmt.Fprintf(t.err, "ratelimit %s: %s\nRun \"ratelimit %s -h\" for examples.\n", c.name, usage, c.name)
		return exitUsage
	}
	fmt.Fprintf(t.err, "ratelimit %s: %v\n", c.name, err)
	return exitFailed
}

// parse reads the flags of fs, which may stand before, between and after the other arguments. It
// returns those others: at least least and at most most of them.
func parse(fs *flag.FlagSet, args []string, least, most int) (others []string, err error) {
	for {
		if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
			return nil, errHelped
		} else if err != nil {
			return nil, usageError(err.Error())
		}
		used := len(args) - fs.NArg()
		if used > 0 && args[used-1] == "--" {
			others = append(others, fs.Args()...)
			break
		}
		if fs.NArg() == 0 {
			break
		}
		others, args = append(others, fs.Arg(0)), fs.Args()[1:]
	}
	switch {
	case len(others) < least:
		return nil, usageError("an argument is missing")
	case len(others) > most:
		return nil, usageError(fmt.Sprintf("%q is one argument too many", others[most]))
	}
	return others, nil
}

func printCommands(w io.Writer) {
	fmt.Fprintf(w, "ratelimit shows what rate limits do before they are in service.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-10s %s\n", c.name, c.summary)
	}
	fmt.Fprintf(w, "\nRun \"ratelimit <command> -h\" for examples.\n"+
		"Exit codes: 0 all is well, 1 something was found, 2 called wrongly, 3 failed.\n")
}

// printPage prints the page of -h.
func (c command) printPage(w io.Writer, fs *flag.FlagSet) {
	for line := range strings.Lines(strings.TrimSpace(c.examples) + "\n") {
		fmt.Fprintf(w, "  %s", line)
	}
	fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(c.about))
	flags := false
	fs.VisitAll(func(*flag.Flag) { flags = true })
	if flags {
		fmt.Fprintf(w, "\nFlags:\n")
		fs.SetOutput(w)
		fs.PrintDefaults()
	}
}
