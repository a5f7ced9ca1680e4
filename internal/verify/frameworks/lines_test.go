package frameworks

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// registers matches a line that registers a handler at a route.
var registers = regexp.MustCompile(`^\t\w+\.(GET|POST|Get|Post|Handle)\(.*, (connect\.NewUnaryHandler\(.*\)|\w+)\)$`)

// TestServiceLines counts the lines of the service with plans, a stricter login, a global limit and a proxy, which the
// Example of each package runs: without the lines that register the handlers, it must have fewer than 25.
func TestServiceLines(t *testing.T) {
	body := regexp.MustCompile(`(?s)\nfunc newShop\(\) \([^\n]*\n(.*?)\n}\n`)
	for _, dir := range []string{"ginlimit", "echolimit", "echolimit/echo4", "fiberlimit", "connectlimit"} {
		text, err := os.ReadFile(filepath.Join("../../..", dir, "example_test.go"))
		require.NoError(t, err)
		found := body.FindSubmatch(text)
		require.NotNil(t, found, "%s has no newShop", dir)
		own, handlers := 0, 0
		for line := range bytes.SplitSeq(found[1], []byte("\n")) {
			if registers.Match(line) {
				handlers++
			} else {
				own++
			}
		}
		assert.GreaterOrEqual(t, handlers, 3, dir)
		assert.Less(t, own, 25, dir)
		t.Logf("%s: %d lines beside those of %d handlers", dir, own, handlers)
	}
}
