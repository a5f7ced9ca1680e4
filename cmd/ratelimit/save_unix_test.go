//go:build unix

package main

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSaveToPipe writes to a named pipe, a device and an open file of the process. None of them is replaced.
func TestSaveToPipe(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(w io.Writer) error { _, err := io.WriteString(w, "text\n"); return err }
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	done := make(chan string)
	go func() {
		f, err := os.Open("pipe")
		if err != nil {
			done <- err.Error()
			return
		}
		defer f.Close()
		text, _ := io.ReadAll(f)
		done <- string(text)
	}()
	require.NoError(t, save("pipe", write))
	require.Equal(t, "text\n", <-done)
	info, err := os.Stat("pipe")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeNamedPipe)

	if os.Getuid() == 0 {
		return // a save that is broken would replace the device of this machine; a pipe takes the same way
	}
	require.NoError(t, save("/dev/null", write))
	info, err = os.Stat("/dev/null")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice)
	require.NoError(t, os.Symlink("/dev/null", "null"))
	require.NoError(t, save("null", write))
	info, err = os.Stat("null")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice)
}

// TestPageWidths prints a page for narrow and wide terminals: no text is lost.
func TestPageWidths(t *testing.T) {
	rows := [][]string{{"rule", "requests", "denied", "", "first"}, {"/api/v1/items", "260", "128", "49.23 %", "2026-10-10 12:10:03"}}
	for width, want := range map[int]string{
		30: "by rule\n/api/v1/items\n  requests 260\n  denied 128\n    49.23 %\n  first 2026-10-10 12:10:03\n" +
			"a line that is too long for 30\n  columns\n",
		60: "rule          requests  denied                         first\n/api/v1/i...       260     128  49.23 %  2026-10-10 12:10:03\n" +
			"a line that is too long for 30 columns\n",
		unlimited: "rule           requests  denied                         first\n" +
			"/api/v1/items       260     128  49.23 %  2026-10-10 12:10:03\na line that is too long for 30 columns\n",
	} {
		p := &page{width: width}
		p.table(rows)
		p.line("a line that is too long for %d columns", 30)
		require.Equal(t, want, p.String(), width)
	}
	p := &page{width: 10}
	p.line("%s", strings.Repeat("x", 20))
	require.Equal(t, strings.Repeat("x", 20)+"\n", p.String(), "a word stays whole")
}

// TestPageFirst requires that the first column of a table, which a user may want to copy, is the last that is truncated, and that
// a heading that says "by" itself is not begun with it.
func TestPageFirst(t *testing.T) {
	rows := [][]string{{"whom", "effect", "note"}, {"ip 2001:db8:1:2::/64", "block", "scraper, ticket 4711"}}
	for width, want := range map[int]string{
		44: "whom                  effect  note\nip 2001:db8:1:2::/64   block  scraper, ti...\n",
		32: "whom            effect  note\nip 2001:db8...   block  scrap...\n",
		20: "by whom\nip 2001:db8:1:2::/64\n  effect block\n  note scraper,\n    ticket 4711\n",
	} {
		p := &page{width: width}
		p.table(rows, 2)
		require.Equal(t, want, p.String(), width)
	}
	p := &page{width: 12}
	p.table([][]string{{"keys by least", "denied"}, {"/search", "1"}})
	require.Equal(t, "keys by\n  least\n/search\n  denied 1\n", p.String())
}
