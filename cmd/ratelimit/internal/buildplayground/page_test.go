package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart/charttest"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chromium"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/playground"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// pageFiles are the sources of the page.
var pageFiles = []string{"index.html", "page.css", "page.js"}

// frames waits until the page has answered an event.
const frames = `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`

// started waits until the engine has answered, or the page says that it does not start.
const started = `new Promise((done) => {
  const look = () => document.getElementById("starting").hidden ? done() : requestAnimationFrame(look);
  look();
})`

// newFolder returns a folder with the sources of the page.
func newFolder(t *testing.T) string {
	t.Helper()
	from, err := pageFolder(t.Context())
	require.NoError(t, err)
	folder := t.TempDir()
	for _, name := range pageFiles {
		text, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	return folder
}

// open opens the page with the engine.
func open(t *testing.T, b *chromium.Browser, url string) *chromium.Page {
	t.Helper()
	p := b.NewPage(t)
	p.Open(url)
	p.Eval(nil, started)
	var problem string
	p.Eval(&problem, `document.getElementById("problem").hidden ? "" : document.getElementById("problem").textContent`)
	require.Empty(t, problem)
	return p
}

// calm requires that the console is empty, and that nothing came from elsewhere.
func calm(t *testing.T, p *chromium.Page, from string) {
	t.Helper()
	require.Empty(t, p.Problems())
	for _, url := range p.URLs() {
		require.True(t, strings.HasPrefix(url, from) || strings.HasPrefix(url, "data:"), url)
	}
	require.GreaterOrEqual(t, len(p.URLs()), 4)
}

func texts(t *testing.T, p *chromium.Page, selector string) (texts []string) {
	t.Helper()
	p.Eval(&texts, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((e) => e.textContent)`, selector))
	return texts
}

// set gives controls values, as a reader would who moves them one after the other.
func set(t *testing.T, p *chromium.Page, values map[string]any) {
	t.Helper()
	for id, value := range values {
		var got string
		p.Eval(&got, fmt.Sprintf(`(() => {
  const e = document.getElementById(%q);
  e.value = %q;
  e.dispatchEvent(new Event("input", {bubbles: true}));
  return e.value;
})()`, id, fmt.Sprint(value)))
		require.Equal(t, fmt.Sprint(value), got, id)
	}
	p.Eval(nil, frames)
}

var names = []string{"TokenBucket", "LeakyBucket", "FixedWindow", "SlidingWindowCounter", "SlidingWindowLog"}

// TestPage builds the page, and uses it in a browser.
func TestPage(t *testing.T) {
	if testing.Short() {
		t.Skip("the engine takes long to compile")
	}
	b := chromium.Start(t)
	folder := newFolder(t)

	t.Run("without the engine", func(t *testing.T) {
		p := b.NewPage(t)
		p.Open("file://" + folder + "/index.html")
		p.Eval(nil, started)
		require.Contains(t, texts(t, p, "#problem")[0], "go run ./cmd/ratelimit/internal/buildplayground")
	})

	built, err := build(t.Context(), folder)
	require.NoError(t, err)
	t.Logf("%s has %d bytes, the engine %d, compressed %d", scriptName, built.script, built.wasm, built.compressed)
	server := httptest.NewServer(http.FileServer(http.Dir(folder)))
	t.Cleanup(server.Close)
	file := "file://" + folder + "/"

	t.Run("an old browser", func(t *testing.T) {
		p := b.NewPage(t)
		p.Call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": "delete globalThis.DecompressionStream"})
		p.Open(file + "index.html")
		p.Eval(nil, started)
		require.Equal(t, "The engine does not start: DecompressionStream is not defined", texts(t, p, "#problem:not([hidden])")[0])
	})
	t.Run("errors", func(t *testing.T) { engineFails(t, open(t, b, file+"index.html")) })
	for _, from := range []string{file, server.URL + "/"} {
		t.Run(strings.Split(from, ":")[0], func(t *testing.T) {
			p := open(t, b, from+"index.html")
			require.Equal(t, names, texts(t, p, "#numbers th"))
			require.Len(t, texts(t, p, "#pictures figure svg"), 5)
			sliderMoves(t, p)
			calm(t, p, from)
		})
	}
	t.Run("same as natively", func(t *testing.T) { sameAsNatively(t, open(t, b, file+"index.html")) })
	t.Run("all settings", func(t *testing.T) { allSettings(t, open(t, b, file+"index.html")) })
	t.Run("config", func(t *testing.T) { configs(t, open(t, b, file+"index.html")) })
	t.Run("address", func(t *testing.T) { address(t, b, file+"index.html") })
	t.Run("keyboard and names", func(t *testing.T) { keyboard(t, open(t, b, file+"index.html")) })
	t.Run("layout", func(t *testing.T) { layout(t, open(t, b, server.URL+"/index.html")) })
}

// sliderMoves moves a slider by the keyboard, and requires that all pictures change, and back again.
func sliderMoves(t *testing.T, p *chromium.Page) {
	before, about := texts(t, p, "#pictures figure"), texts(t, p, "#about")
	pictures := func() (all []string) {
		p.Eval(&all, `[...document.querySelectorAll("#pictures svg")].map((e) => e.outerHTML)`)
		return all
	}
	drawn := pictures()
	p.Eval(nil, `document.getElementById("requests").focus()`)
	p.Key("ArrowRight", 39)
	p.Eval(nil, frames)
	require.Equal(t, "21", texts(t, p, `output[for="requests"]`)[0])
	require.NotEqual(t, about, texts(t, p, "#about"))
	for i, picture := range pictures() {
		require.NotEqual(t, drawn[i], picture, names[i])
		require.Contains(t, picture, "21/m", names[i])
	}
	require.NotEqual(t, before, texts(t, p, "#pictures figure"))
	require.Equal(t, texts(t, p, "#numbers td:nth-of-type(2)"), texts(t, p, "#strip b"))
	p.Key("ArrowLeft", 37)
	p.Eval(nil, frames)
	require.Equal(t, drawn, pictures(), "the same settings draw the same")
}

// engineFails requires that an error of the engine is shown, until it answers again.
func engineFails(t *testing.T, p *chromium.Page) {
	p.Eval(nil, `globalThis.whole = ratelimitEngine.run; ratelimitEngine.run = () => '{"error":"no"}'`)
	set(t, p, map[string]any{"load": 50})
	require.Equal(t, []string{"no"}, texts(t, p, "#problem:not([hidden])"))
	set(t, p, map[string]any{"load": 100})
	require.Empty(t, texts(t, p, "#problem:not([hidden])"), "these settings are shown")
	p.Eval(nil, `ratelimitEngine.run = () => { throw new Error("it has ended"); }`)
	set(t, p, map[string]any{"load": 60})
	require.Equal(t, []string{"The engine has failed: it has ended. Load the page again."}, texts(t, p, "#problem:not([hidden])"))
	p.Eval(nil, `ratelimitEngine.run = whole`)
	set(t, p, map[string]any{"load": 70})
	require.Empty(t, texts(t, p, "#problem:not([hidden])"))
}

// sameAsNatively compares what the engine in the browser answers with what this process does.
func sameAsNatively(t *testing.T, p *chromium.Page) {
	for i, shape := range playground.Shapes() {
		for j, retry := range playground.Retries() {
			s := playground.Settings{
				Requests: 7 + 31*j, Per: playground.Pers()[(i+j)%4], Burst: 1 + 40*j, Shape: shape, Load: 30 + 100*(i%3), Retry: retry,
				Seed: uint64(i), Width: 240 + 60*i,
			}
			v, err := playground.Run(s)
			require.NoError(t, err)
			want, err := json.Marshal(v)
			require.NoError(t, err)
			asked, err := json.Marshal(s)
			require.NoError(t, err)
			var got string
			p.Eval(&got, fmt.Sprintf(`ratelimitEngine.run(%q)`, asked))
			require.Equal(t, string(want), got, "%s", asked)
		}
	}
	for asked, want := range map[string]string{
		`{"requests":0}`: "requests is 0: must be from 1 to 100\\nper is 0: must be one of 1, 10, 60, 3600\\nburst is 0",
		`{"x":1}`:        `unknown field \"x\"`,
		`{`:              "unexpected EOF",
		``:               "EOF",
	} {
		var got string
		p.Eval(&got, fmt.Sprintf(`ratelimitEngine.run(%q)`, asked))
		require.Contains(t, got, `{"error":"`)
		require.Contains(t, got, want)
	}
}

// allSettings sets each control to the ends of its range, and to each of its options. The engine accepts
// them all, and the options are all that it has.
func allSettings(t *testing.T, p *chromium.Page) {
	var values map[string][]string
	p.Eval(&values, `Object.fromEntries([...document.querySelectorAll("#settings input, #settings select")].map((e) =>
  [e.id, e.options ? [...e.options].map((o) => o.value) : [e.min, e.max]]))`)
	require.Len(t, values, 7)
	strs := func(s any) []string { return strings.Fields(strings.Trim(fmt.Sprint(s), "[]")) }
	require.ElementsMatch(t, strs(playground.Shapes()), values["shape"])
	require.ElementsMatch(t, strs(playground.Retries()), values["retry"])
	require.ElementsMatch(t, strs(playground.Pers()), values["per"])
	require.Equal(t, []string{"1", strconv.Itoa(playground.MaxRequests)}, values["requests"])
	require.Equal(t, []string{"1", strconv.Itoa(playground.MaxRequests)}, values["burst"])
	require.Equal(t, []string{strconv.Itoa(playground.MinLoad), strconv.Itoa(playground.MaxLoad)}, values["load"])
	for id, all := range values {
		for _, value := range all {
			set(t, p, map[string]any{id: value})
			var shown bool
			p.Eval(&shown, `document.getElementById("problem").hidden`)
			require.True(t, shown, "%s=%s: %v", id, value, texts(t, p, "#problem"))
		}
	}
	var first, slowest float64
	const took = `(requests, burst, shape, load, retry) => {
  const from = performance.now();
  ratelimitEngine.run(JSON.stringify({requests, per: 60, burst, shape, load, retry, seed: 1, width: 320}));
  return performance.now() - from;
}`
	p.Eval(&first, `(`+took+`)(20, 10, "edge", 100, "none")`)
	p.Eval(&slowest, `Math.max(...[...document.getElementById("shape").options].map((o) => (`+took+`)(100, 100, o.value, 300, "ignore")))`)
	t.Logf("the first settings take the engine %.0f ms, the slowest ones %.0f ms", first, slowest)
	require.Empty(t, p.Problems())
}

// configs requires that the config that is shown is that of the settings, and that configfile accepts it.
func configs(t *testing.T, p *chromium.Page) {
	for _, row := range []struct {
		values map[string]any
		rate   ratelimit.Rate
	}{
		{map[string]any{"requests": 20, "per": 60, "burst": 10}, ratelimit.PerMinute(20).WithBurst(10)},
		{map[string]any{"requests": 1, "per": 1, "burst": 100}, ratelimit.PerSecond(1).WithBurst(100)},
		{map[string]any{"requests": 100, "per": 10, "burst": 1}, ratelimit.Rate{Requests: 100, Per: 10e9, Burst: 1}},
		{map[string]any{"requests": 33, "per": 3600, "burst": 33}, ratelimit.PerHour(33).WithBurst(33)},
	} {
		set(t, p, row.values)
		require.Contains(t, texts(t, p, "#config")[0], ratelimit.Rate{Requests: row.rate.Requests, Per: row.rate.Per}.String(),
			"it follows the sliders")
		require.Equal(t, names, texts(t, p, "#algorithm option"))
		for i, name := range names {
			set(t, p, map[string]any{"algorithm": name})
			f, err := configfile.Parse("shown", []byte(texts(t, p, "#config")[0]))
			require.NoError(t, err)
			l, err := f.New()
			require.NoError(t, err)
			rules, byDefault := l.Rules()
			require.Nil(t, byDefault)
			require.Len(t, rules, 1)
			want := row.rate
			if i > 1 {
				want.Burst = 0
			}
			require.Equal(t, want, rules[0].Rate)
			require.Equal(t, name, string(rules[0].Algorithm))
		}
	}
	var selected string
	p.Call("Browser.grantPermissions", map[string]any{"permissions": []string{"clipboardReadWrite", "clipboardSanitizedWrite"}})
	p.Eval(&selected, `(async () => {
  document.getElementById("copy").click();
  await `+frames+`;
  return getSelection().toString();
})()`)
	require.JSONEq(t, texts(t, p, "#config")[0], selected, "it is selected, also where the clipboard is not allowed")
	p.Eval(nil, `new Promise((done) => {
  const look = () => document.getElementById("copied").textContent ? done() : requestAnimationFrame(look);
  look();
})`)
	require.Empty(t, p.Problems())
}

// address requires that the settings are kept in the address, and that nonsense in it does no harm.
func address(t *testing.T, b *chromium.Browser, url string) {
	p := open(t, b, url+"#requests=7&per=3600&shape=poisson&retry=ignore&seed=9&load=250&burst=3")
	require.Contains(t, texts(t, p, "#about")[0], "18 requests every 1h on average, at random. It sends a denied request again after 30m, "+
		"until it is granted.")
	require.Contains(t, texts(t, p, "#pictures svg")[0], "7/h burst 3")
	set(t, p, map[string]any{"requests": 8})
	var hash, said string
	p.Eval(nil, `new Promise((done) => {
  const look = () => document.getElementById("summary").textContent.includes("20 requests") ? done() : requestAnimationFrame(look);
  look();
})`)
	p.Eval(&hash, `location.hash`)
	require.Equal(t, "#requests=8&per=3600&burst=3&load=250&seed=9&shape=poisson&retry=ignore", hash)
	p.Eval(&said, `document.getElementById("summary").textContent`)
	for _, name := range names {
		require.Contains(t, said, name)
	}
	p.Eval(nil, `location.hash = "#requests=30"`)
	p.Eval(nil, frames)
	require.Contains(t, texts(t, p, "#about")[0], "75 requests")
	for _, bad := range []string{"requests=-5&per=7&burst=1e9&shape=<b>&retry=obey&seed=x&load=NaN", "%", "view=1&problem=2&__proto__=3",
		strings.Repeat("requests=", 10_000)} {
		p := open(t, b, url+"#"+bad)
		require.Equal(t, "One client sends 20 requests just before each end of a window, and as many right after it. It gives up a request "+
			"that is denied.", texts(t, p, "#about")[0], bad)
		require.Empty(t, p.Problems())
	}
}

// keyboard requires that Tab reaches each control in the order in which they stand, and that each has a
// name and a value that a screen reader says.
func keyboard(t *testing.T, p *chromium.Page) {
	set(t, p, map[string]any{"shape": "poisson"})
	var reached []string
	p.Eval(nil, `document.activeElement.blur()`)
	for range 10 {
		p.Key("Tab", 9)
		var id string
		p.Eval(&id, `document.activeElement.id`)
		reached = append(reached, id)
	}
	require.Equal(t, []string{"requests", "per", "burst", "shape", "load", "retry", "seed", "algorithm", "copy", "config"}, reached)
	var unnamed []string
	p.Eval(&unnamed, `[...document.querySelectorAll("input, select")]
  .filter((e) => !e.labels.length || !e.labels[0].textContent.trim()).map((e) => e.id)`)
	require.Empty(t, unnamed)
	var spoken string
	p.Eval(&spoken, `document.getElementById("load").getAttribute("aria-valuetext")`)
	require.Equal(t, "100%", spoken)
	var described int
	p.Eval(&described, `[...document.querySelectorAll("#pictures svg[role=img]")].filter((e) =>
  e.getAttribute("aria-labelledby").split(" ").every((id) => document.querySelectorAll("#" + id).length === 1)).length`)
	require.Equal(t, 5, described, "pictures that have a title and a description")
	require.Len(t, texts(t, p, `#summary[aria-live="polite"]`), 1)
}

// layout requires that nothing is wider than the page. RATELIMIT_SCREENSHOTS names a folder to which
// it writes pictures of the page.
func layout(t *testing.T, p *chromium.Page) {
	shots := os.Getenv("RATELIMIT_SCREENSHOTS")
	for _, width := range []int{320, 390, 560, 800, 1080, 1400} {
		for i, dark := range []bool{false, true} {
			p.Resize(width, 844, dark)
			p.Eval(nil, frames)
			picturesFit(t, p, width)
			set(t, p, [...]map[string]any{
				{"requests": 20, "per": 60, "burst": 10, "load": 100, "shape": "edge", "retry": "none"},
				{"requests": 100, "per": 10, "burst": 100, "load": 300, "shape": "poisson", "retry": "ignore"},
			}[i])
			var wide []string
			p.Eval(&wide, `[...document.querySelectorAll("body *")].filter((e) => {
  const r = e.getBoundingClientRect();
  return r.width > 0 && (r.left < -0.5 || r.right > document.documentElement.clientWidth + 0.5 ||
    (e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1 && !e.closest("svg")));
}).map((e) => e.outerHTML.slice(0, 100))`)
			require.Empty(t, wide, "%d px", width)
			var sideways bool
			p.Eval(&sideways, `document.documentElement.scrollWidth > document.documentElement.clientWidth ||
  document.body.scrollWidth > document.body.clientWidth`)
			require.False(t, sideways, "%d px", width)
			picturesFit(t, p, width)
			var svgs []string
			p.Eval(&svgs, `[...document.querySelectorAll("#pictures svg")].map((e) => new XMLSerializer().serializeToString(e))`)
			for _, svg := range svgs {
				require.Empty(t, charttest.Problems([]byte(svg)), "%d px", width)
			}
			var cut []string
			p.Eval(&cut, `[...document.querySelectorAll("select")].filter((e) => {
  const has = e.getBoundingClientRect().width;
  e.style.flex = "none";
  const needs = e.getBoundingClientRect().width;
  e.style.flex = "";
  return needs > has + 0.5;
}).map((e) => e.id)`)
			require.Empty(t, cut, "%d px: the longest option is cut", width)
			var strip bool
			p.Eval(&strip, `document.getElementById("strip").getBoundingClientRect().bottom === innerHeight`)
			require.Equal(t, width < 560, strip, "%d px: a phone shows what is granted beside the sliders", width)
			if shots != "" && slices.Contains([]int{390, 800, 1400}, width) {
				name := fmt.Sprintf("%d-%s", width, [...]string{"light", "dark"}[i])
				p.Screenshot(filepath.Join(shots, name+".png"), true)
				p.Screenshot(filepath.Join(shots, name+"-top.png"), false)
			}
		}
	}
	require.Empty(t, p.Problems())
}

// picturesFit requires that pictures are shown as large as they were drawn, so that their texts have their
// size. The room of a column may have a part of a pixel more.
func picturesFit(t *testing.T, p *chromium.Page, width int) {
	t.Helper()
	var more []float64
	p.Eval(&more, `[...document.querySelectorAll("#pictures svg")].map((e) => e.getBoundingClientRect().width - e.getAttribute("width"))`)
	require.Len(t, more, 5)
	for _, m := range more {
		require.True(t, m >= 0 && m < 1, "%d px: a picture is %v px wider than it was drawn", width, m)
	}
}

func TestBadCalls(t *testing.T) {
	require.EqualError(t, run(t.Context(), []string{"x"}), `"x" is one argument too many`)
	_, err := goCommand(t.Context(), "build", "no/such/package")
	require.ErrorContains(t, err, "go build no/such/package: ")
	require.ErrorContains(t, err, "no/such/package is not in std")
}
