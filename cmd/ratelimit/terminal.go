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

// A terminal is where a command reads and prints.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	width    int  // of out, in columns
	live     bool // whether err is a terminal, so that a line can be overwritten
}

// newTerminal returns the terminal of a process. The width is that of COLUMNS if it is set, and
// otherwise 80.
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

// plain returns text as it can be printed: what is no printable rune is written as Go would, such
// as \x1b. So a log can move no cursor and set no title.
func plain(text string) string {
	ok := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	if strings.IndexFunc(text, func(r rune) bool { return !ok(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// save writes a file by write. If that fails, no part of it is left under the name path, and a file
// that was there stays.
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
