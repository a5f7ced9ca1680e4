package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// logFlags hold the flags of a command that say how to read a log.
type logFlags struct {
	format   string
	layout   string
	fields   accesslog.Fields
	columns  string
	comma    string
	strict   bool
	ipv6     int
	routes   listFlag
	where    whereFlag
	from, to timeFlag
	late     time.Duration
	onTick   func() // called every two seconds while the standard input is read; may be nil
}

// defaultLate is the default of -late.
const defaultLate = 10 * time.Second

// redrawEvery is how often the report of replay is drawn with -follow.
const redrawEvery = 2 * time.Second

func newLogFlags(fs *flag.FlagSet) *logFlags {
	f := &logFlags{fields: make(accesslog.Fields), from: math.MinInt64, to: math.MaxInt64}
	fs.StringVar(&f.format, "format", "auto", "the `form` of the log: "+strings.Replace(formatList(), " alb,", "\nalb,", 1))
	fs.StringVar(&f.layout, "log-format", "", "the form of the lines, as in log_format of nginx: `'$remote_addr [$time_local] ...'`")
	fs.Var(f.fields, "field", "where a part of a request is, as `part=column`; the part is time,\n"+
		"client, endpoint, ip, cost, tier, method, host, attr:NAME or cost:UNIT; may be repeated")
	fs.StringVar(&f.columns, "columns", "", "the `names` of the columns of a CSV that has no header")
	fs.StringVar(&f.comma, "comma", ",", "the `character` between the columns of a CSV; tab is one too")
	fs.BoolVar(&f.strict, "strict", false, "stop at the first line that cannot be read; exit code 1 after a warning")
	fs.IntVar(&f.ipv6, "ipv6", 64, "how many `bits` of an IPv6 address are one client, as IPv6Bits of httplimit")
	fs.Var(&f.routes, "route", "a `pattern` of http.ServeMux that names an endpoint, or @FILE with a pattern a line;\nmay be repeated")
	fs.Var(&f.where, "where", "only lines that meet a `condition` on a column, such as status!=429; may be repeated")
	fs.Var(&f.from, "from", "only requests from this `time` on")
	fs.Var(&f.to, "to", "only requests before this `time`")
	fs.DurationVar(&f.late, "late", defaultLate, "how much `later` than its time a line may be written")
	return f
}

