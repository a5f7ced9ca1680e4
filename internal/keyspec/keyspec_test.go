package keyspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit/internal/keyspec"
)

func TestParse(t *testing.T) {
	ip, user, endpoint := keyspec.Part{Kind: keyspec.IP}, keyspec.Part{Kind: keyspec.User}, keyspec.Part{Kind: keyspec.Endpoint}
	for _, c := range []struct {
		text string
		want []keyspec.Part
		why  string
	}{
		{"user", []keyspec.Part{user}, "one part"},
		{"user_endpoint", []keyspec.Part{user, endpoint}, "the old spelling of two parts"},
		{"endpoint+user", []keyspec.Part{user, endpoint}, "in another order it is the same key type"},
		{"ip+user_endpoint", []keyspec.Part{ip, user, endpoint}, "beside a third part too"},
		{"global", []keyspec.Part{{Kind: keyspec.Global}}, "no part of the request"},
		{"user+attr:b+attr:a", []keyspec.Part{{Name: "a"}, {Name: "b"}, user}, "attributes come first, by name"},
		{"attr:user", []keyspec.Part{{Name: "user"}}, "an attribute may have the name of a part"},
		{"attr: a:b", []keyspec.Part{{Name: " a:b"}}, "its name is taken as it is"},
	} {
		parts, problem := keyspec.Parse(c.text)
		assert.Empty(t, problem, "%q: %s", c.text, c.why)
		assert.Equal(t, c.want, parts, "%q: %s", c.text, c.why)
	}
}

func TestParseRefuses(t *testing.T) {
	const (
		unknown = `must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several of them joined by "+"`
		empty   = `must have a part on both sides of each "+"; the name of an attribute has no "+"`
		noName  = `must have the name of the attribute after "attr:", and the name has no "+"`
		global  = `must have nothing beside "global": all requests share one key`
	)
	for text, want := range map[string]string{
		"users":                    unknown,
		"ip + endpoint":            unknown,
		"":                         empty,
		"+":                        empty,
		"ip+":                      empty,
		keyspec.AttrText("a+user"): empty,
		keyspec.AttrText("+"):      noName,
		keyspec.AttrText("a+"):     empty,
		keyspec.AttrText(""):       noName,
		"ip+attr:":                 noName,
		"ip+global":                global,
		"global+global":            `must list each part once, and "global" is there twice`,
		"user+ip+user":             `must list each part once, and "user" is there twice`,
		"user_endpoint+endpoint":   `must list each part once, and "endpoint" is there twice`,
		"attr:a+attr:b+attr:a":     `must list each part once, and "attr:a" is there twice`,
	} {
		_, problem := keyspec.Parse(text)
		assert.Equal(t, want, problem, "%q", text)
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		texts []string
		want  string
	}{
		{[]string{"user"}, "user"},
		{[]string{"endpoint", "user"}, "user_endpoint"},
		{[]string{"user_endpoint"}, "user_endpoint"},
		{[]string{"endpoint", "ip"}, "ip+endpoint"},
		{[]string{"user", "attr:tenant"}, "attr:tenant+user"},
		{[]string{"user_endpoint", "ip"}, "ip+user+endpoint"},
		{[]string{"user", "user"}, "user+user"}, // Parse refuses it
		{nil, ""},
	} {
		assert.Equal(t, c.want, keyspec.Join(c.texts...), "%q", c.texts)
	}
}
