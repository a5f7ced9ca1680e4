package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// rootPath is the path of the root module. The path of each other module is rootPath, a slash and its folder.
const rootPath = "github.com/ratelimit-go/ratelimit"

// unpublished has the folders of modules that only this repository uses. They have no versions and no
// tags.
var unpublished = map[string]bool{
	"bench":               true,
	"examples/grpc":       true,
	"examples/httpserver": true,
	"examples/llmgateway": true,
	"examples/recipes":    true,
	"examples/redis":      true,
	"examples/sqlite":     true,
	"internal/release":    true,
	"internal/verify":     true,
}

// The type published describes a module that users install. Its version is the one that the other modules of
// the repository require.
type published struct {
	module.Version
	dir string // folder of the module, "." for the root
}

// tag returns the git tag that publishes m, such as "v0.1.0" for the root module, or "redisstore/v0.1.0" for the
// module in the folder redisstore.
func (m published) tag() string { return path.Join(m.dir, m.Version.Version) }

// publishedModules returns those modules in go.work that users install, the root first. A module has the version
// that other modules require. If no module requires it, it has the version of the root, because all modules are
// released with the same version number.
func publishedModules(root string) ([]published, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.work"))
	if err != nil {
		return nil, err
	}
	work, err := modfile.ParseWork("go.work", text, nil)
	if err != nil {
		return nil, err
	}
	var modules []published
	required := make(map[string]string) // the required versions, by the path of the module
	for _, use := range work.Use {
		dir := path.Clean(use.Path)
		name := path.Join(dir, "go.mod")
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(name, text, nil)
		if err != nil {
			return nil, err
		}
		if want := path.Join(rootPath, dir); file.Module.Mod.Path != want {
			return nil, fmt.Errorf("%s: the module is %s, not %s", name, file.Module.Mod.Path, want)
		}
		if !unpublished[dir] {
			if len(file.Replace) > 0 {
				return nil, fmt.Errorf("%s has replace directives: go install refuses the programs of such a module", name)
			}
			modules = append(modules, published{module.Version{Path: file.Module.Mod.Path}, dir})
		}
		for _, r := range file.Require {
			if r.Mod.Path != rootPath && !strings.HasPrefix(r.Mod.Path, rootPath+"/") {
				continue
			}
			if other := required[r.Mod.Path]; other != "" && other != r.Mod.Version {
				return nil, fmt.Errorf("%s requires %s, another module %s", name, r.Mod, other)
			}
			required[r.Mod.Path] = r.Mod.Version
		}
	}
	for i := range modules {
		m := &modules[i]
		m.Version.Version = required[m.Path]
		delete(required, m.Path)
		if m.Version.Version == "" {
			m.Version.Version = modules[0].Version.Version
		}
		if v := m.Version.Version; v == "" || v == "v0.0.0" {
			return nil, fmt.Errorf("no go.mod file requires a version of %s", m.Path)
		}
	}
	for path, version := range required {
		return nil, fmt.Errorf("%s is required at %s, but is not published", path, version)
	}
	return modules, nil
}

// pack writes the files of m to the folder proxy, which is laid out as "go help goproxy" describes.
func (m published) pack(root, proxy string) error {
	mod, err := os.ReadFile(filepath.Join(root, m.dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": m.Version.Version, "Time": time.Now().UTC()})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	subdir := strings.TrimPrefix(m.dir, ".")
	if err := zip.CreateFromVCS(&packed, m.Version, root, "HEAD", subdir); err != nil {
		return err
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	dir := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string][]byte{
		"list":                      []byte(m.Version.Version + "\n"),
		m.Version.Version + ".info": info,
		m.Version.Version + ".mod":  mod,
		m.Version.Version + ".zip":  packed.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
