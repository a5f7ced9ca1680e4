package redisstore

import (
	"context"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// A Stored is a state in the server, by the name of its key. [Store.Stored] makes one of a name.
type Stored struct {
	Name string // of the key in the server

	// Ask says whose state it is: it has the Rule, the Key, the Client and the Algorithm. The Rate is
	// not in the name of a key: set it, and Warmup if Warms is true, before a call of Look.
	Ask ratelimit.Ask

	// Hashed reports that the Rule, the Key or the Client is longer than the name of a key may be. In
	// its place there is a # and its hash.
	Hashed bool

	Warms bool // whether the key warms up
}

// Pattern returns a pattern for the SCAN of the server that the names of all states match. A few
// other names match it too.
func (s *Store) Pattern() string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s.prefix) + ":{[ck]*}:" + version + "[tlfcsTLFCS]*"
}

// Stored returns the state that the server keeps under a name, or false if that is no name of a
// state. It does not call the server.
func (s *Store) Stored(name string) (found Stored, ok bool) {
	found.Name = name
	rest, ok := strings.CutPrefix(name, s.prefix+":{")
	tag, rest, closed := strings.Cut(rest, "}:"+version)
	if !ok || !closed || tag == "" || rest == "" || strings.ContainsAny(tag+rest, "{};") {
		return found, false // a list of receipts has a ;
	}
	letter, rest := rest[0], rest[1:]
	if found.Warms = 'A' <= letter && letter <= 'Z'; found.Warms {
		letter += 'a' - 'A'
	}
	for a, l := range algorithms {
		if l == letter {
			found.Ask.Algorithm = a
		}
	}
	parts := strings.Split(rest, ":") // empty, "", or "", rule, or "", rule, key
	texts := strings.Split(tag[1:], ":")
	switch {
	case found.Ask.Algorithm == "" || parts[0] != "":
		return found, false
	case tag[0] == 'k' && len(texts) == 2 && len(parts) == 1:
		ok = found.read(&found.Ask.Rule, texts[0]) && found.read(&found.Ask.Key, texts[1])
	case tag[0] == 'c' && len(texts) == 1 && (len(parts) == 2 || len(parts) == 3):
		last := parts[len(parts)-1]
		if len(parts) == 2 {
			last = texts[0]
		} else if last == "a" {
			return found, false // the hash of what was taken ahead
		}
		ok = found.read(&found.Ask.Rule, parts[1]) && found.read(&found.Ask.Client, texts[0]) && found.read(&found.Ask.Key, last)
	default:
		return found, false
	}
	return found, ok
}

// read reads a text that writeText has written.
func (st *Stored) read(to *string, text string) bool {
	if strings.HasPrefix(text, "#") {
		st.Hashed = true
		*to = text
		return true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' {
			if i+2 >= len(text) || unhex(text[i+1]) < 0 || unhex(text[i+2]) < 0 {
				return false
			}
			c = byte(unhex(text[i+1])<<4 | unhex(text[i+2]))
			i += 2
		} else if !plain[c] {
			return false
		}
		b.WriteByte(c)
	}
	*to = b.String()
	return true
}

func unhex(c byte) int { return strings.IndexByte("0123456789abcdef", c) }

// Look returns for each state what a request for one unit would be answered now, if that were
// made of it alone. Nothing is taken: Remaining still counts the unit. It writes nothing, and counts as a call in
// [Store.Stats]. All states are read by one script, so give it few. If one of them is no state of
// this package, all fail.
func (s *Store) Look(ctx context.Context, states []Stored) ([]ratelimit.Result, error) {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return nil, err
	}
	items := make([]item, len(states))
	for i := range states {
		ask := states[i].Ask
		ask.N, ask.Look = 0, true
		if items[i], err = s.item(&ask); err != nil {
			return nil, err
		}
		tag := states[i].Name[strings.IndexByte(states[i].Name, '{')+1:]
		tag, _, _ = strings.Cut(tag, "}")
		items[i].key = key{states[i].Name, tag}
	}
	return s.takeAll(ctx, items, rehearsing)
}
