// Package accesslog reads requests from the logs of web servers, proxies and load balancers, from JSON lines, and from CSV.
//
// A [Reader] needs memory for one line, however long the log is. It counts and skips lines that it cannot
// read.
package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// MaxLine is the largest length of a line in bytes. A longer line counts as a line that cannot be read.
const MaxLine = 1 << 20

// An Entry is one request in a log.
type Entry struct {
	Time     int64             // time of the request in nanoseconds since the Unix epoch
	Client   string            // name of the client; if the log has only an address, "ip:" followed by the field IP, as in httplimit
	Endpoint string            // path of the request without its query, the path of its route, or the text of a column such as "endpoint"
	IP       string            // address of the client without a port; for an IPv6 address, its prefix, such as 2001:db8::/64
	Tier     string            // the client's plan, which selects the limit
	Cost     int               // how many units of a limit the request uses up, at least 1
	Attrs    map[string]string // values of the attributes by name; the next call of Next overwrites the map

	// Costs lists further costs of the request, each in a unit with a name, such as 300 tokens. It is empty if the line has
	// no such costs. The next call of Next overwrites the slice.
	Costs []Cost
}

// A Cost is how many units of one kind a request costs.
type Cost = struct {
	Unit string // what is counted, such as "tokens"
	N    int    // how many units the request costs, at least 0
}

// Options say how to read a log.
type Options struct {
	Format  Format   // empty means Auto
	Fields  Fields   // the columns from which each part of an Entry is read; a missing part gets its columns from DefaultFields
	Columns []string // names of the columns of a CSV that has no header
	Comma   byte     // separator of the fields of a CSV; 0 means a comma
	Layout  string   // the format of the lines, if Format is Layout, in the syntax of log_format in nginx.conf
	Where   []Where  // conditions that a line must meet to be an Entry

	IPv6Bits int     // length of the prefix that stands for an IPv6 address; 0 means 64
	Kept     *Kept   // a cache that several Readers share; if it is nil, the Reader makes a cache of its own
	Routes   *Routes // gives the endpoint of a request; nil if the path is the endpoint

	// With Strict, Next returns a *LineError for a line that it cannot read. Without Strict, it skips the line.
	Strict bool
}

// A LineError says which line cannot be read, and why.
type LineError struct {
	Line   int    // number of the line; the first is 1
	Text   string // beginning of the line
	Reason string // why the line cannot be read, such as "is no JSON object"; the text of Error is then "line 5 is no JSON object: ..."
}

// Error returns a text with the number of the line, the reason, and the beginning of the line.
func (e *LineError) Error() string { return fmt.Sprintf("line %d %s: %s", e.Line, e.Reason, e.Text) }

// maxExamples is how many unreadable lines are kept as examples. maxText is how many bytes of each example are
// kept.
const (
	maxExamples = 3
	maxText     = 120
)

// Counts says how many lines a Reader has read. The number Lines is the sum of Entries, Broken and Left. If the log is a CSV
// with a header, Lines also counts the header.
type Counts struct {
	Lines    int          // lines that are not empty
	Entries  int          // lines that are requests
	Broken   int          // lines that cannot be read
	Left     int          // lines that can be read, but do not meet Options.Where
	TooLong  int          // how many of the Broken lines are longer than MaxLine
	Examples []*LineError // the first few of the Broken lines
}

// A parser reads the lines of one format.
type parser interface {
	// The method "parse" reads one line, and stores the text of each wanted column in the slice to which found points. If
	// the line cannot be read, the method returns the reason. Otherwise it returns an empty text.
	parse(line []byte, found *found) (reason string)
}

// A value of the type "found" holds the texts of one line. The element with the index i is the text of the column
// columns.names[i], or nil if the line does not have this column. The texts are valid until the next line is read.
type found [][]byte

// A Reader reads the requests of one log.
type Reader struct {
	options  Options
	in       *bufio.Reader
	long     []byte // holds a line that does not fit into the buffer of the bufio.Reader
	parser   parser // nil until the first line has been read
	columns  *columns
	found    found
	line     int
	counts   Counts
	lastTime *keptTime // the time of the previous line, see times.parse
	*Kept
}

// Kept caches texts that were read, so that most lines need no new memory. Several Readers may share one Kept if the same
// goroutine uses them all.
type Kept struct {
	times   times
	texts   texts
	clients clients
}

