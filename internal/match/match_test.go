package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rule is a rule of the tests.
type rule struct {
	name  string
	place Place
}

func (r *rule) Place() Place { return r.place }

// A found holds the names of the rules for an endpoint, and of the additional ones among them.
type found struct{ all, additional string }

func namesOf(rules []*rule) string {
	var names []string
	for _, r := range rules {
		names = append(names, r.name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func newFound(rules []*rule) string { return namesOf(rules) }

// suits returns how narrowly r covers endpoint, or 0 if it does not.
func (r *rule) suits(endpoint string) int {
	text, isPrefix := strings.CutSuffix(r.place.Endpoint, "*")
	switch {
	case r.place.Default:
		return 1
	case isPrefix && strings.HasPrefix(endpoint, text):
		return 2 + len(text)
	case !isPrefix && text != "" && text == endpoint:
		return 1 << 20
	}
	return 0
}

// filter is the model: it looks at every rule.
func filter(rules []*rule, endpoint string) found {
	best := 1
	for _, r := range rules {
		if !r.place.Shadow && !r.place.Additional {
			best = max(best, r.suits(endpoint))
		}
	}
	var all, additional []*rule
	for _, r := range rules {
		if suits := r.suits(endpoint); suits > 0 && (r.place.Additional || suits >= best) {
			all = append(all, r)
			if r.place.Additional {
				additional = append(additional, r)
			}
		}
	}
	return found{namesOf(all), namesOf(additional)}
}

var texts = []string{"", "a", "ab", "abc", "b", "ba", "a/b", "a/bc", "a/c", "\xff", "\xff\x00"}

// drawPlace returns a random place.
func drawPlace(random *rand.Rand) Place {
	p := Place{Endpoint: texts[random.IntN(len(texts))], Shadow: random.IntN(3) == 0}
	switch random.IntN(8) {
	case 0:
		return Place{Default: true, Shadow: p.Shadow}
	case 1, 2, 3:
		p.Endpoint += "*"
	}
	p.Additional = p.Endpoint != "" && random.IntN(4) == 0
	return p
}

// check compares s with the model, at every endpoint.
func check(t *testing.T, s *Set[*rule, string], rules []*rule) {
	t.Helper()
	for _, text := range texts {
		for _, endpoint := range []string{text, text + "/x", text + "*"} {
			want := filter(rules, endpoint)
			if got := (found{*s.Find(endpoint), namesOf(s.Additional(endpoint))}); got != want { // assert costs more than the whole test
				var places []string
				for _, r := range rules {
					places = append(places, fmt.Sprintf("%s %+v", r.name, r.place))
				}
				require.Equal(t, want, got, "%q of\n%s", endpoint, strings.Join(places, "\n"))
			}
		}
	}
	checkTree(t, s)
}

// checkTree checks the invariants of a tree.
func checkTree(t *testing.T, s *Set[*rule, string]) {
	t.Helper()
	var walk func(n *node[*rule, string], text string)
	walk = func(n *node[*rule, string], text string) {
		counted := *n
		counted.count()
		require.Equal(t, counted.prefixes, n.prefixes, "prefixes at %q", text)
		require.Equal(t, counted.open, n.open, "open groups at %q", text)
		require.Equal(t, len(n.children) > 1, n.places != nil)
		if n != s.root {
			require.NotEmpty(t, n.label)
			require.True(t, n.prefix != nil || n.exact != nil || len(n.children) > 1, "%q is there for nothing", text)
		}
		for i, child := range n.children {
			require.Equal(t, i, n.place(child.label[0]), "two children begin alike")
			walk(child, text+child.label)
		}
		if n.exact != nil {
			g, _ := s.Exact.Get(text)
			require.Same(t, n.exact, g)
		}
	}
	walk(s.root, "")
}

// TestSetAgainstAModel changes random sets step by step. Each set must agree with the model,
// and so must the sets before it, which share a part of it.
func TestSetAgainstAModel(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 10))
		var rules []*rule
		for i := range random.IntN(12) {
			rules = append(rules, &rule{fmt.Sprint("r", i), drawPlace(random)})
		}
		s := New(rules, newFound)
		for step := range 12 {
			before, had := s, slices.Clone(rules)
			if random.IntN(2) == 0 {
				check(t, &s, rules) // otherwise the groups are first made after the change
			}
			added := &rule{fmt.Sprint("added", step), drawPlace(random)}
			switch i := random.IntN(len(rules) + 1); {
			case i == len(rules):
				s, rules = s.Replace(nil, added), append(rules, added)
			case random.IntN(2) == 0:
				s, rules = s.Replace(rules[i], nil), slices.Delete(rules, i, i+1)
			default:
				if random.IntN(2) == 0 {
					added.place = rules[i].place
				}
				s = s.Replace(rules[i], added)
				rules[i] = added
			}
			check(t, &s, rules)
			check(t, &before, had)
		}
	}
}

