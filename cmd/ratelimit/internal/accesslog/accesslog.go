// Package accesslog reads requests from logs: the common and the combined log format of web
// servers, JSON lines, and CSV.
//
// A Reader takes memory for one line, whatever the log has. A line that it cannot read is counted
// and skipped.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// A Format is how the lines of a log are written.
type Format string

// The formats. Auto is found out from the first line.
const (
	Auto     Format = "auto"
	Combined Format = "combined" // the common and the combined log format
	JSON     Format = "json"     // an object a line
	CSV      Format = "csv"      // a record a line
)

// MaxLine is the length of the longest line that is read, in bytes. A longer one is skipped.
const MaxLine = 1 << 20

// An Entry is one request in a log.
type Entry struct {
	Time     int64             // nanoseconds since the Unix epoch
	Client   string            // who sent it
	Endpoint string            // what the request is for: a path without the query, or any name
	IP       string            // the address of the client
	Tier     string            // the client's plan
	Cost     int               // at least 1
	Attrs    map[string]string // by name; the next call of Next changes it
}

// Options say how to read a log.
type Options struct {
	Format  Format   // empty means Auto
	Fields  Fields   // where the parts of an Entry are
	Columns []string // of a CSV without a header
	Comma   byte     // between the fields of a CSV; 0 means a comma

	// Strict makes Next return the first line that it cannot read as a *LineError.
	Strict bool
}

// A LineError is a line that cannot be read.
type LineError struct {
	Line   int    // its number; the first is 1
	Text   string // its beginning
	Reason string // why, as in "line 5 is no JSON object"
}

// Error returns the number, the reason and the text.
func (e *LineError) Error() string { return fmt.Sprintf("line %d %s: %s", e.Line, e.Reason, e.Text) }

// maxShown is how many lines that cannot be read are kept, and maxText is how much of each.
const (
	maxShown = 3
	maxText  = 120
)

// Counts say what a Reader has read.
type Counts struct {
	Lines   int          // all but empty ones
	Entries int          // those that are requests
	Broken  int          // those that are not; Lines is Entries + Broken, and the header of a CSV
	TooLong int          // of the Broken ones, those longer than MaxLine
	Shown   []*LineError // the first Broken ones
}

// A parser reads one line.
type parser interface {
	// parse puts the fields of line into found. reason is empty if it could.
	parse(line []byte, found *found) (reason string)
}

// found are the texts of the fields of one line, by the number of the column in Fields. A text
// that is missing is nil. The texts are valid until the next line.
type found [][]byte

// A Reader reads the requests of one log.
type Reader struct {
	options Options
	in      *bufio.Reader
	long    []byte // a line that does not fit into the buffer of in
	parser  parser // nil until the first line
	columns *columns
	found   found
	line    int
	counts  Counts
	times   times
	texts   texts
}

// NewReader returns a Reader of the log r, which may be compressed by gzip.
func NewReader(r io.Reader, o Options) (*Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("not a complete gzip file: %w", err)
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		_, _ = in.Discard(3)
	}
	if o.Comma == 0 {
		o.Comma = ','
	}
	return &Reader{options: o, in: in}, nil
}

// Counts returns what was read so far.
func (r *Reader) Counts() Counts { return r.counts }

// Next reads the next request into e. At the end of the log it returns [io.EOF].
func (r *Reader) Next(e *Entry) error {
	for {
		line, tooLong, err := r.next()
		if err != nil {
			return err
		}
		r.line++
		if len(line) == 0 {
			continue
		}
		r.counts.Lines++
		var reason string
		switch {
		case tooLong:
			r.counts.TooLong++
			reason = fmt.Sprintf("is longer than %d bytes", MaxLine)
		case r.parser == nil:
			isHeader, err := r.begin(line)
			if err != nil {
				return err
			}
			if isHeader {
				continue
			}
			fallthrough
		default:
			reason = r.read(line, e)
		}
		if reason == "" {
			r.counts.Entries++
			return nil
		}
		r.counts.Broken++
		if r.options.Strict || len(r.counts.Shown) < maxShown {
			broken := &LineError{r.line, beginning(line), reason}
			if r.options.Strict {
				return broken
			}
			r.counts.Shown = append(r.counts.Shown, broken)
		}
	}
}

