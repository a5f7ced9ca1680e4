package main

import (
	"fmt"
	"os"
	"strings"
)

// marks returns two lines that stand before and after a text in a file. Both contain the given name
// of the text.
func marks(name string) (begin, end string) {
	return "<!-- " + name + " -->\n", "<!-- end of " + name + " -->\n"
}

// replaceBetween returns the page with the given text between the two marks of the given name. The
// marks are lines, and the text replaces everything that stood between them.
func replaceBetween(page, name, text string) (string, error) {
	begin, end := marks(name)
	before, rest, ok := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("has no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}

// hasMarkers returns an error if the file lacks the marks of the given name. If the file name is
// empty, there is no file and no error. The command calls hasMarkers before it measures anything.
// Otherwise it could measure for minutes and then fail to write.
func hasMarkers(file, name string) error {
	return rewrite(file, func(page string) (string, error) {
		_, err := replaceBetween(page, name, "")
		return page, err
	})
}

// The function named "between" writes the text into the file, between the two marks of the given name.
// If the file name is empty, it does nothing.
func between(file, name, text string) error {
	return rewrite(file, func(page string) (string, error) { return replaceBetween(page, name, text) })
}

// rewrite calls the function change with the content of the file, and writes the result to the file
// if it differs. If the file name is empty, rewrite does nothing.
func rewrite(file string, change func(page string) (string, error)) error {
	if file == "" {
		return nil
	}
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := change(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if changed == string(page) {
		return nil
	}
	return os.WriteFile(file, []byte(changed), 0o644)
}
