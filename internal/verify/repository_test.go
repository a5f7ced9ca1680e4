package verify

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLinks requires that each link of a document to a file of this repository leads to a file or a
// directory. It does not look at links to other sites or at the part after "#".
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	links := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" && d.Name() != "llms.txt" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			target := found[1]
			if strings.Contains(target, ":") {
				continue // a URL
			}
			links++
			_, err := os.Stat(filepath.Join(filepath.Dir(path), target))
			assert.NoError(t, err, "%s links to %s", path, target)
		}
		return nil
	}))
	assert.Greater(t, links, 50, "the walk has found the links")
}

// TestDependabot requires that dependabot looks at every module.
func TestDependabot(t *testing.T) {
	work, err := os.ReadFile(filepath.Join(root, "go.work"))
	require.NoError(t, err)
	var modules []string
	for line := range strings.Lines(string(work)) {
		if module, ok := strings.CutPrefix(strings.TrimSpace(line), "."); ok {
			modules = append(modules, "/"+strings.TrimPrefix(module, "/"))
		}
	}
	config, err := os.ReadFile(filepath.Join(root, ".github", "dependabot.yml"))
	require.NoError(t, err)
	var listed []string
	for line := range strings.Lines(string(config)) {
		if module, ok := strings.CutPrefix(strings.TrimSpace(line), "- /"); ok {
			listed = append(listed, "/"+module)
		}
	}
	require.NotEmpty(t, modules)
	slices.Sort(modules)
	slices.Sort(listed)
	assert.Equal(t, modules, listed)
}
