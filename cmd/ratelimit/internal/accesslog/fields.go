package accesslog

import (
	"fmt"
	"slices"
	"strings"
)

// Fields say in which columns the parts of an [Entry] are: "time", "client", "endpoint", "ip",
// "cost", "tier", and "attr:NAME" for an attribute. Of several columns, the first that is not empty
// counts. A part that is missing has the columns of [Usual].
type Fields map[string][]string

// Set reads "part=column,column" into f.
func (f Fields) Set(text string) error {
	name, list, ok := strings.Cut(text, "=")
	if !ok || list == "" {
		return fmt.Errorf("must be part=column, such as client=user")
	}
	attr, isAttr := strings.CutPrefix(name, "attr:")
	if _, known := partNames[name]; !known && (!isAttr || attr == "") {
		return fmt.Errorf("has the part %q: must be time, client, endpoint, ip, cost, tier or attr:NAME", name)
	}
	columns := strings.Split(list, ",")
	if slices.Contains(columns, "") {
		return fmt.Errorf("has a column without a name")
	}
	f[name] = columns
	return nil
}

// String returns f as Set reads it, with spaces between.
func (f Fields) String() string {
	var texts []string
	for name, columns := range f {
		texts = append(texts, name+"="+strings.Join(columns, ","))
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// A part is a part of an Entry: one of those below, or toAttr and the number of an attribute.
type part int

const (
	toTime part = iota
	toClient
	toEndpoint
	toIP
	toCost
	toTier
	toAttr
)

var partNames = map[string]part{"time": toTime, "client": toClient, "endpoint": toEndpoint, "ip": toIP, "cost": toCost, "tier": toTier}

// Usual returns the columns of a part where [Fields] has none.
func Usual(format Format) Fields {
	if format == Combined {
		return Fields{"time": {"time"}, "client": {"host"}, "endpoint": {"path"}, "ip": {"host"}}
	}
	return Fields{
		"time":     {"time", "ts", "timestamp", "@timestamp"},
		"client":   {"client", "user", "ip", "remote_ip", "remote_addr"},
		"endpoint": {"endpoint", "path", "uri", "request_uri", "url", "request"},
		"ip":       {"ip", "remote_ip", "remote_addr"},
		"cost":     {"cost"},
		"tier":     {"tier"},
	}
}

// columns are the columns that are read.
type columns struct {
	names []column
	of    [][]int // the columns of each part, as indexes of names
	attrs []string
}

// A column is one column that is read.
type column struct {
	name  string
	isURL bool // it has a URL or a request line, of which the path is taken
}

// urls are the columns that have a URL or a request line.
var urls = []string{"uri", "request_uri", "url", "request"}

func (f Fields) columns(format Format) *columns {
	c := &columns{of: make([][]int, toAttr)}
	usual := Usual(format)
	for name, p := range partNames {
		list, ok := f[name]
		if !ok {
			list = usual[name]
		}
		c.of[p] = c.add(list)
	}
	for name := range f {
		if attr, ok := strings.CutPrefix(name, "attr:"); ok {
			c.attrs = append(c.attrs, attr)
		}
	}
	slices.Sort(c.attrs)
	for _, name := range c.attrs {
		c.of = append(c.of, c.add(f["attr:"+name]))
	}
	return c
}

// add adds the columns with these names, and returns their indexes.
func (c *columns) add(names []string) (indexes []int) {
	for _, name := range names {
		i := slices.IndexFunc(c.names, func(have column) bool { return have.name == name })
		if i < 0 {
			i = len(c.names)
			c.names = append(c.names, column{name, slices.Contains(urls, name[strings.LastIndexByte(name, '.')+1:])})
		}
		indexes = append(indexes, i)
	}
	return indexes
}

// first returns the first column of p that is not empty, or -1.
func (c *columns) first(f found, p part) int {
	for _, i := range c.of[p] {
		if len(f[i]) > 0 {
			return i
		}
	}
	return -1
}