// unpacked returns a reader of the uncompressed text of a log. The parameter in reads the log as it is stored: uncompressed, or
// compressed with gzip or bzip2. If the log is compressed with zstd or xz, unpacked returns an error that names the program that
// can unpack it.
func unpacked(in *bufio.Reader) (*bufio.Reader, error) {
	magic, _ := in.Peek(10)
	begins := func(text string) bool { return bytes.HasPrefix(magic, []byte(text)) }
	switch {
	case begins("\x1f\x8b"):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("not a complete gzip file: %w", err)
		}
		return bufio.NewReaderSize(z, 64<<10), nil
	case begins("BZh") && len(magic) == 10 && (string(magic[4:]) == "1AY&SY" || string(magic[4:]) == "\x17rE8P\x90"):
		return bufio.NewReaderSize(bzip2.NewReader(in), 64<<10), nil
	case begins("\x28\xb5\x2f\xfd"):
		return nil, errors.New("is compressed with zstd: pipe it, as in zstd -dc FILE | ratelimit replay -")
	case begins("\xfd7zXZ\x00"):
		return nil, errors.New("is compressed with xz: pipe it, as in xz -dc FILE | ratelimit replay -")
	}
	return in, nil
}

// NewReader returns a Reader for the log in r. The log may be compressed with gzip or bzip2.
func NewReader(r io.Reader, o Options) (*Reader, error) {
	in, err := unpacked(bufio.NewReaderSize(r, 64<<10))
	if err != nil {
		return nil, err
	}
	if bom, _ := in.Peek(3); string(bom) == "\ufeff" {
		_, _ = in.Discard(3)
	}
	if o.Comma == 0 {
		o.Comma = ','
	}
	if o.IPv6Bits == 0 {
		o.IPv6Bits = 64
	}
	if o.Kept == nil {
		o.Kept = new(Kept)
	}
	return &Reader{options: o, in: in, Kept: o.Kept}, nil
}

// Counts returns the counts of the lines that were read so far.
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
		switch reason {
		case "":
			r.counts.Entries++
			return nil
		case leftOut:
			r.counts.Left++
			continue
		case comment:
			r.counts.Lines--
			continue
		}
		r.counts.Broken++
		if r.options.Strict || len(r.counts.Examples) < maxExamples {
			broken := &LineError{r.line, beginning(line), reason}
			if r.options.Strict {
				return broken
			}
			r.counts.Examples = append(r.counts.Examples, broken)
		}
	}
}

func beginning(line []byte) string {
	if len(line) > maxText {
		return string(line[:maxText]) + "..."
	}
	return string(line)
}

// The method named "next" returns the next line without its line end. If the line is too long, it returns the beginning of
// the line.
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

// begin makes the parser for the log. The given line is the first line of the log. The result isHeader says whether
// this line is the header of a CSV.
func (r *Reader) begin(line []byte) (isHeader bool, err error) {
	format := r.options.Format
	if format == "" || format == Auto {
		format = r.guess(line)
	}
	known := formats[format]
	r.columns = r.options.Fields.columns(known.fields, r.options.Routes != nil, r.options.Where)
	r.found = make(found, len(r.columns.names))
	switch {
	case format == Layout:
		r.parser, err = newLayout(r.columns, r.options.Layout)
	case known.layout != "" && line[0] != '{':
		r.parser, err = newLayout(r.columns, known.layout)
	case format == Combined, format == VHost:
		r.parser, err = newCombined(r.columns, format == VHost)
	case format == Traefik && line[0] != '{':
		r.columns = r.options.Fields.columns(formats[Combined].fields, r.options.Routes != nil, r.options.Where)
		r.found = make(found, len(r.columns.names))
		r.parser, err = newCombined(r.columns, false)
	case format == IIS, format == CloudFront:
		r.parser = newW3C(r.columns)
	case format == CSV:
		header := r.options.Columns
		if isHeader = header == nil; isHeader {
			if header, err = headerOf(line, r.options.Comma); err != nil {
				return false, err
			}
		}
		r.parser, err = newCSV(r.columns, header, r.options.Comma)
	default:
		r.parser = newJSON(r.columns)
	}
	return isHeader, err
}

