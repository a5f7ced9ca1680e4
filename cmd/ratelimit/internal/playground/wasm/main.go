//go:build js && wasm

// Command wasm is the engine of the page in docs/playground. It defines a JavaScript object with the name
// ratelimitEngine, and then calls the page's function ratelimitReady. The object has a property named "style",
// which is the style sheet of the pictures, and a function named "run". That function takes the settings as JSON.
// It returns the view as JSON or, if it fails, an object with the error.
package main

import (
	"encoding/json"
	"strings"
	"syscall/js"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/playground"
)

func main() {
	js.Global().Set("ratelimitEngine", map[string]any{
		"style": chart.Style(),
		"run": js.FuncOf(func(_ js.Value, args []js.Value) any {
			text, err := run(args)
			if err != nil {
				text, _ = json.Marshal(map[string]string{"error": err.Error()}) // encoding a string never fails
			}
			return string(text)
		}),
	})
	js.Global().Call("ratelimitReady")
	select {} // waits until the page is closed
}

func run(args []js.Value) ([]byte, error) {
	text := ""
	if len(args) > 0 {
		text = args[0].String()
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	var s playground.Settings
	if err := d.Decode(&s); err != nil {
		return nil, err
	}
	v, err := playground.Run(s)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
