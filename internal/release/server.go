package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// servers lists the examples that run until they are stopped. It maps the folder of each to a path for which
// the example limits requests.
var servers = map[string]string{
	"examples/httpserver": "/items/7",
}

// serve builds the example in dir and starts it at a free port. It sends requests until one is denied, and then
// interrupts the example, which must end without an error.
func (c *consumer) serve(dir, target string) error {
	binary := filepath.Join(c.dir, path.Base(dir)+".bin")
	if err := c.run("build", "-o", binary, "./"+dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-listen", "127.0.0.1:0", "-metrics", "127.0.0.1:0")
	cmd.Dir, cmd.Stderr = filepath.Join(c.dir, dir), c.out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	url, lines := "", bufio.NewScanner(stdout)
	for url == "" && lines.Scan() {
		fmt.Fprintln(c.out, lines.Text())
		if at, found := strings.CutPrefix(lines.Text(), "serving the API at "); found {
			url = at
		}
	}
	if err = c.askUntilDenied(ctx, url+target); err == nil {
		err = cmd.Process.Signal(os.Interrupt)
	}
	if err != nil {
		cancel()
		_ = cmd.Wait()
		return fmt.Errorf("the example %s: %w", dir, err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the example %s, when it was stopped: %w", dir, err)
	}
	return nil
}

// askUntilDenied sends requests to url until one is denied.
func (c *consumer) askUntilDenied(ctx context.Context, url string) error {
	for n := 1; ; n++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		switch {
		case res.StatusCode == http.StatusTooManyRequests:
			fmt.Fprintf(c.out, "request %d: denied, Retry-After: %s\n", n, res.Header.Get("Retry-After"))
			return nil
		case res.StatusCode != http.StatusOK:
			return fmt.Errorf("%s: %s", url, res.Status)
		case n == 10_000:
			return fmt.Errorf("%s denies none of %d requests", url, n)
		}
	}
}
