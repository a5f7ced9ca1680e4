package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A progress prints a line that says how much of the logs has been read. While reading goes on, it overwrites the
// line. It prints nothing if the standard error is not a terminal.
type progress struct {
	terminal *terminal
	total    int64 // size of all logs in bytes; 0 if a log is not a regular file, so that its size is not known
	read     int64
	lines    int
	began    time.Time
	printed  time.Time // when the progress was printed last; zero if no progress is on the terminal
	live     bool
}

func newProgress(t *terminal, paths []string) *progress {
	p := &progress{terminal: t, began: time.Now(), live: t.live}
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == "-" || err != nil || !info.Mode().IsRegular() {
			p.total = 0
			break
		}
		p.total += info.Size()
	}
	return p
}

// The method reader returns a reader that reads from r, and adds the number of bytes that were read to the field
// p.read.
func (p *progress) reader(r io.Reader) io.Reader { return &counted{r, &p.read} }

type counted struct {
	io.Reader
	n *int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	*c.n += int64(n)
	return n, err
}

// show records that n more lines were read, and prints the progress. It prints nothing in the first half second,
// and later at most five times a second.
func (p *progress) show(n int) {
	p.lines += n
	if !p.live {
		return
	}
	now := time.Now()
	if now.Sub(p.began) < time.Second/2 || now.Sub(p.printed) < time.Second/5 {
		return
	}
	p.printed = now
	text := p.text(now.Sub(p.began))
	fmt.Fprintf(p.terminal.err, "\r%-*s", p.terminal.errColumns()-1, fit(text, p.terminal.errColumns()-1))
}

// text returns the progress as text. The given duration is the time that reading has taken so far.
func (p *progress) text(after time.Duration) string {
	rate := float64(p.lines) / after.Seconds()
	text := fmt.Sprintf("%s, %s lines, %s lines/s", size(p.read), number(p.lines), number(int(rate)))
	if p.total > 0 && p.read > 0 {
		done := float64(p.read) / float64(p.total)
		left := time.Duration(float64(after) * (1/done - 1)).Round(time.Second)
		text = fmt.Sprintf("%3.0f %%  %s, %s left", 100*done, text, max(left, 0))
	}
	return text
}

// The method end erases the line with the progress from the terminal.
func (p *progress) end() {
	if !p.printed.IsZero() {
		fmt.Fprintf(p.terminal.err, "\r%*s\r", p.terminal.errColumns()-1, "")
		p.printed = time.Time{}
	}
}

// size returns a number of bytes as text with a unit, such as "1.5 MB".
func size(n int64) string {
	units := []string{"bytes", "kB", "MB", "GB", "TB", "PB", "EB"}
	v, i := float64(n), 0
	for ; v >= 1000; i++ {
		v /= 1000
	}
	if i == 0 {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + units[i]
}

// number returns n as text, with commas between the thousands.
func number[N int | uint64](n N) string {
	text := fmt.Sprint(n)
	var b strings.Builder
	for i, c := range text {
		if i > 0 && (len(text)-i)%3 == 0 && text[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}

// fit truncates text to a width in columns. A text that was truncated ends in three dots.
func fit(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return string(runes[:max(width-3, 0)]) + "..."
}
