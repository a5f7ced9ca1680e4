package chromium

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// A Page is a tab of a Browser. If the browser does not do what a method says, the test fails.
type Page struct {
	t       testing.TB
	browser *Browser
	session string

	mu       sync.Mutex
	problems []string // see Problems; guarded by mu
	urls     []string // see URLs; guarded by mu
}

// NewPage opens an empty page.
func (b *Browser) NewPage(t testing.TB) *Page {
	t.Helper()
	p := &Page{t: t, browser: b}
	var target struct{ TargetID string }
	p.result(&target, "Target.createTarget", map[string]any{"url": "about:blank"})
	var attached struct{ SessionID string }
	p.result(&attached, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true})
	b.mu.Lock()
	p.session = attached.SessionID
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.Call(domain+".enable", nil)
	}
	return p
}

// Call calls a method of the protocol.
func (p *Page) Call(method string, params map[string]any) {
	p.t.Helper()
	p.result(nil, method, params)
}

// result calls a method, and reads its result into result if that is not nil.
func (p *Page) result(result any, method string, params map[string]any) {
	p.t.Helper()
	of := p
	if p.session == "" {
		of = nil
	}
	text, err := p.browser.call(of, method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(text, result)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// note keeps what an event tells of.
func (p *Page) note(m message) {
	var e struct {
		Type string
		Args []struct {
			Value       any
			Description string
		}
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Request struct{ URL string }
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return // it is none of these
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Runtime.consoleAPICalled":
		texts := []string{"console." + e.Type}
		for _, a := range e.Args {
			texts = append(texts, strings.TrimPrefix(a.Description+fmt.Sprint(a.Value), "<nil>"))
		}
		p.problems = append(p.problems, strings.Join(texts, " "))
	case "Runtime.exceptionThrown":
		p.problems = append(p.problems, e.ExceptionDetails.Text+" "+e.ExceptionDetails.Exception.Description)
	case "Log.entryAdded":
		p.problems = append(p.problems, e.Entry.Level+": "+e.Entry.Text+" "+e.Entry.URL)
	case "Network.requestWillBeSent":
		p.urls = append(p.urls, e.Request.URL)
	}
}

// Problems returns all that was written to the console, by the page or by the browser, and all
// exceptions that nothing has caught.
func (p *Page) Problems() []string {
	p.Eval(nil, `1`) // after what came before
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// URLs returns the addresses that the page has asked for.
func (p *Page) URLs() []string {
	p.Eval(nil, `1`)
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.urls...)
}

// Open goes to an address, and waits until the page and its scripts are loaded.
func (p *Page) Open(url string) {
	p.t.Helper()
	var got struct{ ErrorText string }
	p.result(&got, "Page.navigate", map[string]any{"url": url})
	if got.ErrorText != "" {
		p.t.Fatalf("%s: %s", url, got.ErrorText)
	}
	p.Eval(nil, `new Promise((done) => document.readyState === "complete" ? done() : addEventListener("load", done))`)
}

// Eval evaluates JavaScript, waits for it if it is a promise, and reads its value into value if that is
// not nil.
func (p *Page) Eval(value any, script string) {
	p.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.result(&got, "Runtime.evaluate", map[string]any{"expression": script, "awaitPromise": true, "returnByValue": true})
	if e := got.ExceptionDetails; e != nil {
		p.t.Fatalf("%s: %s %s", script, e.Text, e.Exception.Description)
	}
	if value == nil {
		return
	}
	if err := json.Unmarshal(got.Result.Value, value); err != nil {
		p.t.Fatalf("%s: %v", script, err)
	}
}

// Key presses a key, such as "ArrowRight" or "Tab", and releases it. Code is its number.
func (p *Page) Key(name string, code int) {
	p.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		p.Call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code})
	}
}

// Resize gives the page a width and a height in pixels, as on a phone if it is narrow, and dark or
// light colours.
func (p *Page) Resize(width, height int, dark bool) {
	p.t.Helper()
	p.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	p.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	p.Eval(nil, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
}

// Screenshot writes a picture to a file: of the whole page, or of what a reader sees of it.
func (p *Page) Screenshot(path string, whole bool) {
	p.t.Helper()
	params := map[string]any{}
	if whole {
		var metrics struct {
			CSSContentSize struct{ Width, Height float64 }
		}
		p.result(&metrics, "Page.getLayoutMetrics", nil)
		params["captureBeyondViewport"] = true
		params["clip"] = map[string]any{"x": 0, "y": 0, "width": metrics.CSSContentSize.Width, "height": metrics.CSSContentSize.Height, "scale": 1}
	}
	var shot struct{ Data []byte }
	p.result(&shot, "Page.captureScreenshot", params)
	if err := os.WriteFile(path, shot.Data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}
