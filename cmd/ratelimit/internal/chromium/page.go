package chromium

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// A Page is a tab of a Browser. If a method fails, the test fails.
type Page struct {
	t       testing.TB
	browser *Browser
	session string

	mu       sync.Mutex
	problems []string // the messages that the method Problems returns; guarded by the field mu
	urls     []string // the URLs that the method URLs returns; guarded by the field mu
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

// Call calls a method of the DevTools protocol, and ignores its result.
func (p *Page) Call(method string, params map[string]any) {
	p.t.Helper()
	p.result(nil, method, params)
}

// The method result calls a method of the DevTools protocol, and decodes the answer into the variable to which target
// points. If target is nil, the answer is ignored.
func (p *Page) result(target any, method string, params map[string]any) {
	p.t.Helper()
	of := p
	if p.session == "" {
		of = nil
	}
	text, err := p.browser.call(of, method, params)
	if err == nil && target != nil {
		err = json.Unmarshal(text, target)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// note records the problem or the URL that the event m reports.
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
		return // an event whose parameters have other types is ignored
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

// Problems returns all messages that the page and the browser have written to the console, and all uncaught
// exceptions.
func (p *Page) Problems() []string {
	p.Eval(nil, `1`) // this call waits until the browser has sent all earlier events
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// URLs returns the URLs that the page has requested.
func (p *Page) URLs() []string {
	p.Eval(nil, `1`)
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.urls...)
}

// Open opens a URL, and waits until the page and its scripts are loaded.
func (p *Page) Open(url string) {
	p.t.Helper()
	var got struct{ ErrorText string }
	p.result(&got, "Page.navigate", map[string]any{"url": url})
	if got.ErrorText != "" {
		p.t.Fatalf("%s: %s", url, got.ErrorText)
	}
	p.Eval(nil, `new Promise((done) => document.readyState === "complete" ? done() : addEventListener("load", done))`)
}

// Eval evaluates JavaScript. It decodes the result into value, unless value is nil. If the result is a promise,
// Eval waits for the promise.
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

// Key presses and releases a key of the keyboard, such as "ArrowRight" or "Tab". The argument code is the virtual
// key code of this key.
func (p *Page) Key(name string, code int) {
	p.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		p.Call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code})
	}
}

// Resize sets the width and height of the page in pixels, and whether the page prefers dark colours. A page less
// than 600 pixels wide behaves as on a phone.
func (p *Page) Resize(width, height int, dark bool) {
	p.t.Helper()
	p.Call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
	})
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	p.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
	p.Eval(nil, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`)
}

// Screenshot writes a picture to the file at path. If whole is true, the picture shows the whole page. Otherwise it
// shows only the visible part of the page.
func (p *Page) Screenshot(path string, whole bool) {
	p.t.Helper()
	params := map[string]any{}
	if whole {
		var metrics struct {
			CSSContentSize struct{ Width, Height float64 }
		}
		p.result(&metrics, "Page.getLayoutMetrics", nil)
		params["captureBeyondViewport"] = true
		size := metrics.CSSContentSize
		params["clip"] = map[string]any{"x": 0, "y": 0, "width": size.Width, "height": size.Height, "scale": 1}
	}
	var shot struct{ Data []byte }
	p.result(&shot, "Page.captureScreenshot", params)
	if err := os.WriteFile(path, shot.Data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}
