// Command ratelimit shows what the rules of a rate limiter do before a service uses them. The first
// six commands run the limiter on a simulated clock: they send no requests to a service, and do not wait.
//
//	ratelimit validate limits.json         find mistakes and surprises in a file of rules
//	ratelimit simulate -shape bursts ...   show what a limit does with simulated traffic
//	ratelimit replay access.log ...        show which requests of a log would have been denied
//	ratelimit suggest access.log           suggest limits that would have denied few requests of a log
//	ratelimit explain limits.json ...      explain why one request is granted or denied
//	ratelimit prove limits.json            find the most that all rules together let through
//	ratelimit top -redis URL ...           list the keys in Redis or PostgreSQL that are closest to their limit
//	ratelimit reset -client a ...          give a client its full limit back, in Redis or PostgreSQL
//	ratelimit block -client alice ...      deny a client or some addresses, in all processes
//	ratelimit exempt -ip 10.0.0.0/8 ...    free a client or some addresses from rules
//	ratelimit rate -client alice 500/m ... give a client or some addresses another limit
//	ratelimit pardon -client alice ...     end the block that a rule's penalty has begun
//	ratelimit lift -client alice ...       end blocks, exemptions and rates
//	ratelimit overrides ...                list who is blocked, exempt or has a rate
//	ratelimit version                      print the version of the program
//	ratelimit completion bash              let a shell complete commands and flags
//
// Each command prints examples and its flags with -h. The exit code is 0 after success. It is 1 if the command has found
// something, such as a mistake or a denial. It is 2 if the command line is wrong, and 3 if the command failed.
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

// The exit codes of the program.
const (
	exitOK = iota
	exitFound
	exitUsage
	exitFailed
)

// A command is one of the program's commands, such as replay.
type command struct {
	name     string
	summary  string // one line in the list of commands
	examples string // commands to try, each on a line, at the top of the -h page
	about    string // description of the command, below the examples on the -h page

	// The function run executes the command. It defines its flags on fs, calls the function parse with the arguments,
	// and prints to t. It returns a usageError, errHelped, errFound, or the reason why it failed.
	run func(ctx context.Context, t *terminal, fs *flag.FlagSet, args []string) error
}

// A usageError says what is wrong with the command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// errFound is returned by a command that has found and printed something, such as a denial. The exit code is then
// 1.
var errFound = errors.New("found")

// errHelped is returned by the function parse if the arguments ask for help. The function run then prints the help.
var errHelped = errors.New("helped")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	code := run(ctx, newTerminal(os.Stdin, os.Stdout, os.Stderr), os.Args[1:])
	stop()
	os.Exit(code)
}

// run executes the command that is named first in args. It returns the exit code of the program.
func run(ctx context.Context, t *terminal, args []string) int {
	if len(args) == 0 || slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		to, code := t.out, exitOK
		if len(args) == 0 {
			to, code = t.err, exitUsage
		}
		printCommands(to)
		return code
	}
	if args[0] == "-version" || args[0] == "--version" {
		args[0] = versionCommand.name
	}
	i := slices.IndexFunc(commands(), func(c command) bool { return c.name == args[0] })
	if i < 0 {
		hint := ""
		if name := similar(args[0]); name != "" {
			hint = fmt.Sprintf(": did you mean %q?", name)
		}
		fmt.Fprintf(t.err, "ratelimit: no command %q%s\n\n", args[0], hint)
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

// parse reads the flags of fs, which may stand anywhere among the arguments. It returns all other arguments. If
// there are fewer than minArgs or more than maxArgs other arguments, the error is a usageError. The text in the parameter what
// names these arguments in the error, such as "the log".
func parse(fs *flag.FlagSet, args []string, minArgs, maxArgs int, what string) (others []string, err error) {
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
	case len(others) < minArgs:
		return nil, usageError("an argument is missing: " + what)
	case len(others) > maxArgs:
		return nil, usageError(fmt.Sprintf("%q is one argument too many", others[maxArgs]))
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

// printPage prints the -h page of a command: the examples, the description and the flags.
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
