package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A layout is the parser for lines that a text such as `$remote_addr [$time_local] "$request"` describes. Each variable in
// the text, such as $time_local, is a column. In a line, the value of a variable ends where the text that follows the
// variable begins: here, the value of $remote_addr ends before " [".
type layout struct {
	before []byte // text before the first variable
	parts  []layoutPart
}

type layoutPart struct {
	column int    // index in columns.names; -1 if the column is not wanted
	after  []byte // text between this variable and the next one
	quoted bool   // whether the value is in quotation marks; an escaped quotation mark does not end it then
}

func newLayout(c *columns, text string) (*layout, error) {
	p := &layout{}
	before, rest, _ := strings.Cut(text, "$")
	p.before = []byte(before)
	var names []string
	for rest != "" {
		var name string
		if inner, ok := strings.CutPrefix(rest, "{"); ok {
			if name, rest, ok = strings.Cut(inner, "}"); !ok {
				return nil, errors.New("the format of the lines has a ${ that nothing closes")
			}
		} else {
			end := strings.IndexFunc(rest, func(r rune) bool {
				return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			})
			if end < 0 {
				end = len(rest)
			}
			name, rest = rest[:end], rest[end:]
		}
		if name == "" {
			return nil, errors.New("the format of the lines has a $ without a name")
		}
		after, next, more := strings.Cut(rest, "$")
		if more && after == "" {
			return nil, fmt.Errorf("the format of the lines has nothing between $%s and the variable after it", name)
		}
		quoted := strings.HasPrefix(after, `"`)
		p.parts = append(p.parts, layoutPart{c.index(name), []byte(after), quoted})
		names, rest = append(names, name), next
	}
	if len(names) == 0 {
		return nil, errors.New("the format of the lines has no variable, such as $remote_addr")
	}
	return p, c.require(names)
}

// index returns the index of the column with this name in c.names, or -1 if the column is not wanted.
func (c *columns) index(name string) int {
	return slices.IndexFunc(c.names, func(want column) bool { return want.name == name })
}

// require returns an error if a column that is needed is missing. The needed columns are one for the time, one for the client,
// and one for each condition in Options.Where. The parameter have lists the columns of the log.
func (c *columns) require(have []string) error {
	for _, want := range []struct {
		p    part
		name string
	}{{toTime, "time"}, {toClient, "client"}} {
		if !slices.ContainsFunc(c.of[want.p], func(i int) bool { return slices.Contains(have, c.names[i].name) }) {
			var names []string
			for _, i := range c.of[want.p] {
				names = append(names, c.names[i].name)
			}
			return fmt.Errorf("no column for the %s: must be %s, but the columns are %s",
				want.name, strings.Join(names, " or "), strings.Join(have, ", "))
		}
	}
	for _, i := range c.where {
		if !slices.Contains(have, c.names[i].name) {
			return fmt.Errorf("no column %q: the columns are %s", c.names[i].name, strings.Join(have, ", "))
		}
	}
	return nil
}

func (p *layout) parse(line []byte, into *found) string {
	const other = "is not in the format of the log"
	if !bytes.HasPrefix(line, p.before) {
		return other
	}
	line = line[len(p.before):]
	for i := range p.parts {
		part := &p.parts[i]
		end := len(line)
		switch {
		case len(part.after) == 0: // the last variable ends with the line
		case part.quoted:
			if end = quoted(line); end < 0 || !bytes.HasPrefix(line[end:], part.after) {
				return other
			}
		case len(part.after) == 1:
			end = bytes.IndexByte(line, part.after[0])
		default:
			end = bytes.Index(line, part.after)
		}
		if end < 0 {
			return other
		}
		text := line[:end]
		line = line[end+len(part.after):]
		if part.column >= 0 && (len(text) != 1 || text[0] != '-') {
			(*into)[part.column] = text
		}
	}
	return ""
}
