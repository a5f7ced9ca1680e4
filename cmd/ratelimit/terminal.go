package main

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A terminal has the input and the outputs of a command.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	width    int  // width of the output in columns
	live     bool // whether the error output is a terminal, so that a printed line can be overwritten
}

// newTerminal returns the terminal of a process. The environment variable COLUMNS says how wide the terminal is. If
// its value is not a number from 40 to 1000, the width is 80.
func newTerminal(in io.Reader, out, errs *os.File) *terminal {
	t := &terminal{in: in, out: out, err: errs, width: 80}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 40 && n <= 1000 {
		t.width = n
	}
	if info, err := errs.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		t.live = true
	}
	return t
}

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

// save creates the file at path, and calls the given function to write its content. If this function fails, no
// partial file is left. If there was a file at path before, it stays as it was.
func save(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
