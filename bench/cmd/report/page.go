package main

import (
	"fmt"
	"os"
	"strings"
)

// marks returns the two lines of a file that mark the beginning and the end of the text with the given name.
func marks(name string) (begin, end string) {
	return "<!-- " + name + " -->\n", "<!-- end of " + name + " -->\n"
}

// replaceBetween returns the page with the given text in place of everything between the two marks
// of the given name.
func replaceBetween(page, name, text string) (string, error) {
	begin, end := marks(name)
	before, rest, ok := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", fmt.Errorf("has no lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + after, nil
}

// hasMarkers returns an error if the file lacks the marks of the given name. It accepts an empty
// file name, which means that there is no file. The command calls hasMarkers before it measures
// anything, so that it does not measure for minutes and then fail to write.
func hasMarkers(file, name string) error {
	return rewrite(file, func(page string) (string, error) {
		_, err := replaceBetween(page, name, "")
		return page, err
	})
}

// between writes the text into the file, between the marks of the given name. It does nothing if
// the file name is empty.
func between(file, name, text string) error {
	return rewrite(file, func(page string) (string, error) { return replaceBetween(page, name, text) })
}

// rewrite replaces the content of the file with the result of the function change, if the result
// differs. It does nothing if the file name is empty.
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