// TestMeetAgainstTheModel checks that Meet knows of each pair of rules whether there is an
// endpoint to which both apply.
func TestMeetAgainstTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 10))
	seen := map[bool]int{}
	for range 20_000 {
		a, b := &rule{"a", drawPlace(random)}, &rule{"b", drawPlace(random)}
		if a.place.Default && b.place.Default {
			continue // there is one default rule
		}
		meet := false
		for _, text := range texts {
			for _, endpoint := range []string{text, text + "/x"} {
				meet = meet || filter([]*rule{a, b}, endpoint).all == "a b"
			}
		}
		seen[meet]++
		require.Equal(t, meet, Meet(a.place, b.place), "%+v and %+v", a.place, b.place)
	}
	require.Greater(t, min(seen[true], seen[false]), 1000)
}

// TestChangeMakesAnewWhatItChanges counts the groups that a change replaces, among 5,000 rules.
func TestChangeMakesAnewWhatItChanges(t *testing.T) {
	var rules []*rule
	for i := range 5000 {
		rules = append(rules, &rule{fmt.Sprint(i), Place{Endpoint: fmt.Sprintf("/%d/%d", i%50, i)}})
	}
	open := &rule{"open", Place{Endpoint: "/7/open", Shadow: true}}
	made := 0
	s := New(append(rules, open), func([]*rule) int { made++; return made })
	everywhere := func(s Set[*rule, int]) {
		for _, r := range rules {
			s.Find(r.place.Endpoint)
		}
		s.Find("/7/open")
		s.Find("/7/other")
	}
	everywhere(s)
	require.Equal(t, 5002, made)
	none, prefix := (*rule)(nil), &rule{"prefix", Place{Endpoint: "/7/*"}}
	for _, c := range []struct {
		from, to *rule
		want     int
		why      string
	}{
		{none, &rule{"new", Place{Endpoint: "/new"}}, 0, "another endpoint"},
		{rules[0], &rule{"0", Place{Endpoint: "/0/0"}}, 1, "the endpoint itself"},
		{none, prefix, 2, "the prefix, and the endpoint below it that has no rule of its own that enforces"},
		{prefix, none, 1, "only that endpoint: the default rule's group is there already"},
		{none, &rule{"default", Place{Default: true}}, 2, "the same, and the default rule"},
		{none, &rule{"both", Place{Endpoint: "/7/*", Additional: true}}, 102, "an additional rule applies to all below its prefix"},
		{none, &rule{"all", Place{Endpoint: "*", Additional: true}}, 5002, "or to all"},
	} {
		made = 0
		s = s.Replace(c.from, c.to)
		assert.Zero(t, made, "a change makes none: "+c.why)
		everywhere(s)
		assert.Equal(t, c.want, made, c.why)
	}
}

// TestMap checks a Map against a map, before and after it is divided into parts.
func TestMap(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 10))
	var m Map[int]
	want := map[string]int{}
	for i := range 5 * maxWhole {
		before, key := m, fmt.Sprint(random.IntN(3*maxWhole))
		had, was := before.Get(key)
		if random.IntN(3) == 0 {
			m = m.Without(key)
			delete(want, key)
		} else {
			m, want[key] = m.With(key, i), i
		}
		got, ok := m.Get(key)
		value, known := want[key]
		require.Equal(t, known, ok)
		require.Equal(t, value, got)
		again, still := before.Get(key)
		require.Equal(t, was, still, "the map before stays as it was")
		require.Equal(t, had, again)
	}
	require.NotNil(t, m.parts)
	for i := range 3 * maxWhole {
		got, ok := m.Get(fmt.Sprint(i))
		value, known := want[fmt.Sprint(i)]
		require.Equal(t, known, ok)
		require.Equal(t, value, got)
	}
}

// TestCheck proves what is said of each wrong endpoint, and of each rule that is additional to nothing.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		place                Place
		named                bool
		endpoint, additional string
	}{
		{Place{Endpoint: "/a"}, false, "", ""},
		{Place{Endpoint: "/a*", Additional: true}, false, "", ""},
		{Place{Default: true}, false, "", ""},
		{Place{}, true, "", ""},
		{Place{}, false, "must be set", ""},
		{Place{Endpoint: "/a", Default: true}, false, "must be empty", ""},
		{Place{Endpoint: "/*/a"}, true, `must have a "*" at the end only`, ""},
		{Place{Endpoint: "/a**"}, true, `must have a "*" at the end only`, ""},
		{Place{Default: true, Additional: true}, true, "", "must be false: the default rule"},
		{Place{Additional: true}, true, "", "must be false, or the rule have an endpoint"},
	} {
		endpoint, additional := c.place.Check(c.named)
		for _, x := range [][2]string{{endpoint, c.endpoint}, {additional, c.additional}} {
			assert.Equal(t, x[1] == "", x[0] == "", "%+v: %q", c.place, x[0])
			assert.True(t, strings.HasPrefix(x[0], x[1]), "%+v: %q", c.place, x[0])
		}
	}
}