// formatList returns the names of all formats.
func formatList() string {
	var names []string
	for _, f := range accesslog.Formats() {
		names = append(names, string(f))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// A timeFlag is a flag with a time in any of the forms that a log may have, in nanoseconds since the Unix epoch.
type timeFlag int64

func (f *timeFlag) String() string { return "" }

// Set reads the time.
func (f *timeFlag) Set(text string) error {
	ns, ok := accesslog.ParseTime(text)
	if !ok {
		return errors.New("must be a time, such as 2026-10-10T12:00:00Z")
	}
	*f = timeFlag(ns)
	return nil
}

// A whereFlag collects conditions on the lines of a log.
type whereFlag []accesslog.Where

func (f *whereFlag) String() string { return "" }

// Set adds a condition.
func (f *whereFlag) Set(text string) error {
	w, err := accesslog.ParseWhere(text)
	if err == nil {
		*f = append(*f, w)
	}
	return err
}

// aboutLogs is the text about logs on the -h pages of all commands that read logs.
const aboutLogs = `
The form of a log is found by its first line, or -format names it: combined,
vhost or common of web servers, alb or clb of AWS, cloudfront, iis, envoy,
caddy, traefik, gcp, a JSON object a line, or CSV. -log-format is for nginx. A
log may be compressed by gzip or bzip2; "-" is the standard input.

Several logs are merged by time. A line may be written up to -late after its
time; it is then put in its place. A later one is decided at the latest time so
far. Times are in any zones, without one in UTC, or numbers since the Unix
epoch, also in milli-, micro- or nanoseconds.

A client without a name is "ip:" and its address, as httplimit calls it; of an
IPv6 address, it is the network of -ipv6 bits. The endpoint is the path without
the query or, with -route, the route that http.ServeMux takes.
-field client=user takes another column. In JSON, -field client=request.ip looks
within an object. Of several columns, as in -field client=user,host, the first
that is not empty counts. A cost of 0 counts as 1.

A line that cannot be read is counted and skipped, and the first three are
shown. What makes the answer doubtful, such as a rule that no request met, is
said on the standard error; with -strict, the exit code is then 1.
`

func (f *logFlags) options() (accesslog.Options, error) {
	o := accesslog.Options{Format: accesslog.Format(f.format), Fields: f.fields, Strict: f.strict, Where: f.where, IPv6Bits: f.ipv6}
	switch {
	case f.format == "common":
		o.Format = accesslog.Combined
	case !slices.Contains(accesslog.Formats(), o.Format):
		return o, usageError(fmt.Sprintf("-format is %q: must be %s", f.format, formatList()))
	}
	switch {
	case f.layout != "" && f.format != "auto":
		return o, usageError("-format and -log-format are given: one of them says how to read a line")
	case f.layout != "":
		o.Format, o.Layout = accesslog.Layout, f.layout
	}
	if f.columns != "" {
		if o.Columns = strings.Split(f.columns, ","); f.format == "auto" {
			o.Format = accesslog.CSV
		}
	}
	if f.comma == "tab" || f.comma == `\t` {
		f.comma = "\t"
	}
	if len(f.comma) != 1 || f.comma == `"` {
		return o, usageError(fmt.Sprintf("-comma is %q: must be one character, or tab", f.comma))
	}
	o.Comma = f.comma[0]
	switch {
	case f.ipv6 < 32 || f.ipv6 > 128:
		return o, usageError(fmt.Sprintf("-ipv6 is %d: must be from 32 to 128", f.ipv6))
	case f.late < 0 || f.late > time.Hour:
		return o, usageError(fmt.Sprintf("-late is %v: must be from 0s to 1h", f.late))
	}
	var err error
	o.Routes, err = f.readRoutes()
	return o, err
}

// readRoutes returns the patterns of the flag -route, or nil if there are none.
func (f *logFlags) readRoutes() (*accesslog.Routes, error) {
	if len(f.routes) == 0 {
		return nil, nil
	}
	routes := new(accesslog.Routes)
	for _, pattern := range f.routes {
		patterns := []string{pattern}
		if path, ok := strings.CutPrefix(pattern, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, usageError("-route: " + plain(strings.TrimPrefix(err.Error(), "open ")))
			}
			patterns = strings.Split(string(text), "\n")
		}
		for _, pattern := range patterns {
			if pattern = strings.TrimSpace(pattern); len(patterns) > 1 && (pattern == "" || pattern[0] == '#') {
				continue
			}
			if err := routes.Add(pattern); err != nil {
				return nil, usageError("-route: " + plain(err.Error()))
			}
		}
	}
	return routes, nil
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
	Lines   int           `json:"lines"`
	Broken  int           `json:"broken"`            // lines that could not be read
	TooLong int           `json:"tooLong"`           // how many of the Broken lines were too long
	Left    int           `json:"leftOut,omitempty"` // lines that -where, -from or -to leave out
	late    int           // requests that, in spite of the sorting that -late allows, come after a request with a later time
	latest  time.Duration // the longest distance of the times of these two requests
	kept    int           // requests that were passed on
}

// The method read reads the logs at paths, in the order of the times of their requests. It calls the given function for
// each request, and prints the lines that it cannot read. If there is no request in any of the logs, it returns an error.
// If the context ends, it returns errInterrupted, and count has the lines that were read until then.
func (f *logFlags) read(ctx context.Context, t *terminal, paths []string, add func(*accesslog.Entry) error) (count logCount, err error) {
	o, err := f.options()
	if err != nil {
		return count, err
	}
	p := newProgress(t, paths)
	streams, err := f.streams(ctx, p, paths, o)
	if err != nil {
		return count, err
	}
	defer func() {
		for _, s := range streams {
			s.close()
		}
	}()
	err = f.merge(ctx, p, streams, &count, add)
	p.end()
	for _, s := range streams {
		if s.reader == nil {
			continue
		}
		counts := s.reader.Counts()
		count.Lines += counts.Lines
		count.Broken += counts.Broken
		count.TooLong += counts.TooLong
		count.Left += counts.Left
		t.printBroken(s.path, &counts)
	}
	if err == nil && ctx.Err() != nil {
		err = errInterrupted
	}
	if err == nil && count.kept == 0 {
		err = fmt.Errorf("%s: there is no request in %s", plain(strings.Join(paths, ", ")), lines(count.Lines))
		if count.Left > 0 {
			err = fmt.Errorf("%w that -where, -from and -to leave", err)
		}
	}
	return count, err
}

// streams returns a stream for each log. If there are several logs, it reads the first request of each one that is a regular
// file, because the merge begins with the log whose first request is the earliest.
func (f *logFlags) streams(ctx context.Context, p *progress, paths []string, o accesslog.Options) ([]*stream, error) {
	streams := make([]*stream, 0, len(paths))
	o.Kept = new(accesslog.Kept)
	for i, path := range paths {
		if path == "-" && slices.Contains(paths[:i], path) {
			return nil, usageError("- is given twice: there is one standard input")
		}
		s := &stream{path: path, window: int64(f.late), index: i, key: math.MinInt64}
		s.open = func() (*accesslog.Reader, io.Closer, error) { return f.openLog(ctx, p, path, o, true) }
		if info, err := os.Stat(path); len(paths) > 1 && path != "-" && err == nil && info.Mode().IsRegular() {
			counted := s.open
			s.open = func() (*accesslog.Reader, io.Closer, error) { return f.openLog(ctx, p, path, o, false) }
			if err := s.peek(); err != nil {
				return nil, err
			}
			s.open = counted
		}
		streams = append(streams, s)
	}
	return streams, nil
}

// merge calls the given function for the requests of all streams, in the order of their times.
func (f *logFlags) merge(ctx context.Context, p *progress, streams []*stream, count *logCount, add func(*accesslog.Entry) error) error {
	all := merged(slices.Clone(streams))
	slices.SortStableFunc(all, func(a, b *stream) int { return cmp.Compare(a.key, b.key) }) // makes a heap: every sorted slice is one
	latest := int64(math.MinInt64)
	for i := 1; len(all) > 0; i++ {
		s := all[0]
		if s.reader == nil {
			if err := s.fill(); err != nil {
				return err
			}
			if len(all) > 1 && s.first() != nil {
				all.down()
				continue
			}
		}
		e, err := s.next()
		if err != nil {
			return err
		}
		if e == nil {
			last := len(all) - 1
			all[0] = all[last]
			all = all[:last]
			all.down()
			continue
		}
		switch {
		case e.Time < int64(f.from) || e.Time >= int64(f.to):
			count.Left++
		default:
			if e.Time < latest {
				count.late++
				count.latest = max(count.latest, time.Duration(latest-e.Time))
			}
			latest = max(latest, e.Time)
			count.kept++
			if err := add(&e.Entry); err != nil {
				return err
			}
		}
		if len(all) > 1 {
			if err := s.fill(); err != nil {
				return err
			}
			all.down()
		}
		if i%1024 == 0 {
			if ctx.Err() != nil {
				return errInterrupted
			}
			p.show(1024)
		}
	}
	return nil
}

// errInterrupted is the error of a command that the user has ended, for example by Ctrl-C.
var errInterrupted = errors.New("interrupted")

func lines(n int) string {
	switch n {
	case 0:
		return "an empty log"
	case 1:
		return "its only line"
	}
	return "its " + number(n) + " lines"
}

// printBroken prints the first few of the lines of a log that could not be read. It also prints how many further lines could
// not be read.
func (t *terminal) printBroken(path string, c *accesslog.Counts) {
	for _, line := range c.Examples {
		fmt.Fprintln(t.err, fit(fmt.Sprintf("%s: %s", plain(path), plain(line.Error())), t.errColumns()))
	}
	if more := c.Broken - len(c.Examples); more > 0 && len(c.Examples) > 0 {
		fmt.Fprintf(t.err, "%s: and %s more lines that cannot be read\n", plain(path), number(more))
	}
}
