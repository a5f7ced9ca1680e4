package chromium_test

import (
	"bytes"
	"fmt"
	"image/png"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chromium"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// hostile are names that would do harm in a page that does not escape them, or that are hard to lay out.
var hostile = []string{
	`<script>document.title = "harm"</script>`, `"><img src=x onerror="document.title='harm'">`, `</style><h1>not a title</h1>`,
	"' onfocus='document.title=1' autofocus='", "a\u202egnol yrev\u202c", "line\nbreak\ttab", "\xff\xfe", strings.Repeat("w", 200), "日本語のルール",
}

// crowd returns a limiter with 1,000 rules, and hostile names wherever a name can be.
func crowd(t testing.TB) *ratelimit.RateLimiter {
	t.Helper()
	var rules []ratelimit.Rule
	for i := range 1000 {
		r := ratelimit.Rule{Name: fmt.Sprintf("rule %d", i), Endpoint: fmt.Sprintf("/api/%d/*", i), Rate: ratelimit.PerMinute(1 + i%90)}
		if i%9 == 4 {
			name := hostile[i/9%len(hostile)]
			r.Name, r.Endpoint = fmt.Sprintf("%s %d", name, i), fmt.Sprintf("/api/%d/%s/*", i, name)
			r.Tiers = map[string]ratelimit.Rate{name: ratelimit.PerSecond(i + 1)}
			r.Key, r.Mode = ratelimit.KeyAttr(strings.Repeat("tenant", 1+i%30)), ratelimit.ModeShadow
		}
		rules = append(rules, r)
	}
	l, err := ratelimit.New(rules, &ratelimit.Rule{Name: "default", Rate: ratelimit.PerMinute(5)})
	require.NoError(t, err)
	for i, name := range hostile {
		require.NoError(t, l.Override(t.Context(), ratelimit.Override{
			Client: name, Effect: []string{ratelimit.EffectBlock, ratelimit.EffectExempt}[i%2], Note: name,
			Rules: []string{rules[4].Name, rules[i].Name},
		}))
	}
	for i := range rules {
		for range i % 100 {
			l.Allow("someone", fmt.Sprintf("/api/%d/x", i))
		}
	}
	return l
}

// TestDebugPage looks at the page of httplimit.Debug with 1,000 rules and hostile names, on a phone, a tablet and a large
// screen. The screenshots go to the folder in RATELIMIT_SHOTS, if it is set.
func TestDebugPage(t *testing.T) {
	if testing.Short() {
		t.Skip("a page with 1,000 rules takes a second to lay out")
	}
	b := chromium.Start(t)
	server := httptest.NewServer(httplimit.Debug(crowd(t)))
	t.Cleanup(server.Close)
	from := server.URL + "/debug/ratelimit"
	p := b.NewPage(t)
	for _, name := range hostile {
		q := url.QueryEscape(name)
		p.Open(from + "?client=" + q + "&endpoint=" + q + "&ip=" + q + "&tier=" + q)
		unharmed(t, p)
		var values []string
		p.Eval(&values, `[...document.querySelectorAll("input")].map((e) => e.value)`)
		shown := strings.ReplaceAll(string([]rune(name)), "\n", "") // a field has one line
		for _, value := range values {
			assert.Equal(t, shown, value)
		}
	}
	var form []string
	p.Eval(&form, `[document.querySelector("form").method, document.querySelector("form").action.split("?")[0]]`)
	assert.Equal(t, []string{"get", from}, form)

	for _, width := range []int{390, 1024, 1400} {
		for _, dark := range []bool{false, true} {
			p.Resize(width, 900, dark)
			p.Open(from + "?client=shop-7&endpoint=%2Fapi%2F4%2Fx&ip=1.2.3.4")
			unharmed(t, p)
			var color string
			p.Eval(&color, `getComputedStyle(document.body).backgroundColor`)
			assert.Equal(t, map[bool]string{false: "rgb(255, 255, 255)", true: "rgb(13, 17, 23)"}[dark], color, "the policy allows the style")
			fits(t, p, width)
			if shots := os.Getenv("RATELIMIT_SHOTS"); shots != "" {
				for _, part := range []string{"client", "overrides", "rules"} {
					p.Eval(nil, fmt.Sprintf(`document.getElementById(%q).scrollIntoView()`, part))
					p.Screenshot(filepath.Join(shots, fmt.Sprintf("%s-%d-%v.png", part, width, dark)), false)
				}
			}
		}
	}
	assert.Empty(t, p.Problems())
	for _, loaded := range p.URLs() {
		assert.True(t, strings.HasPrefix(loaded, from), "%s: the page loads nothing else", loaded)
	}
}

// unharmed requires that the page p has the elements and the title that its template gives it.
func unharmed(t *testing.T, p *chromium.Page) {
	t.Helper()
	var texts []string
	p.Eval(&texts, `[document.title, ...[...document.querySelectorAll("h1,script,img,iframe,link")].map((e) => e.outerHTML)]`)
	assert.Equal(t, []string{"Rate limits", "<h1>Rate limits</h1>"}, texts)
}

// fits requires that nothing in the page p is wider than the page.
func fits(t *testing.T, p *chromium.Page, width int) {
	t.Helper()
	var wide []string
	p.Eval(&wide, `[...document.querySelectorAll("body *")].filter((e) => !e.closest("thead") &&
  e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5).map((e) => e.outerHTML.slice(0, 200))`)
	assert.Empty(t, wide, "%d px", width)
	var scroll int
	p.Eval(&scroll, `document.documentElement.scrollWidth`)
	assert.LessOrEqual(t, scroll, width)
}

// TestDebugPicture draws the page in docs/debug, which go generate writes, to the file in RATELIMIT_PICTURE.
func TestDebugPicture(t *testing.T) {
	b := chromium.Start(t)
	page, err := filepath.Abs("../../../../docs/debug/page.html")
	require.NoError(t, err)
	to := os.Getenv("RATELIMIT_PICTURE")
	if to == "" {
		to = filepath.Join(t.TempDir(), "debug.png")
	}
	p := b.NewPage(t)
	p.Resize(1200, 700, false)
	p.Call("Emulation.setScrollbarsHidden", map[string]any{"hidden": true})
	p.Open("file://" + page)
	p.Screenshot(to, true)
	text, err := os.ReadFile(to)
	require.NoError(t, err)
	picture, err := png.Decode(bytes.NewReader(text))
	require.NoError(t, err)
	assert.Equal(t, 1200, picture.Bounds().Dx())
	assert.Greater(t, picture.Bounds().Dy(), 700)
}
