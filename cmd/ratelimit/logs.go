package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// logFlags hold the flags of a command that say how to read a log.
type logFlags struct {
	format  string
	fields  accesslog.Fields
	columns string
	comma   string
	strict  bool
}

func newLogFlags(fs *flag.FlagSet) *logFlags {
	f := &logFlags{fields: make(accesslog.Fields)}
	fs.StringVar(&f.format, "format", "auto", "the `form` of the log: combined, common, json, csv or auto")
	fs.Var(f.fields, "field", "where a part of a request is, as `part=column`; the part is time,\n"+
		"client, endpoint, ip, cost, tier, attr:NAME or cost:UNIT; may be repeated")
	fs.StringVar(&f.columns, "columns", "", "the `names` of the columns of a CSV that has no header")
	fs.StringVar(&f.comma, "comma", ",", "the `character` between the columns of a CSV; tab is one too")
	fs.BoolVar(&f.strict, "strict", false, "stop at the first line that cannot be read")
	return f
}

// aboutLogs is the text about logs on the -h pages of all commands that read logs.
const aboutLogs = `
A log is in the common or combined format, has a JSON object a line, or is CSV.
It may be compressed by gzip, and "-" is the standard input. Several logs are
read one after the other.

Of a combined log, the client and the IP are the host, and the endpoint is the
path without the query. -field client=user takes another of: host, ident, user,
time, request, method, path, protocol, status, bytes, referer, agent. In JSON,
-field client=request.ip looks within an object. Of several columns, as in
-field client=user,host, the first that is not empty counts. A column that is
called uri, request_uri, url or request is read like a request line.

A line that cannot be read is counted and skipped, and the first three are
shown. Times are in any zones, without one in UTC, or numbers since the Unix
epoch, also in milli-, micro- or nanoseconds. If a time is before that of an
earlier line, the clock stands still: the request is decided at the latest time
so far.
`

func (f *logFlags) options() (accesslog.Options, error) {
	o := accesslog.Options{Fields: f.fields, Strict: f.strict}
	switch f.format {
	case "auto", "combined", "json", "csv":
		o.Format = accesslog.Format(f.format)
	case "common":
		o.Format = accesslog.Combined
	default:
		return o, usageError(fmt.Sprintf("-format is %q: must be auto, combined, common, json or csv", f.format))
	}
	if f.columns != "" {
		if o.Columns = strings.Split(f.columns, ","); f.format == "auto" {
			o.Format = accesslog.CSV
		}
	}
	if f.comma == "tab" {
		f.comma = "\t"
	}
	if len(f.comma) != 1 || f.comma == `"` {
		return o, usageError(fmt.Sprintf("-comma is %q: must be one character, or tab", f.comma))
	}
	o.Comma = f.comma[0]
	return o, nil
}

// checkUnits returns a usageError if the flag -field names a unit that no rule counts. It looks at the rules of the players'
// limiters. A player may be nil.
func (f *logFlags) checkUnits(players ...*replay.Player) error {
	var rules []ratelimit.Rule
	for _, p := range players {
		if p != nil {
			rules = append(rules, allRules(p.Limiter())...)
		}
	}
	for _, unit := range f.fields.Units() {
		if !counts(rules, unit) {
			return usageError(fmt.Sprintf("-field has the unit %q, which no rule counts", unit))
		}
	}
	return nil
}

// A logCount has the number of lines in all logs that were read.
type logCount struct {
	Lines   int `json:"lines"`
	Broken  int `json:"broken"`  // lines that could not be read
	TooLong int `json:"tooLong"` // how many of the Broken lines were too long
}

// The method read reads the logs at paths. It calls the given function for each request, and prints the lines that it
// cannot read. If there is no request in any of the logs, it returns an error.
func (f *logFlags) read(ctx context.Context, t *terminal, paths []string, add func(*accesslog.Entry) error) (count logCount, err error) {
	o, err := f.options()
	if err != nil {
		return count, err
	}
	p := newProgress(t, paths)
	defer p.end()
	entries := 0
	for _, path := range paths {
		counts, err := readLog(ctx, p, path, o, add)
		count.Lines += counts.Lines
		count.Broken += counts.Broken
		count.TooLong += counts.TooLong
		entries += counts.Entries
		p.end()
		t.printBroken(path, &counts)
		if err != nil {
			return count, err
		}
	}
	if entries == 0 {
		return count, fmt.Errorf("%s: there is no request in %s", plain(strings.Join(paths, ", ")), lines(count.Lines))
	}
	return count, nil
}

func lines(n int) string {
	switch n {
	case 0:
		return "an empty log"
	case 1:
		return "its only line"
	}
	return "its " + number(n) + " lines"
}

// readLog reads the log at path, or the standard input if path is "-". It calls the given function for each request.
func readLog(
	ctx context.Context, p *progress, path string, o accesslog.Options, add func(*accesslog.Entry) error,
) (accesslog.Counts, error) {
	in := p.terminal.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return accesslog.Counts{}, errors.New(plain(strings.TrimPrefix(err.Error(), "open ")))
		}
		defer file.Close()
		in = file
	}
	wrap := func(err error) error { return fmt.Errorf("%s: %s", plain(path), plain(err.Error())) }
	r, err := accesslog.NewReader(p.reader(in), o)
	if err != nil {
		return accesslog.Counts{}, wrap(err)
	}
	var e accesslog.Entry
	for i := 1; ; i++ {
		switch err := r.Next(&e); {
		case errors.Is(err, io.EOF):
			return r.Counts(), nil
		case err != nil:
			return r.Counts(), wrap(err)
		}
		if err := add(&e); err != nil {
			return r.Counts(), err
		}
		if i%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return r.Counts(), errors.New("interrupted")
			}
			p.show(1024)
		}
	}
}

// printBroken prints the first few of the lines of a log that could not be read. It also prints how many further lines could
// not be read.
func (t *terminal) printBroken(path string, c *accesslog.Counts) {
	for _, line := range c.Examples {
		fmt.Fprintln(t.err, fit(fmt.Sprintf("%s: %s", plain(path), plain(line.Error())), t.width))
	}
	if more := c.Broken - len(c.Examples); more > 0 && len(c.Examples) > 0 {
		fmt.Fprintf(t.err, "%s: and %s more lines that cannot be read\n", plain(path), number(more))
	}
}
