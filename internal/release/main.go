// Command release checks that users can install the modules of this repository. Run it before you tag
// the modules: go run ./internal/release.
//
// First it packs each published module into a module proxy on disk, as the go command would pack the module
// from a tag. The version is the one that the go.mod files require. Then it does what a user would do, in a
// new module outside the repository, with an empty module cache. It gets the modules, builds all their
// packages, installs and runs the program, compiles and tests the Go snippets of README.md, and builds and
// runs the examples. If an example is a server, it sends requests until the server denies one, and then stops
// the server.
//
// It uses the files that git tracks, as they are in the work tree. It runs the example that needs Redis only
// if the environment variable REDIS_URL is set.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println("\nevery published module can be installed")
}

func run(w io.Writer) error {
	tmp, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	root := filepath.Join(tmp, "repository")
	if err := cloneWorkTree(root); err != nil {
		return err
	}
	modules, err := publishedModules(root)
	if err != nil {
		return err
	}
	proxy := filepath.Join(tmp, "proxy")
	for _, m := range modules {
		fmt.Fprintf(w, "packing %s, tag %s\n", m, m.tag())
		if err := m.pack(root, proxy); err != nil {
			return err
		}
	}
	c := consumer{dir: filepath.Join(tmp, "consumer"), out: w}
	if err := c.create(proxy, filepath.Join(tmp, "modcache")); err != nil {
		return err
	}
	if err := c.install(modules); err != nil {
		return err
	}
	if err := c.installProgram(modules, filepath.Join(tmp, "bin")); err != nil {
		return err
	}
	if err := writeSnippets(root, c.dir); err != nil {
		return err
	}
	examples, err := copyExamples(root, c.dir)
	if err != nil {
		return err
	}
	return c.use(examples)
}

// A consumer is a new module, outside the repository, that uses the published modules.
type consumer struct {
	dir string
	env []string // environment of the go command; nil for the environment of this process
	out io.Writer
}

// create makes the consumer's module. In it, the go command gets the published modules from the proxy in the
// folder proxy, and all other modules through the proxies that GOPROXY in the environment names.
func (c *consumer) create(proxy, cache string) error {
	if err := os.Mkdir(c.dir, 0o755); err != nil {
		return err
	}
	next, err := c.capture("env", "GOPROXY")
	if err != nil {
		return err
	}
	c.env = append(os.Environ(),
		"GOWORK=off",
		"GOPROXY=file://"+filepath.ToSlash(proxy)+","+next,
		"GOMODCACHE="+cache,
		"GOFLAGS=-modcacherw", // makes the cache writable, so that it can be removed
		"GONOPROXY=none",
		"GONOSUMDB="+rootPath, // this also matches all modules whose path begins with rootPath and a slash
	)
	return c.run("mod", "init", "example.com/consumer")
}

// install gets the modules, checks that it got the packed versions, and builds the modules. It gets all
// modules with one command. With a command for each module, a later command could raise the version of an
// earlier module without adding the checksums of the new version.
func (c *consumer) install(modules []published) error {
	get := []string{"get"}
	for _, m := range modules {
		if m.Path == rootPath {
			get = append(get, m.Path) // with "/..." behind it, the path would match the packages of all modules
		} else {
			get = append(get, m.Path+"/...") // "/..." also gets the modules that only packages in folders of m need
		}
	}
	if err := c.run(get...); err != nil {
		return err
	}
	for _, m := range modules {
		got, err := c.capture("list", "-m", "-f", "{{.Path}}@{{.Version}}{{with .Replace}} => {{.}}{{end}}", m.Path)
		if err != nil {
			return err
		}
		if got != m.String() {
			return fmt.Errorf("the consumer has %s, not %s", got, m)
		}
		if err := c.run("build", "-o", os.DevNull, m.Path+"/..."); err != nil {
			return err
		}
	}
	return nil
}

// program is the folder of the module whose program users install.
const program = "cmd/ratelimit"

// installProgram installs the program outside of any module, as a user does who has only Go, and runs the program. It
// also runs the program with "go run", which does not install it.
func (c *consumer) installProgram(modules []published, bin string) error {
	i := slices.IndexFunc(modules, func(m published) bool { return m.dir == program })
	if i < 0 {
		return fmt.Errorf("no published module has the program in %s", program)
	}
	outside := consumer{dir: bin, env: append(slices.Clone(c.env), "GOBIN="+bin), out: c.out}
	if err := os.Mkdir(bin, 0o755); err != nil {
		return err
	}
	if err := outside.run("install", modules[i].String()); err != nil {
		return err
	}
	want := "ratelimit " + modules[i].Version.Version + " "
	cmd := exec.CommandContext(context.Background(), filepath.Join(bin, "ratelimit"), "version")
	installed, err := output(cmd)
	if err != nil {
		return err
	}
	ran, err := outside.capture("run", modules[i].String(), "version")
	if err != nil {
		return err
	}
	for _, got := range []string{installed, ran} {
		fmt.Fprintf(c.out, "%s\n", got)
		if !strings.HasPrefix(got, want) {
			return fmt.Errorf("the program says that it is %q, not %q", got, want)
		}
	}
	return nil
}

// The method named "use" builds and tests the snippets and examples in the module, and runs the examples. It
// returns an error if an example denies no request.
func (c *consumer) use(examples []string) error {
	for _, args := range [][]string{
		{"get", "-t", "./..."}, // also gets the modules that only the tests import
		{"build", "-o", os.DevNull, "./..."},
		{"vet", "./..."},
		{"test", "-short", "./..."},
	} {
		if err := c.run(args...); err != nil {
			return err
		}
	}
	for _, example := range examples {
		if target, ok := servers[example]; ok {
			if err := c.serve(example, target); err != nil {
				return err
			}
			continue
		}
		if path.Base(example) == "redis" && os.Getenv("REDIS_URL") == "" {
			fmt.Fprintf(c.out, "\n%s is built, not run: REDIS_URL names no server\n", example)
			continue
		}
		var printed strings.Builder
		once := consumer{dir: c.dir, env: c.env, out: io.MultiWriter(c.out, &printed)}
		if err := once.run("run", "./"+example); err != nil {
			return err
		}
		if !strings.Contains(printed.String(), "denied") {
			return fmt.Errorf("the example %s prints no denial", example)
		}
	}
	return nil
}

// run runs the go command in the module. It prints the command and its output.
func (c *consumer) run(args ...string) error {
	fmt.Fprintf(c.out, "\n$ go %s\n", strings.Join(args, " "))
	cmd := c.command(args)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// capture runs the go command in the module and returns its output.
func (c *consumer) capture(args ...string) (string, error) {
	return output(c.command(args))
}

func (c *consumer) command(args []string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

// cloneWorkTree clones this repository to dir, with the tracked files as they are in the work tree. It does
// not change the repository.
func cloneWorkTree(dir string) error {
	top, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	revision, err := git(top, "stash", "create") // a commit with the changes in the work tree; empty if there are no changes
	if err != nil {
		return err
	}
	if revision == "" {
		revision = "HEAD"
	}
	if revision, err = git(top, "rev-parse", revision); err != nil {
		return err
	}
	if _, err := git(top, "clone", "--quiet", "--shared", "--no-checkout", top, dir); err != nil {
		return err
	}
	_, err = git(dir, "checkout", "--quiet", "--detach", revision)
	return err
}

// git runs git in dir and returns its output.
func git(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	return output(cmd)
}

// output runs cmd and returns its standard output. If cmd fails, the error has its standard error.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
