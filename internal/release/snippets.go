package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	readme      = "README.md"
	examplesDir = "examples"
)

// copyExamples copies the programs in the folder examples to dir, without their tests and go.mod files. It
// returns their folders, relative to dir.
func copyExamples(root, dir string) (dirs []string, err error) {
	files, err := git(root, "ls-files", examplesDir)
	if err != nil {
		return nil, err
	}
	for file := range strings.Lines(files) {
		file = strings.TrimSpace(file)
		switch base := path.Base(file); {
		case strings.HasSuffix(base, "_test.go"), base == "go.mod", base == "go.sum":
			continue
		case base == "main.go":
			dirs = append(dirs, path.Dir(file))
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		if err := write(filepath.Join(dir, file), text); err != nil {
			return nil, err
		}
	}
	if len(dirs) == 0 {
		return nil, errors.New("no program below " + examplesDir)
	}
	return dirs, nil
}

// writeSnippets writes code for the Go snippets of README.md to a folder in dir, where it can be compiled. For each
// snippet, writeSnippets finds a Go file that contains the lines of the snippet, and writes these parts of it:
//
//   - the declarations that have these lines
//   - the tests and examples that use one of these declarations
//   - all other declarations of the package that the first two need to compile
//
// It searches only files that a user could have written, see userPackages. If the file is an example program, it
// writes nothing, because copyExamples copies example programs whole.
func writeSnippets(root, dir string) error {
	text, err := os.ReadFile(filepath.Join(root, readme))
	if err != nil {
		return err
	}
	packages, err := userPackages(root)
	if err != nil {
		return err
	}
	snippets := strings.Split(string(text), "```go\n")[1:]
	if len(snippets) == 0 {
		return errors.New(readme + " has no Go snippet")
	}
	for _, snippet := range snippets {
		snippet, _, _ = strings.Cut(snippet, "```")
		found := slices.ContainsFunc(packages, func(p *sourcePackage) bool { return p.keepSnippet(trimmedLines(snippet)) })
		if !found {
			return fmt.Errorf("%s: no example and no test from outside of its package has these lines:\n%s", readme, snippet)
		}
	}
	for _, p := range packages {
		if p.name == "main" {
			continue
		}
		if err := p.write(filepath.Join(dir, "snippets", p.dir)); err != nil {
			return err
		}
	}
	return nil
}

// trimmedLines returns the lines of text, each without leading and trailing white space.
func trimmedLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// write writes a file, and creates its folder if there is none.
func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}
