package redisstore

import (
	"context"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// A Stored says which rule and which key a state in the server belongs to, as far as the name of the state in
// the server shows this. [Store.Stored] returns a Stored.
type Stored struct {
	Name string // the name of the state's key in the server

	// Ask has the Rule, the Key, the Client and the Algorithm of the state. The name does not contain the
	// Rate, so set Ask.Rate before you call [Store.Look]. If Warms is true, also set Ask.Warmup.
	Ask ratelimit.Ask

	// Hashed reports whether the Rule, the Key or the Client was too long for the name of the key. The field in
	// Ask then has "#" and a hash in place of the long text.
	Hashed bool

	Warms bool // whether the rule of the state has a Warmup
}

// Pattern returns a pattern for the command SCAN that matches the names of all states. It also matches a
// few other names.
func (s *Store) Pattern() string {
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
	return escape.Replace(s.prefix) + ":{[ck]*}:" + version + "[tlfcshTLFCS]*"
}

// Stored describes the state whose key in the server has this name, as far as the name shows it. It makes no
// call to the server. The result ok is false if no state has a key of this form.
func (s *Store) Stored(name string) (found Stored, ok bool) {
	found.Name = name
	letter, tag, rest, ok := s.splitName(name)
	if !ok {
		return found, false
	}
	if found.Warms = 'A' <= letter && letter <= 'Z'; found.Warms {
		letter += 'a' - 'A'
	}
	a, r := &found.Ask, nameReader{}
	for algorithm, l := range algorithms {
		if l == letter {
			a.Algorithm = algorithm
		}
	}
	ofClient, inTag := tag[0] == 'c', strings.Split(tag[1:], ":")
	switch {
	case a.Algorithm == "":
		return found, false
	case tag[0] == 'k' && len(inTag) == 2 && len(rest) == 0:
		a.Rule, a.Key = r.text(inTag[0]), r.text(inTag[1])
	case ofClient && len(inTag) == 1 && len(rest) == 1:
		a.Rule, a.Client, a.Key = r.text(rest[0]), r.text(inTag[0]), r.text(inTag[0])
	case ofClient && len(inTag) == 1 && len(rest) == 2:
		a.Rule, a.Client, a.Key = r.text(rest[0]), r.text(inTag[0]), r.text(rest[1])
	default:
		return found, false
	}
	found.Hashed = r.hashed
	return found, !r.failed
}

// splitName splits the name of a key into the letter of the algorithm, the text between the braces, and the
// texts that follow the letter. It returns false if the name does not have the form of a state's name.
func (s *Store) splitName(name string) (letter byte, tag string, rest []string, ok bool) {
	name, ok = strings.CutPrefix(name, s.prefix+":{")
	tag, name, closed := strings.Cut(name, "}:"+version)
	if !ok || !closed || tag == "" || name == "" || strings.ContainsAny(tag+name, "{};") { // no name of a state has a semicolon
		return 0, "", nil, false
	}
	rest = strings.Split(name[1:], ":")
	return name[0], tag, rest[1:], rest[0] == ""
}

// A nameReader reads the texts in the name of a key, such as a rule or a client, which writeText has written there.
type nameReader struct {
	hashed bool // whether one of the texts was a hash
	failed bool // whether one of the texts was not in the form that writeText writes
}

// The method text is the reverse of writeText: from the form that writeText wrote, it returns the original
// text. If writeText wrote a hash in place of the text, it returns "#" and the hash.
func (r *nameReader) text(written string) string {
	if strings.HasPrefix(written, "#") {
		r.hashed = true
		return written
	}
	var b strings.Builder
	for i := 0; i < len(written); i++ {
		c := written[i]
		if c == '%' {
			if i+2 >= len(written) || unhex(written[i+1]) < 0 || unhex(written[i+2]) < 0 {
				r.failed = true
				return ""
			}
			c = byte(unhex(written[i+1])<<4 | unhex(written[i+2]))
			i += 2
		} else if !unescaped[c] {
			r.failed = true
		}
		b.WriteByte(c)
	}
	return b.String()
}

func unhex(c byte) int { return strings.IndexByte("0123456789abcdef", c) }

// Look returns a result for each state: the result that a request for one unit would get now if only this
// state had to grant it. Look charges and writes nothing, so this unit is not subtracted from Remaining. Look counts
// as a call in [Store.Stats]. One script reads all states of a slot, so pass only a few. If one of the
// states was not written by this package, Look returns only an error.
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
