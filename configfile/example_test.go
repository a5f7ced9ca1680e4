package configfile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// A limiter of a file. A change of the file is applied, and a mistake is refused.
func Example() {
	dir, err := os.MkdirTemp("", "limits")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "limits.json")
	save := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}

	save(`{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "2/h"}]}`)
	limiter, watcher, err := configfile.Open(path)
	if err != nil {
		panic(err)
	}
	watcher.Log = slog.New(slog.DiscardHandler)
	fmt.Println("a limit of", limiter.Allow("alice", "/search").Limit)

	save(`{"rules": [{"endpoint": "/search", "algorithm": "TokenBucket", "rate": "5/h"}]}`)
	fmt.Println(watcher.Reload()) // Run would find it by itself
	fmt.Println("a limit of", limiter.Allow("alice", "/search").Limit)

	save(`{"rules": [{"endpoint": "/search", "algorithm": "TokenBukket", "rate": "9/h"}]}`)
	fmt.Println(filepath.Base(watcher.Reload().Error()))
	fmt.Println("a limit of", limiter.Allow("alice", "/search").Limit)
	// Output:
	// a limit of 2
	// <nil>
	// a limit of 5
	// limits.json:1:36: rules[0].algorithm is "TokenBukket": unknown algorithm; did you mean "TokenBucket"?
	// a limit of 5
}

// What is wrong with a document is said at once, each problem with its place.
func ExampleParse() {
	const text = `{"rules": [
  {"endpoint": "/search", "algorithm": "TokenBucket",
   "algoConfig": {"capacity": 20, "refillPerSecond": 0.5}},
  {"endpoint": "/login", "algorithm": "FixedWindow", "limit": 0, "windowSeconds": 60}
]}`
	file, err := configfile.Parse("limits.json", []byte(text))
	if err != nil {
		panic(err) // it is no JSON, or no document
	}
	_, err = file.New()
	fmt.Println(err)
	var problem *configfile.Error
	if errors.As(err, &problem) {
		fmt.Println(problem.Line, problem.Column, errors.Is(problem, ratelimit.ErrInvalidConfig))
	}
	// Output:
	// limits.json:3:35: rules[0].algoConfig.refillPerSecond is 0.5: unknown field; did you mean "refillRatePerSecond"?
	// limits.json:4:54: rules[1].limit is 0: must be at least 1
	// 3 35 true
}

// A service that reads its limits again when the file changes.
func ExampleOpen() {
	ctx := context.Background()

	limiter, watcher, err := configfile.Open("limits.json")
	if err != nil {
		log.Print(err)
		return
	}
	go watcher.Run(ctx)

	_ = limiter.Allow("alice", "/search")
}

// A service that reads its limits again when it gets a SIGHUP, and only then.
func ExampleWatcher_Reload() {
	ctx := context.Background()
	_, watcher, err := configfile.Open("limits.json")
	if err != nil {
		log.Print(err)
		return
	}

	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		select {
		case <-reload:
			_ = watcher.Reload() // a new error is logged, and the limiter keeps its rules
		case <-ctx.Done():
			return
		}
	}
}

// A Watcher for a limiter that exists already, with another pace and log.
func ExampleWatcher() {
	ctx := context.Background()
	limiter, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(100)})
	if err != nil {
		log.Print(err)
		return
	}

	watcher := &configfile.Watcher{
		Path:    "/etc/limits/limits.json",
		Limiter: limiter,
		Every:   30 * time.Second,
		Log:     slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
	go watcher.Run(ctx)
}

// checkConfig is a program of its own: it checks a file before it is rolled out.
func checkConfig(path string, out io.Writer) (exit int) {
	file, err := configfile.Load(path)
	if err == nil {
		_, err = file.New()
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	return 0
}
