//go:build js && wasm

// Command wasm is the engine of the page in docs/playground. It gives the page the object
// ratelimitEngine, which has the style sheet of the pictures and a function, and calls the page's
// function ratelimitReady. The function takes the settings as JSON, and returns the view as JSON, or an
// object with an error.
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
				text, _ = json.Marshal(map[string]string{"error": err.Error()}) // a text can be encoded
			}
			return string(text)
		}),
	})
	js.Global().Call("ratelimitReady")
	select {} // the page calls run
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
