package accesslog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// combinedNames has the names of the columns of the combined log format. The columns "method", "path" and "protocol"
// are parts of the column "request". The path is without the query.
var combinedNames = []string{"host", "ident", "user", "time", "request", "method", "path", "protocol",
	"status", "bytes", "referer", "agent", "vhost"}

// The type combined is the parser for the common and the combined log format.
type combined struct {
	at    [13]int // index in columns.names of each name in combinedNames; -1 if the column is not wanted
	after bool    // whether a column that comes after the column "status" is wanted
	vhost bool    // whether the name of a virtual host comes first, as in the format vhost_combined of Apache
}

func newCombined(c *columns, vhost bool) (*combined, error) {
	p := &combined{vhost: vhost}
	for i := range p.at {
		p.at[i] = -1
	}
	for i, want := range c.names {
		at := slices.Index(combinedNames, want.name)
		if at < 0 {
			return nil, fmt.Errorf("the combined log format has no field %q: must be one of %s", want.name, strings.Join(combinedNames, ", "))
		}
		p.at[at] = i
		c.names[i].isCut = want.name == "path"
		p.after = p.after || at >= 9 && at < 12
	}
	return p, nil
}

// set stores the text of one column in f. The argument name is the index of the column in combinedNames. If the text
// is a single dash, which stands for an empty column, set stores nothing.
func (p *combined) set(f found, name int, text []byte) {
	if i := p.at[name]; i >= 0 && (len(text) != 1 || text[0] != '-') {
		f[i] = text
	}
}

func (p *combined) parse(line []byte, into *found) string {
	const other = "is not in the combined log format"
	f := *into
	i := bytes.IndexByte(line, ' ')
	if p.vhost && i > 0 {
		p.set(f, 12, line[:i])
		line = line[i+1:]
		i = bytes.IndexByte(line, ' ')
	}
	if i <= 0 {
		return other
	}
	p.set(f, 0, line[:i])
	if line = p.identity(f, line[i+1:]); line == nil {
		return other
	}
	if i = bytes.IndexByte(line, ']'); i < 0 || len(line) < i+3 || line[i+1] != ' ' || line[i+2] != '"' {
		return other
	}
	p.set(f, 3, line[:i])
	line = line[i+3:]
	if i = quoted(line); i < 0 || len(line) < i+5 || line[i+1] != ' ' || !digits(line[i+2:i+5]) {
		return other
	}
	if !p.request(f, line[:i]) {
		return "has a request without a path"
	}
	p.set(f, 8, line[i+2:i+5])
	if p.after {
		p.rest(f, line[i+5:])
	}
	return ""
}

// identity sets the columns "ident" and "user". The given text begins with these two columns, and an opening bracket follows.
// The result is the text after the bracket, or nil if there is no such bracket.
func (p *combined) identity(f found, line []byte) []byte {
	if none := []byte("- - ["); bytes.HasPrefix(line, none) {
		return line[len(none):]
	}
	i := bytes.IndexByte(line, ' ')
	if i <= 0 {
		return nil
	}
	p.set(f, 1, line[:i])
	line = line[i+1:]
	// The name of the user may have spaces. It ends before the text " [".
	if i = bytes.IndexByte(line, '['); i < 2 || line[i-1] != ' ' {
		if i = bytes.Index(line, []byte(" [")) + 1; i < 2 {
			return nil
		}
	}
	p.set(f, 2, line[:i-1])
	return line[i+1:]
}

// request reads a request line, such as "GET /a?b HTTP/1.1", and sets the columns that are parts of it. It returns
// false if the request line has no path.
func (p *combined) request(f found, line []byte) bool {
	p.set(f, 4, line)
	i := bytes.IndexByte(line, ' ')
	if i <= 0 || i+1 == len(line) {
		return false
	}
	p.set(f, 5, line[:i])
	target := line[i+1:]
	if i = bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		p.set(f, 7, target[i+1:])
		target = target[:i]
	}
	target = pathIn(target)
	p.set(f, 6, target)
	return len(target) > 0
}

// The method named "rest" sets the columns that come after the column "status". Its argument is the part of the line that
// follows the status.
func (p *combined) rest(f found, line []byte) {
	line = bytes.TrimPrefix(line, []byte(" "))
	i := bytes.IndexByte(line, ' ')
	if i < 0 {
		p.set(f, 9, line)
		return
	}
	p.set(f, 9, line[:i])
	for name := 10; name < 12; name++ {
		line = bytes.TrimPrefix(line[i:], []byte(" "))
		if len(line) == 0 || line[0] != '"' {
			return
		}
		line = line[1:]
		if i = quoted(line); i < 0 {
			return
		}
		p.set(f, name, line[:i])
		i++
	}
}

// quoted returns the index of the first quotation mark in text that is not escaped by a backslash, or -1 if there is
// none.
func quoted(text []byte) int {
	for i := 0; i < len(text); {
		end := bytes.IndexByte(text[i:], '"')
		if end < 0 {
			return -1
		}
		end += i
		escapes := 0
		for end-escapes > i && text[end-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
		i = end + 1
	}
	return -1
}

func digits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// pathIn returns the path within text. The text is a request line, a URL, or a path with a query.
func pathIn(text []byte) []byte {
	if len(text) > 0 && text[0] != '/' {
		if i := bytes.IndexByte(text, ' '); i > 0 && bytes.IndexByte(text[:i], ':') < 0 {
			text = text[i+1:] // removes the method, such as GET
			if i = bytes.LastIndexByte(text, ' '); i >= 0 && bytes.HasPrefix(text[i+1:], []byte("HTTP/")) {
				text = text[:i]
			}
		}
	}
	for i, c := range text { // paths are short, so this is faster than bytes.IndexAny
		if c == '?' || c == '#' {
			text = text[:i]
			break
		}
	}
	if len(text) > 0 && text[0] != '/' {
		if i := bytes.Index(text, []byte("://")); i > 0 {
			text = text[i+3:]
			if i = bytes.IndexByte(text, '/'); i < 0 {
				return []byte("/")
			}
			text = text[i:]
		}
	}
	return text
}
