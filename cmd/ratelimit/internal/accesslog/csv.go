package accesslog

import (
	"bytes"
	"fmt"
	"strings"
)

// A csvLine is the parser for CSV. Each line has the same number of fields. A field may be in quotation marks.
// Inside a field in quotation marks, "" stands for one quotation mark.
type csvLine struct {
	comma  byte
	at     []int // the index in columns.names of each field of a line; -1 if the field is not wanted
	fields [][]byte
}

func newCSV(c *columns, header []string, comma byte) (*csvLine, error) {
	p := &csvLine{comma: comma, at: make([]int, len(header))}
	for i, name := range header {
		p.at[i] = c.index(name)
	}
	return p, c.require(header)
}

// headerOf returns the names of the columns of a CSV. The given line is the first line of the CSV, its header.
func headerOf(line []byte, comma byte) (names []string, err error) {
	p := csvLine{comma: comma}
	if reason := p.split(line); reason != "" {
		return nil, fmt.Errorf("the header %s: %s", reason, beginning(line))
	}
	for _, field := range p.fields {
		names = append(names, strings.TrimSpace(string(field)))
	}
	return names, nil
}

func (p *csvLine) parse(line []byte, into *found) string {
	if reason := p.split(line); reason != "" {
		return reason
	}
	if len(p.fields) != len(p.at) {
		return fmt.Sprintf("has %d fields, not %d", len(p.fields), len(p.at))
	}
	for i, text := range p.fields {
		if at := p.at[i]; at >= 0 {
			(*into)[at] = text
		}
	}
	return ""
}

// split splits a line into the slice p.fields. If it cannot split the line, it returns the reason. Otherwise it
// returns an empty text.
func (p *csvLine) split(line []byte) (reason string) {
	p.fields = p.fields[:0]
	for {
		if len(line) > 0 && line[0] == '"' {
			text, rest, ok := unquote(line[1:])
			if !ok {
				return "has a quotation mark that nothing closes"
			}
			p.fields = append(p.fields, text)
			if len(rest) == 0 {
				return ""
			}
			if rest[0] != p.comma {
				return "has text after a quotation mark"
			}
			line = rest[1:]
			continue
		}
		i := bytes.IndexByte(line, p.comma)
		if i < 0 {
			p.fields = append(p.fields, line)
			return ""
		}
		p.fields = append(p.fields, line[:i])
		line = line[i+1:]
	}
}

// unquote reads a field in quotation marks. It returns the text of the field, and the rest of the line after the
// closing quotation mark. It returns false if there is no closing quotation mark.
func unquote(line []byte) (text, rest []byte, ok bool) {
	end := bytes.IndexByte(line, '"')
	if end < 0 {
		return nil, nil, false
	}
	if end+1 == len(line) || line[end+1] != '"' {
		return line[:end], line[end+1:], true
	}
	for i := 0; i < len(line); i++ {
		if line[i] == '"' {
			if i+1 == len(line) || line[i+1] != '"' {
				return text, line[i+1:], true
			}
			i++
		}
		text = append(text, line[i])
	}
	return nil, nil, false
}
