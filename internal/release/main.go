// Release checks that the modules of this repository can be installed, before they
// are tagged: go run ./internal/release.
//
// It packs each published module into a module proxy on disk, at the version that the
// go.mod files name and as the go command would pack it from a tag. Then it does what a
// user does, in an empty module outside the repository, with an empty module cache: it
// gets the modules, builds all their packages, compiles and tests the Go snippets of
// README.md, and builds and runs the examples. A server is asked until it denies, and is
// stopped. No replace directive helps there.
//
// It takes the files that git tracks, as they are in the work tree. The example of Redis
// is run if REDIS_URL names a server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
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
	if err := writeSnippets(root, c.dir); err != nil {
		return err
	}
	examples, err := copyExamples(root, c.dir)
	if err != nil {
		return err
	}
	return c.use(examples)
}

// A consumer is a module outside the repository that uses the published modules.
type consumer struct {
	dir string
	env []string // in place of this process's own
	out io.Writer
}

// create makes the consumer's module, which finds the published modules in proxy and all
// others where the environment says.
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
		"GOFLAGS=-modcacherw", // so that the cache can be removed
		"GONOPROXY=none",
		"GONOSUMDB="+rootPath, // and all modules below it
	)
	return c.run("mod", "init", "example.com/consumer")
}

// install gets the modules, and checks that the version that was packed is what came. It gets
// them by one command: a second one may raise what a module of the first requires, and then
// does not add the sums for building it.
func (c *consumer) install(modules []published) error {
	get := []string{"get"}
	for _, m := range modules {
		get = append(get, m.Path)
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

// use compiles and tests what has been written into the consumer's module, and runs the
// examples. Each example denies something.
func (c *consumer) use(examples []string) error {
	for _, args := range [][]string{
		{"get", "-t", "./..."}, // what the tests import besides
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

// run runs the go command in the consumer's module, and shows it.
func (c *consumer) run(args ...string) error {
	fmt.Fprintf(c.out, "\n$ go %s\n", strings.Join(args, " "))
	cmd := c.command(args)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// capture returns what the go command prints in the consumer's module.
func (c *consumer) capture(args ...string) (string, error) {
	return output(c.command(args))
}

func (c *consumer) command(args []string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

// cloneWorkTree makes a clone of this repository at dir, with the tracked files as they
// are in the work tree. The repository itself does not change.
func cloneWorkTree(dir string) error {
	top, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	revision, err := git(top, "stash", "create") // a commit of what has changed, if anything has
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

// git returns what git prints in dir.
func git(dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	return output(cmd)
}

// output returns what cmd prints. Where cmd fails, the error has what it says.
func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
