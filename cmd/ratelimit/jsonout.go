package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
)

// printJSON prints v as JSON.
func (t *terminal) printJSON(v any) error { return writeJSON(t.out, v) }

// writeJSON writes v to w as JSON.
func writeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(plainJSON(b.Bytes()))
	return err
}

// plainJSON returns the JSON text as it can be printed: what is no printable rune is written as a
// number, such as \u009b. All of these are in strings, but for line ends.
func plainJSON(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}