// read parses one line and fills in the Entry e. If it cannot parse the line, it returns the reason. Otherwise it
// returns an empty text.
func (r *Reader) read(line []byte, e *Entry) (reason string) {
	clear(r.found)
	if reason = r.parser.parse(line, &r.found); reason != "" {
		return reason
	}
	at := r.columns.first(r.found, toTime)
	if at < 0 {
		return "has no time"
	}
	ns, ok := r.times.parse(r.found[at], &r.lastTime)
	if !ok {
		return "has a time that cannot be read"
	}
	e.Time, e.Cost = ns, 1
	r.client(e)
	e.Tier = r.text(toTier)
	if !r.endpoint(e) {
		return "has a request without a path"
	}
	if at = r.columns.first(r.found, toCost); at >= 0 {
		n, ok := costIn(r.found[at])
		if !ok {
			return badCost
		}
		e.Cost = max(n, 1)
	}
	e.Costs = e.Costs[:0]
	for i, unit := range r.columns.units {
		if at = r.columns.first(r.found, toAttr+part(len(r.columns.attrs)+i)); at >= 0 {
			n, ok := costIn(r.found[at])
			if !ok {
				return badCost
			}
			e.Costs = append(e.Costs, Cost{unit, n})
		}
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
	for i := range r.options.Where {
		if !r.options.Where[i].holds(r.found[r.columns.where[i]]) {
			return leftOut
		}
	}
	return ""
}

// leftOut and comment are two special reasons. They are returned for a line that can be read, but is no Entry. The reason is
// leftOut if the line does not meet Options.Where. It is the constant comment if the line is a comment of the log.
const (
	leftOut = "is left out"
	comment = "is a comment"
)

// client sets the parts of e that say who has sent the request.
func (r *Reader) client(e *Entry) {
	e.IP, e.Client = "", ""
	at := r.columns.first(r.found, toIP)
	name := ""
	if at >= 0 {
		e.IP, name = r.clients.of(r.found[at], r.options.IPv6Bits)
	}
	switch by := r.columns.first(r.found, toClient); {
	case by < 0:
	case by == at:
		e.Client = name
	case slices.Contains(r.columns.of[toIP], by):
		_, e.Client = r.clients.of(r.found[by], r.options.IPv6Bits)
	default:
		e.Client = r.texts.of(r.found[by])
	}
}

// endpoint sets the endpoint of e: the path of the request or, with Options.Routes, the path of its route. It returns false
// for a request that a load balancer could not read. The load balancer then writes a dash in place of the method.
func (r *Reader) endpoint(e *Entry) bool {
	e.Endpoint = ""
	at := r.columns.first(r.found, toEndpoint)
	if at < 0 {
		return true
	}
	text := r.found[at]
	if bytes.HasPrefix(text, []byte("- ")) && r.columns.names[at].isURL {
		return false
	}
	target := text
	switch {
	case r.columns.names[at].isURL:
		target = pathIn(text)
	case !r.columns.names[at].isCut:
		target = withoutQuery(text)
	}
	if r.options.Routes == nil {
		e.Endpoint = r.texts.of(target)
		return true
	}
	method := r.columns.first(r.found, toMethod)
	host := r.columns.first(r.found, toHost)
	asked := request{target: target}
	if method >= 0 {
		asked.method = r.found[method]
	} else if r.columns.names[at].isURL {
		asked.method = methodIn(text)
	}
	if host >= 0 {
		asked.host = r.found[host]
	}
	e.Endpoint = r.options.Routes.endpoint(&asked)
	return true
}

const badCost = "has a cost that is no whole number from 0 to 2147483647"

// costIn reads a number of units from the text of a column.
func costIn(text []byte) (n int, ok bool) {
	n, err := strconv.Atoi(string(text))
	return n, err == nil && n >= 0 && n <= math.MaxInt32
}

// text returns one part of the request in the current line, such as the name of its client. If the line does not
// have this part, the text is empty.
func (r *Reader) text(p part) string {
	if at := r.columns.first(r.found, p); at >= 0 {
		return r.texts.of(r.found[at])
	}
	return ""
}

// The type texts is a hash table that converts bytes to strings. It keeps some of the strings. If it already has a string
// with the same text, it returns this string and allocates nothing.
type texts [1 << 12]string

// maxKept is the largest length in bytes of a string that the table keeps.
const maxKept = 128

func (t *texts) of(b []byte) string {
	if len(b) == 0 || len(b) > maxKept {
		return string(b)
	}
	h := uint32(2166136261) // the hash function is FNV-1a
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	kept := &t[(h^h>>16)&(1<<12-1)]
	if *kept != string(b) {
		*kept = string(b)
	}
	return *kept
}
