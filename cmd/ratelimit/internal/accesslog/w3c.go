package accesslog

import (
	"bytes"
	"fmt"
	"strings"
)

// A w3c is the parser for the extended log format of W3C, which IIS and CloudFront write. The directive #Fields names the
// columns of the lines after it. A log may have several such directives. The parser joins the fields "date"
// and "time" of a line, with a space between them, to one column with the name "date time".
type w3c struct {
	columns    *columns
	at         []int // the index in columns.names of each field of a line; -1 if the field is not wanted; nil before #Fields
	date, time int   // index of these fields in a line; -1 if there is none
	dateTime   int   // index of the column "date time" in columns.names; -1 if it is not wanted
	comma      string
	joined     []byte
}

func newW3C(c *columns) *w3c {
	return &w3c{columns: c, date: -1, time: -1, dateTime: c.index("date time")}
}

func (p *w3c) parse(line []byte, into *found) string {
	if line[0] == '#' {
		return p.directive(string(line))
	}
	if p.at == nil {
		return "comes before the line #Fields"
	}
	if p.comma == "" { // IIS separates fields by spaces, and CloudFront by tabs, while both write #Fields with spaces
		p.comma = " "
		if bytes.IndexByte(line, '\t') >= 0 {
			p.comma = "\t"
		}
	}
	fields := 0
	var date, clock []byte
	for rest, more := line, true; more; fields++ {
		var text []byte
		text, rest, more = bytes.Cut(rest, []byte(p.comma))
		if fields >= len(p.at) {
			return fmt.Sprintf("has more than %d fields", len(p.at))
		}
		switch fields {
		case p.date:
			date = text
		case p.time:
			clock = text
		}
		if i := p.at[fields]; i >= 0 && (len(text) != 1 || text[0] != '-') {
			(*into)[i] = text
		}
	}
	if fields != len(p.at) {
		return fmt.Sprintf("has %d fields, not %d", fields, len(p.at))
	}
	if p.dateTime >= 0 && date != nil && clock != nil {
		p.joined = append(append(append(p.joined[:0], date...), ' '), clock...)
		(*into)[p.dateTime] = p.joined
	}
	return ""
}

// directive reads a line that begins with #.
func (p *w3c) directive(line string) string {
	list, ok := strings.CutPrefix(line, "#Fields:")
	if !ok {
		return comment
	}
	names := strings.Fields(list)
	p.at, p.date, p.time = nil, -1, -1
	for i, name := range names {
		p.at = append(p.at, p.columns.index(name))
		switch name {
		case "date":
			p.date = i
		case "time":
			p.time = i
		}
	}
	have := names
	if p.date >= 0 && p.time >= 0 {
		have = append([]string{"date time"}, names...)
	}
	if err := p.columns.require(have); err != nil {
		return "has " + err.Error()
	}
	return comment
}
