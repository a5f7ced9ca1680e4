// Command pictures draws the pictures in the documentation. It sends requests to the limiter of this
// repository, so that a picture shows what the code does. Run it in the folder cmd/ratelimit:
//
//	go run ./internal/pictures ../../docs/pictures
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pictures FOLDER")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

// drawAll writes all pictures to files in a folder.
func drawAll(folder string) error {
	for name, draw := range pictures {
		figure, err := draw()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var b bytes.Buffer
		if err := figure.WriteSVG(&b); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
