package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A terminal has the input and the outputs of a command.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	width    int  // width of the output in columns
	errWidth int  // width of the error output in columns; 0 for the same as width
	outLive  bool // whether the output is a terminal, so that a page can be overwritten
	live     bool // whether the error output is a terminal, so that a printed line can be overwritten
}

// unlimited is the width of an output that is no terminal: nothing is shortened in a pipe or a file.
const unlimited = 1 << 30

// newTerminal returns the terminal of a process.
func newTerminal(in io.Reader, out, errs *os.File) *terminal {
	return &terminal{
		in: in, out: out, err: errs, width: widthOf(out), errWidth: widthOf(errs), outLive: isTerminal(out), live: isTerminal(errs),
	}
}

// widthOf returns the width of a file in columns. If the environment variable COLUMNS is a number from 20 to 1000, it is the
// width of every file. Otherwise a terminal has its own width, and any other file has the width unlimited.
func widthOf(f *os.File) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 20 && n <= 1000 {
		return n
	}
	if !isTerminal(f) {
		return unlimited
	}
	if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return 80
}

// isTerminal reports whether the writer w writes to a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// The method errColumns returns the width of the error output in columns.
func (t *terminal) errColumns() int { return cmp.Or(t.errWidth, t.width) }

// clearScreen moves the cursor of a terminal to the top left and clears the screen.
const clearScreen = "\x1b[H\x1b[2J"

func (t *terminal) isTerminal() bool { return t.outLive }

// chartWidth returns the width of a chart in columns: that of the terminal, or 80 in a pipe.
func (t *terminal) chartWidth() int {
	if t.width == unlimited {
		return 80
	}
	return t.width
}

// The method warn prints a line to the error output. The line is never shortened.
func (t *terminal) warn(format string, args ...any) { fmt.Fprintf(t.err, format+"\n", args...) }

// plain escapes the unprintable characters of a text as in Go, for example \x1b. A text from a log could otherwise
// move the cursor or set the title of the terminal.
func plain(text string) string {
	ok := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	if strings.IndexFunc(text, func(r rune) bool { return !ok(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}
