package accesslog

import (
	"fmt"
	"slices"
	"strings"
)

// Fields maps each part of an [Entry] to the names of its columns in the log. The parts are "time", "client",
// "endpoint", "ip", "cost", "tier", "method", "host", "attr:NAME" for an attribute, and "cost:UNIT" for the cost in another
// unit. If a part has several columns, the first column that is not empty is used. A part that is not in the map has the
// columns of [DefaultFields].
type Fields map[string][]string

// Set sets the columns of one part of an Entry. The form of its argument is "part=column,column".
func (f Fields) Set(text string) error {
	name, list, ok := strings.Cut(text, "=")
	if !ok || list == "" {
		return fmt.Errorf("must be part=column, such as client=user")
	}
	attr, isAttr := strings.CutPrefix(name, "attr:")
	unit, isCost := strings.CutPrefix(name, "cost:")
	if _, known := partNames[name]; !known && (!isAttr || attr == "") && (!isCost || unit == "") {
		return fmt.Errorf("has the part %q: must be time, client, endpoint, ip, cost, tier, method, host,"+
			" attr:NAME or cost:UNIT", name)
	}
	columns := strings.Split(list, ",")
	if slices.Contains(columns, "") {
		return fmt.Errorf("has a column without a name")
	}
	f[name] = columns
	return nil
}

// Units returns the units for which f has a part "cost:UNIT", in alphabetical order.
func (f Fields) Units() (units []string) { return f.after("cost:") }

// The method named "after" finds the parts whose names begin with the prefix. It returns the rest of each of these names, in
// alphabetical order.
func (f Fields) after(prefix string) (names []string) {
	for part := range f {
		if name, ok := strings.CutPrefix(part, prefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// String returns a text with the columns of all parts. For each part, the text has "part=column,column", with spaces
// between the parts.
func (f Fields) String() string {
	var texts []string
	for name, columns := range f {
		texts = append(texts, name+"="+strings.Join(columns, ","))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// A part is a number that stands for one part of an Entry, such as the time or the client. The constants below are the
// numbers of most parts. The attributes have the numbers from toAttr on. The costs in other units have the numbers
// after the attributes.
type part int

const (
	toTime part = iota
	toClient
	toEndpoint
	toIP
	toCost
	toTier
	toMethod
	toHost
	toAttr
)

var partNames = map[string]part{"time": toTime, "client": toClient, "endpoint": toEndpoint, "ip": toIP, "cost": toCost, "tier": toTier,
	"method": toMethod, "host": toHost}

// DefaultFields returns the columns that each part of an [Entry] has by default. A Reader uses them for the parts that are
// missing in its [Fields].
func DefaultFields(format Format) Fields { return formats[format].fields }

// The type columns holds the columns of a log from which the parts of an Entry are read.
type columns struct {
	names []column
	of    [][]int  // for each part of an Entry, the indexes of its columns in columns.names
	attrs []string // names of the attributes
	units []string // the UNIT of each part "cost:UNIT"
	where []int    // for each condition of Options.Where, the index of its column in columns.names
}

// A column is one column of a log.
type column struct {
	name  string
	isCut bool // whether the text is a path that the parser has cut out of a request line
	isURL bool // whether the text is a URL or a request line; only its path is used then
}

// The variable urls lists the names of columns whose text is a URL or a request line.
var urls = []string{"uri", "request_uri", "url", "request", "requestUrl", "http_request"}

// columns returns the columns that are read. A part that f does not have gets its columns from the given defaults. If byRoute
// is true, the endpoint of a request is the path of its route, which depends on the request's method and host. If byRoute is
// false, the columns of the method and the host are not read.
func (f Fields) columns(defaults Fields, byRoute bool, where []Where) *columns {
	c := &columns{of: make([][]int, toAttr)}
	for name, p := range partNames {
		if !byRoute && (p == toMethod || p == toHost) {
			continue
		}
		list, ok := f[name]
		if !ok {
			list = defaults[name]
		}
		c.of[p] = c.add(list)
	}
	c.attrs, c.units = f.after("attr:"), f.Units()
	for _, name := range c.attrs {
		c.of = append(c.of, c.add(f["attr:"+name]))
	}
	for _, unit := range c.units {
		c.of = append(c.of, c.add(f["cost:"+unit]))
	}
	for _, w := range where {
		c.where = append(c.where, c.add([]string{w.Column})...)
	}
	return c
}

// The method named "add" returns the index of the column for each of the given names. If there is no column with one of these
// names yet, add makes the column.
func (c *columns) add(names []string) (indexes []int) {
	for _, name := range names {
		i := slices.IndexFunc(c.names, func(have column) bool { return have.name == name })
		if i < 0 {
			i = len(c.names)
			c.names = append(c.names, column{name, false, slices.Contains(urls, name[strings.LastIndexByte(name, '.')+1:])})
		}
		indexes = append(indexes, i)
	}
	return indexes
}

// The method named "first" looks for a column of the part p that is not empty in the current line. It returns the index of the
// first such column. If all columns of the part are empty, it returns -1.
func (c *columns) first(f found, p part) int {
	for _, i := range c.of[p] {
		if len(f[i]) > 0 {
			return i
		}
	}
	return -1
}
