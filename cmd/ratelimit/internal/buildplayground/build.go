package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// enginePath is the import path of the engine: the Go program that the page docs/playground runs, as WebAssembly.
const enginePath = "github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/playground/wasm"

// scriptName is the name of the file that the function build writes. The file is not committed.
const scriptName = "engine.js"

// The type built has the path of the file that the function build wrote, and the sizes of the parts of this
// file.
type built struct {
	path                     string
	script, wasm, compressed int // sizes in bytes: the whole file, the WebAssembly, and the WebAssembly when compressed
}

// goCommand runs the go command with WebAssembly as its target, and returns what the command prints.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := cmd.Output()
	if err != nil {
		text := err.Error()
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			text = strings.TrimSpace(string(failed.Stderr))
		}
		return "", fmt.Errorf("go %s: %s", strings.Join(args, " "), text)
	}
	return strings.TrimSpace(string(out)), nil
}

// pageFolder returns the path of docs/playground, the folder of the page of the playground.
func pageFolder(ctx context.Context) (string, error) {
	dir, err := goCommand(ctx, "list", "-f", "{{.Module.Dir}}", enginePath)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(dir, "..", "..", "docs", "playground")
	if _, err := os.Stat(filepath.Join(folder, "index.html")); err != nil {
		return "", fmt.Errorf("the page is not beside the module %s: %w", dir, err)
	}
	return folder, nil
}

// build compiles the engine of the playground, and writes it to a folder. The same code and version of Go always
// give the same bytes.
func build(ctx context.Context, folder string) (*built, error) {
	tmp, err := os.MkdirTemp("", "playground")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	file := filepath.Join(tmp, "engine.wasm")
	if _, err := goCommand(ctx, "build", "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-o", file, enginePath); err != nil {
		return nil, err
	}
	engine, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	root, err := goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	starter, err := os.ReadFile(filepath.Join(root, "lib", "wasm", "wasm_exec.js")) // part of the Go version that compiles the engine
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(engine); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	var script bytes.Buffer
	fmt.Fprintf(&script, "// Built by go run ./cmd/ratelimit/internal/buildplayground. Do not edit.\n%s\nglobalThis.ratelimitWasm = \"%s\";\n",
		bytes.TrimSpace(starter), base64.StdEncoding.EncodeToString(packed.Bytes()))
	b := &built{filepath.Join(folder, scriptName), script.Len(), len(engine), packed.Len()}
	// Write to a temporary file and rename it, because a browser may be reading the existing file.
	whole := filepath.Join(folder, "."+scriptName)
	if err := os.WriteFile(whole, script.Bytes(), 0o644); err != nil {
		return nil, err
	}
	if err := os.Rename(whole, b.path); err != nil {
		_ = os.Remove(whole)
		return nil, err
	}
	return b, nil
}