func beginning(line []byte) string {
	if len(line) > maxText {
		return string(line[:maxText]) + "..."
	}
	return string(line)
}

// next returns the next line without its end. Of a line that is too long, it returns the beginning.
func (r *Reader) next() (line []byte, tooLong bool, err error) {
	line, err = r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		r.long = append(r.long[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = r.in.ReadSlice('\n')
			if len(r.long)+len(line) <= MaxLine+2 {
				r.long = append(r.long, line...)
			} else {
				tooLong = true
			}
		}
		line = r.long
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, false, err
	}
	line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	return line, tooLong || len(line) > MaxLine, nil
}

// begin makes the parser, by the first line. It reports whether that line is the header of a CSV.
func (r *Reader) begin(line []byte) (isHeader bool, err error) {
	format := r.options.Format
	if format == "" || format == Auto {
		format = r.guess(line)
	}
	r.columns = r.options.Fields.columns(format)
	r.found = make(found, len(r.columns.names))
	switch format {
	case Combined:
		r.parser, err = newCombined(r.columns)
	case JSON:
		r.parser = newJSON(r.columns)
	case CSV:
		header := r.options.Columns
		if isHeader = header == nil; isHeader {
			if header, err = headerOf(line, r.options.Comma); err != nil {
				return false, err
			}
		}
		r.parser, err = newCSV(r.columns, header, r.options.Comma)
	}
	return isHeader, err
}

// guess returns the format of a log that begins with line. A CSV begins with a header that names a
// column for the time.
func (r *Reader) guess(line []byte) Format {
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("{")) {
		return JSON
	}
	times := r.options.Fields["time"]
	if times == nil {
		times = Usual(CSV)["time"]
	}
	header, err := headerOf(line, r.options.Comma)
	if err == nil && slices.ContainsFunc(header, func(name string) bool { return slices.Contains(times, name) }) {
		return CSV
	}
	return Combined
}

// read reads line into e, or says why it cannot.
func (r *Reader) read(line []byte, e *Entry) (reason string) {
	clear(r.found)
	if reason = r.parser.parse(line, &r.found); reason != "" {
		return reason
	}
	at := r.columns.first(r.found, toTime)
	if at < 0 {
		return "has no time"
	}
	ns, ok := r.times.parse(r.found[at])
	if !ok {
		return "has a time that cannot be read"
	}
	e.Time, e.Cost = ns, 1
	e.Client = r.text(toClient)
	e.IP = r.text(toIP)
	e.Tier = r.text(toTier)
	e.Endpoint = ""
	if at = r.columns.first(r.found, toEndpoint); at >= 0 {
		target := r.found[at]
		if r.columns.names[at].isURL {
			target = pathIn(target)
		}
		e.Endpoint = r.texts.of(target)
	}
	if at = r.columns.first(r.found, toCost); at >= 0 {
		text := string(r.found[at])
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > math.MaxInt32 {
			return "has a cost that is no whole number from 0 to 2147483647"
		}
		e.Cost = max(n, 1)
	}
	if names := r.columns.attrs; len(names) > 0 {
		if e.Attrs == nil {
			e.Attrs = make(map[string]string, len(names))
		}
		for i, name := range names {
			e.Attrs[name] = r.text(toAttr + part(i))
		}
	}
	if e.Client == "" && e.Endpoint == "" && e.IP == "" {
		return "has no client, endpoint or address"
	}
	return ""
}

// text returns the text of a part, or an empty one.
func (r *Reader) text(p part) string {
	if at := r.columns.first(r.found, p); at >= 0 {
		return r.texts.of(r.found[at])
	}
	return ""
}

// texts make strings of bytes. They keep some of them, so that a text that comes often is made
// once.
type texts [1 << 12]string

// maxKept is the length of the longest text that is kept, in bytes.
const maxKept = 128

func (t *texts) of(b []byte) string {
	if len(b) == 0 || len(b) > maxKept {
		return string(b)
	}
	h := uint32(2166136261) // FNV-1a
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	kept := &t[(h^h>>16)&(1<<12-1)]
	if *kept != string(b) {
		*kept = string(b)
	}
	return *kept
}
