// Command buildplayground builds the engine of the page in docs/playground from the code in the work tree:
//
//	go run ./cmd/ratelimit/internal/buildplayground
//
// It writes docs/playground/engine.js. This file has the engine as WebAssembly, and a script from the Go
// distribution, which starts the engine. The page then needs no file outside its folder, and no web server.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "buildplayground:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("buildplayground", flag.ExitOnError)
	folder := fs.String("o", "", "`folder` to write to (default docs/playground of the repository)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q is one argument too many", fs.Arg(0))
	}
	if *folder == "" {
		page, err := pageFolder(ctx)
		if err != nil {
			return err
		}
		*folder = page
	}
	b, err := build(ctx, *folder)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes; the engine in it %d, compressed %d\nOpen %s in a browser.\n",
		b.path, b.script, b.wasm, b.compressed, filepath.Join(*folder, "index.html"))
	return nil
}
