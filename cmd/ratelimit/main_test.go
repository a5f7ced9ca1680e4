package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A call is what the program has done.
type call struct {
	code     int
	out, err string
}

// runIn runs the program in a directory with these files, by name.
func runIn(t *testing.T, files map[string]string, args ...string) call {
	t.Helper()
	return runOf(t, files, "", args...)
}

// runOf is runIn with an input.
func runOf(t *testing.T, files map[string]string, input string, args ...string) call {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	var out, errs strings.Builder
	code := run(t.Context(), &terminal{in: strings.NewReader(input), out: &out, err: &errs, width: 80}, args)
	return call{code, out.String(), errs.String()}
}

func TestCalls(t *testing.T) {
	for _, args := range [][]string{{"-h"}, {"help"}, {"--help"}} {
		got := runIn(t, nil, args...)
		require.Equal(t, exitOK, got.code)
		require.Contains(t, got.out, "validate")
		require.Empty(t, got.err)
	}
	got := runIn(t, nil)
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, "validate")
	require.Empty(t, got.out)
	got = runIn(t, nil, "destroy")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, `no command "destroy"`)
}

// TestPages requires that the page of each command begins with examples, fits a terminal, and names
// each flag.
func TestPages(t *testing.T) {
	for _, c := range commands() {
		got := runIn(t, nil, c.name, "-h")
		require.Equal(t, exitOK, got.code)
		require.Regexp(t, "^  ratelimit "+c.name, got.out)
		require.NotContains(t, got.out, "-1ns", "a default that means something else")
		for line := range strings.Lines(got.out) {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 110, line)
		}
		got = runIn(t, nil, c.name, "-no-such-flag")
		require.Equal(t, exitUsage, got.code)
		require.Contains(t, got.err, "no-such-flag")
	}
}

func TestPlain(t *testing.T) {
	require.Equal(t, `/a "b" ü`, plain(`/a "b" ü`))
	require.Equal(t, `\x1b[2J"\n\xff`, plain("\x1b[2J\"\n\xff"))
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.svg")
	write := func(text string, err error) error {
		return save(path, func(w io.Writer) error {
			_, _ = w.Write([]byte(text))
			return err
		})
	}
	require.NoError(t, write("old", nil))
	require.ErrorIs(t, write("half", os.ErrClosed), os.ErrClosed)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(got))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "no other file is left")
	require.Error(t, save(filepath.Join(path, "no", "directory"), nil))
}

// TestSaveKeepsWhatIsThere has targets that are no regular files, or links, or files with a mode of their own.
func TestSaveKeepsWhatIsThere(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(w io.Writer) error { _, err := io.WriteString(w, "new\n"); return err }
	require.NoError(t, os.WriteFile("private.json", []byte("old"), 0o600))
	require.NoError(t, os.Symlink("private.json", "link.json"))
	require.NoError(t, save("link.json", write))
	info, err := os.Lstat("link.json")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays a link")
	info, err = os.Stat("private.json")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "the mode stays")
	got, err := os.ReadFile("private.json")
	require.NoError(t, err)
	require.Equal(t, "new\n", string(got))

	require.NoError(t, os.Mkdir("sub", 0o700))
	require.NoError(t, os.Symlink("../sub/later.json", "sub/dangling"))
	require.NoError(t, save("sub/dangling", write))
	require.FileExists(t, "sub/later.json")
	require.NoError(t, os.Symlink("round", "round"))
	require.ErrorContains(t, save("round", write), "round: ")

	require.EqualError(t, save("none/x.json", write), "none/x.json: no such file or directory", "the name is that of the user")
	require.ErrorContains(t, save("sub", write), "sub: is a directory")
}

// TestSaveToOutput requires that - and the names of the standard output write to it, in the order of the writes.
func TestSaveToOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	f, err := os.Create("out")
	require.NoError(t, err)
	term := newTerminal(nil, f, f)
	require.Equal(t, unlimited, term.width, "nothing is cut in a file")
	for _, path := range []string{"-", "out"} {
		fmt.Fprintf(term.out, "before %s\n", path)
		require.NoError(t, term.save(path, func(w io.Writer) error { _, err := io.WriteString(w, "saved\n"); return err }))
	}
	require.NoError(t, f.Close())
	got, err := os.ReadFile("out")
	require.NoError(t, err)
	require.Equal(t, "before -\nsaved\nbefore out\nsaved\n", string(got))
	_, err = os.Stat("-")
	require.Error(t, err, "no file has this name")
}

func TestVersion(t *testing.T) {
	for _, args := range []string{"version", "-version", "--version"} {
		got := runIn(t, nil, args)
		require.Equal(t, exitOK, got.code)
		require.Regexp(t, `^ratelimit \S+ go\S+ \w+/\w+\n$`, got.out)
	}
}

func TestDidYouMean(t *testing.T) {
	for text, want := range map[string]string{
		"reply": "replay", "valdate": "validate", "exp": "explain", "resett": "reset", "lfit": "lift", "tpo": "top",
		"zzzzz": "", "destroy": "", "": "",
	} {
		require.Equal(t, want, similar(text), text)
	}
	require.Contains(t, runIn(t, nil, "reply").err, `no command "reply": did you mean "replay"?`)
}
