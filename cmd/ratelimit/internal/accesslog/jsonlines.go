package accesslog

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A jsonLine reads objects. A column is the name of a field, or the names of objects and a field
// within each other, with dots between: "request.remote_ip".
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

// maxDepth is how many objects and lists may be within each other.
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

// next skips spaces, and reports whether c is the next byte, which it then skips too.
func (p *jsonLine) next(c byte) bool {
	p.space()
	if p.at < len(p.line) && p.line[p.at] == c {
		p.at++
		return true
	}
	return false
}

// object reads an object. path is the names of those around it, with a dot after each; if it is
// "-", none of its fields is wanted.
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

// wanted returns the column with this path and name, or -1; and the path of an object of this name
// if a column is in it, or "-".
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

// value reads a value, of which the text goes into a column if that is not -1. A null is empty, and
// so is a list and an object.
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

// text reads a string, and returns what it means.
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

// escaped reads a string that has a backslash and begins at start.
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

// number reports whether text is a number in JSON.
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
