package prommetrics_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program returns the path of a program of Prometheus. If there is none it skips the test, or
// fails it if the environment has RATELIMIT_REQUIRE_PROMETHEUS=1.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("RATELIMIT_REQUIRE_PROMETHEUS") == "1" {
		t.Fatalf("RATELIMIT_REQUIRE_PROMETHEUS is set, but there is no %s on this machine", name)
	}
	t.Skipf("no %s on this machine: the test needs to start it", name)
	return ""
}

// promtool runs promtool, and requires that it finds nothing wrong, and prints only that.
func promtool(t testing.TB, stdin string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "promtool"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", args, out)
	require.NotContains(t, strings.ToLower(string(out)), "error", args)
}

// A prometheusServer is a running Prometheus.
type prometheusServer struct {
	url string
	log *bytes.Buffer // to be read when it has ended
}

// startPrometheus starts a Prometheus that scrapes the server at target ten times a second, and
// evaluates the alerts of the repository as often.
func startPrometheus(t testing.TB, target string) *prometheusServer {
	t.Helper()
	path := program(t, "prometheus")
	beside(t, "dashboards/alerts.yaml")
	alerts, err := filepath.Abs("../dashboards/alerts.yaml")
	require.NoError(t, err)
	dir := t.TempDir()
	config := "global: {scrape_interval: 100ms, scrape_timeout: 100ms, evaluation_interval: 100ms}\n" +
		"rule_files: [" + strconv.Quote(alerts) + "]\n" +
		"scrape_configs: [{job_name: shop, static_configs: [{targets: [" + strconv.Quote(target) + "]}]}]\n"
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	promtool(t, "", "check", "config", file)
	for range 5 {
		address := "127.0.0.1:" + strconv.Itoa(freePort(t))
		p := &prometheusServer{url: "http://" + address, log: new(bytes.Buffer)}
		//nolint:noctx // it is ended below
		cmd := exec.Command(path, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address,
			"--log.level=warn")
		cmd.Stdout, cmd.Stderr = p.log, p.log
		require.NoError(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // its error is that it was killed, or is in the log
		}()
		if p.ready(ended) {
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				<-ended
				if t.Failed() {
					t.Logf("Prometheus says:\n%s", p.log)
				}
			})
			return p
		}
		_ = cmd.Process.Kill()
		<-ended
		t.Logf("Prometheus does not start:\n%s", p.log)
	}
	t.Fatal("Prometheus does not start on any of 5 ports")
	return nil
}

// freePort returns a port of the loopback interface on which no program listens, below those that
// the system gives to connections.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil { //nolint:noctx // it ends at once
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// ready waits until p answers. It returns false if p ends, or does not answer in a minute.
func (p *prometheusServer) ready(ended <-chan struct{}) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := p.fetch(ctx, "/-/ready"); err == nil {
			return true
		}
		select {
		case <-tick.C:
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// fetch returns what p answers to a request, whose path may have a query.
func (p *prometheusServer) fetch(ctx context.Context, path string) ([]byte, error) {
	return fetch(ctx, p.url+path)
}

func fetch(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &statusError{resp.Status, string(text)}
	}
	return text, err
}

// A statusError is an answer that is not 200.
type statusError struct{ status, text string }

func (e *statusError) Error() string { return e.status + ": " + e.text }

// A sample is one series of the answer to a query.
type sample struct {
	labels map[string]string
	value  float64
}

// query returns the answer of p to an expression. Every expression must parse and be evaluated.
func (p *prometheusServer) query(t testing.TB, expr string) (samples []sample) {
	t.Helper()
	text, err := p.fetch(t.Context(), "/api/v1/query?query="+url.QueryEscape(expr))
	require.NoError(t, err, expr)
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal(text, &answer), "%s: %s", expr, text)
	for _, r := range answer.Data.Result {
		value, err := strconv.ParseFloat(r.Value[1].(string), 64)
		require.NoError(t, err)
		samples = append(samples, sample{r.Metric, value})
	}
	return samples
}
