package accesslog

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A jsonLine is the parser for JSON lines. Each field of a JSON object is a column with the same name. If the
// object lies within other objects, the name of the column begins with their names, with dots between the names. For
// example, the field "remote_ip" within the object "request" is the column "request.remote_ip".
type jsonLine struct {
	names []string
	line  []byte
	at    int
	found found
}

func newJSON(c *columns) *jsonLine {
	p := new(jsonLine)
	for _, want := range c.names {
		p.names = append(p.names, want.name)
	}
	return p
}

// maxDepth is how deep objects and lists may be nested.
const maxDepth = 100

func (p *jsonLine) parse(line []byte, into *found) string {
	p.line, p.at, p.found = line, 0, *into
	p.space()
	if p.at == len(line) || line[p.at] != '{' || !p.object("", 0) {
		return "is no JSON object"
	}
	if p.space(); p.at != len(line) {
		return "has text after the JSON object"
	}
	return ""
}

func (p *jsonLine) space() {
	for p.at < len(p.line) && (p.line[p.at] == ' ' || p.line[p.at] == '\t' || p.line[p.at] == '\r') {
		p.at++
	}
}

// The method named "next" skips spaces. Then it reports whether the next byte is c. If the next byte is c, it skips this
// byte too.
func (p *jsonLine) next(c byte) bool {
	p.space()
	if p.at < len(p.line) && p.line[p.at] == c {
		p.at++
		return true
	}
	return false
}

// object reads a JSON object. The argument path has the names of the objects around it, with a dot after each name.
// The path "-" means that no field of the object is wanted.
func (p *jsonLine) object(path string, depth int) bool {
	if p.at++; depth > maxDepth {
		return false
	}
	if p.next('}') {
		return true
	}
	for {
		p.space()
		key, ok := p.text()
		if !ok || !p.next(':') {
			return false
		}
		column, within := -1, "-"
		if path != "-" {
			column, within = p.wanted(path, key)
		}
		if p.space(); !p.value(column, within, depth) {
			return false
		}
		if p.next('}') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

// wanted looks up one field of a JSON object. The parameter path has the names of the objects that lead to this
// object, and key is the name of the field. The result column is the index of the field's column, or -1 if the
// field has no column. The result within is the path for the fields inside this field, or "-" if none of them has a
// column.
func (p *jsonLine) wanted(path string, key []byte) (column int, within string) {
	column, within = -1, "-"
	for i, name := range p.names {
		rest, ok := strings.CutPrefix(name, path)
		if !ok || len(rest) < len(key) || rest[:len(key)] != string(key) {
			continue
		}
		if len(rest) == len(key) {
			column = i
		} else if rest[len(key)] == '.' {
			within = name[:len(path)+len(key)+1]
		}
	}
	return column, within
}

// value reads a JSON value. If the parameter column is not -1, value stores the text of the JSON value for the
// column with this index. The text of null, of a list and of an object is empty. If the value is an object, the
// parameter within is the path for its fields.
func (p *jsonLine) value(column int, within string, depth int) bool {
	if p.at == len(p.line) {
		return false
	}
	start := p.at
	var text []byte
	ok := false
	switch p.line[p.at] {
	case '"':
		text, ok = p.text()
	case '{':
		ok = p.object(within, depth+1)
	case '[':
		ok = p.list(depth + 1)
	default:
		for p.at < len(p.line) && bytes.IndexByte([]byte(",}] \t\r"), p.line[p.at]) < 0 {
			p.at++
		}
		if text = p.line[start:p.at]; string(text) == "null" {
			text, ok = nil, true
		} else {
			ok = string(text) == "true" || string(text) == "false" || number(text)
		}
	}
	if ok && column >= 0 {
		p.found[column] = text
	}
	return ok
}

func (p *jsonLine) list(depth int) bool {
	if p.at++; depth > maxDepth {
		return false
	}
	if p.next(']') {
		return true
	}
	for {
		if p.space(); !p.value(-1, "-", depth) {
			return false
		}
		if p.next(']') {
			return true
		}
		if !p.next(',') {
			return false
		}
	}
}

// text reads a JSON string. It returns the string without its quotation marks, and with its escapes decoded.
func (p *jsonLine) text() (text []byte, ok bool) {
	if p.at == len(p.line) || p.line[p.at] != '"' {
		return nil, false
	}
	start := p.at
	for p.at++; p.at < len(p.line); p.at++ {
		switch c := p.line[p.at]; {
		case c == '"':
			p.at++
			return p.line[start+1 : p.at-1], true
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// escaped reads the rest of a JSON string in which a backslash was found. The parameter start is the index in the
// line at which the string begins.
func (p *jsonLine) escaped(start int) ([]byte, bool) {
	for ; p.at < len(p.line); p.at++ {
		switch p.line[p.at] {
		case '\\':
			p.at++
		case '"':
			p.at++
			var text string
			err := json.Unmarshal(p.line[start:p.at], &text)
			return []byte(text), err == nil
		}
	}
	return nil, false
}

// number reports whether text is a valid number in JSON.
func number(text []byte) bool {
	for i, c := range text {
		if (c < '0' || c > '9') && bytes.IndexByte([]byte("+-.eE"), c) < 0 {
			return false
		}
		if c != '-' && (c < '0' || c > '9') && i == 0 {
			return false
		}
	}
	return len(text) > 0 && (digits(text) && (len(text) == 1 || text[0] != '0') || json.Valid(text))
}
