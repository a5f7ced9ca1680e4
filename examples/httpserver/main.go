// Httpserver is an HTTP API with limits: a plan for each API key, a stricter limit on logins by client
// address, and a limit on all requests together. It reads the rules from limits.json, again when the
// file changes, and at once on SIGHUP.
//
//	cd examples/httpserver
//	go run . &
//	curl -i http://127.0.0.1:8080/items/7
//	curl -i -H 'X-API-Key: k-123' http://127.0.0.1:8080/items/7
//
// With -store, all processes that use the same Redis or PostgreSQL server share the limits.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/prommetrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "httpserver:", err)
		os.Exit(1)
	}
}

// A config holds the values of the flags.
type config struct {
	listen, metrics string
	limits          string
	proxies         []netip.Prefix
	router          func(*httplimit.Middleware) http.Handler
	store           string
	timeout         time.Duration // the time limit of a call of the store
	replicas        int
}

// parse reads the flags.
func parse(args []string, out io.Writer) (c config, err error) {
	c.router = withServeMux
	flags := flag.NewFlagSet("httpserver", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8080", "serve the API at this `address`")
	flags.StringVar(&c.metrics, "metrics", "127.0.0.1:9090", "serve /metrics at this `address`, where no client comes")
	flags.StringVar(&c.limits, "limits", "limits.json", "the `file` with the rules")
	flags.StringVar(&c.store, "store", "", "share the limits in the server at this `url`: redis://host:6379/0 or postgres://host/shop")
	flags.DurationVar(&c.timeout, "timeout", 200*time.Millisecond, "how `long` to wait for an answer of that server")
	flags.IntVar(&c.replicas, "replicas", 1, "how many processes share them: while the server does not answer, each enforces its part")
	flags.Func("proxies", "believe X-Forwarded-For of these `networks`, such as 10.0.1.0/24,10.0.2.0/24", func(text string) error {
		for part := range strings.SplitSeq(text, ",") {
			prefix, err := netip.ParsePrefix(part)
			if err != nil {
				return err
			}
			c.proxies = append(c.proxies, prefix)
		}
		return nil
	})
	flags.BoolFunc("chi", "route by chi and not by http.ServeMux", func(string) error {
		c.router = withChi
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	return c, nil
}

// costs has the cost, in units, of each endpoint whose requests cost more than one unit.
var costs = map[string]int{"/search": 5}

// run serves until ctx ends, and returns when the requests that have arrived are answered.
func run(ctx context.Context, args []string, out io.Writer, opts ...ratelimit.Option) error {
	c, err := parse(args, out)
	if err != nil {
		return err
	}
	if c.store != "" {
		shared, done, err := c.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		opts = append(opts, shared...)
	}

	limiter, watcher, err := configfile.Open(c.limits, opts...)
	if err != nil {
		return err
	}
	m, err := httplimit.New(limiter, httplimit.Config{
		Client:  httplimit.APIKey("X-API-Key", customerOf),
		Proxies: httplimit.Proxies{Trusted: c.proxies},
		Skip:    httplimit.SkipPaths("/healthz"),
		Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Cost = costs[q.Endpoint] },
	})
	if err != nil {
		return err
	}

	registry := prometheus.NewRegistry()
	registry.MustRegister(prommetrics.NewCollector(limiter, prommetrics.Options{Watcher: watcher}))
	metrics := http.NewServeMux()
	metrics.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	return together(ctx,
		func(ctx context.Context) error { return serve(ctx, "the API", c.listen, c.router(m), out) },
		func(ctx context.Context) error { return serve(ctx, "metrics", c.metrics, metrics, out) },
		func(ctx context.Context) error { return watch(ctx, watcher) },
	)
}

// together runs the given functions at the same time. When ctx ends or one of the functions returns,
// together ends all others. It returns when all functions have returned.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error)
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	var errs []error
	for range parts {
		errs = append(errs, <-ended)
		stop()
	}
	return errors.Join(errs...)
}

// watch applies the file of the watcher when the file changes, and at once on SIGHUP.
func watch(ctx context.Context, watcher *configfile.Watcher) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	for {
		select {
		case <-hup:
			_ = watcher.Reload() // a new error is logged, and the limiter keeps its rules
		case err := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// serve serves handler until ctx ends. Then it accepts no more requests, and waits up to ten seconds
// until the accepted requests are answered. The second parameter is the name of the handler in the output.
func serve(ctx context.Context, what, address string, handler http.Handler, out io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	fmt.Fprintf(out, "serving %s at http://%s\n", what, listener.Addr())
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return server.Shutdown(last)
}
