package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/ratelimit-go/ratelimit/redisstore"
)

// serverFlags hold the flags that say how to reach a Redis server, and how its keys are named.
type serverFlags struct {
	timeout *time.Duration
	prefix  *string
	name    *string
	redis   *string // address of the server; an argument may name it, too
}

func newServerFlags(fs *flag.FlagSet) *serverFlags {
	return &serverFlags{
		fs.Duration("timeout", 2*time.Second, "how `long` to wait for an answer of the server"),
		fs.String("prefix", "ratelimit", "the first `word` of the keys, as WithPrefix says"),
		fs.String("name", "", "the `name` of the limiter, as WithName says"),
		fs.String("redis", "", "the `address` of the server, such as redis://:password@host:6379/0; may be an argument, too"),
	}
}

// A server is a connected Redis server in which limiters keep their state.
type server struct {
	client  *redis.Client
	store   *redisstore.Store
	address string // address of the server for printing, without the password
	timeout time.Duration
}

// defaultURL is the address of the Redis server that is used if the command line names no server.
const defaultURL = "redis://127.0.0.1:6379/0"

// url returns the address of the server: the value of the flag -redis or, without the flag, the only argument. If there is
// neither, it returns defaultURL.
func (f *serverFlags) url(args []string) (string, error) {
	if *f.redis != "" {
		args = append([]string{*f.redis}, args...)
	}
	switch len(args) {
	case 0:
		return defaultURL, nil
	case 1:
		return args[0], nil
	}
	return "", usageError(fmt.Sprintf("%q is one argument too many", plain(args[1])))
}

// connect connects to the server that the flag -redis or an argument names. It returns once the server has answered a PING.
func (f *serverFlags) connect(ctx context.Context, args []string) (*server, error) {
	url, err := f.url(args)
	if err != nil {
		return nil, err
	}
	o, err := redis.ParseURL(url)
	switch {
	case err != nil: // the text of the error is not printed, as it contains the password
		return nil, usageError("the address must be redis://user:password@host:port/db, rediss://... or unix://path")
	case *f.timeout <= 0:
		return nil, usageError(fmt.Sprintf("-timeout is %v: must be above 0", *f.timeout))
	}
	logging.Disable() // stops the client from logging the errors, which it also returns
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = *f.timeout, *f.timeout, *f.timeout, *f.timeout
	o.MaxRetries, o.DialerRetries, o.PoolSize, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, 2, true, true
	s := &server{client: redis.NewClient(o), address: plain(o.Addr), timeout: *f.timeout}
	if o.Network != "unix" {
		s.address += fmt.Sprintf("/%d", o.DB)
	}
	s.store, err = redisstore.New(s.client,
		redisstore.WithPrefix(*f.prefix), redisstore.WithTimeout(*f.timeout), redisstore.WithDenialCache(0))
	if err == nil {
		err = s.within(ctx, func(ctx context.Context) error { return s.client.Ping(ctx).Err() })
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *server) close() { _ = s.client.Close() }

// within calls the given function with a context that ends when the server's timeout is over. If the function
// fails, within returns an error that also has the address of the server.
func (s *server) within(ctx context.Context, do func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := do(limited)
	var reply redis.Error
	var failed *redisstore.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &failed) && failed.Class == redisstore.ClassTimeout,
		errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s does not answer within %v", s.address, s.timeout)
	case errors.As(err, &reply):
		return fmt.Errorf("%s answers: %s", s.address, plain(reply.Error()))
	}
	text := err.Error()
	if i := strings.LastIndex(text, ": "); errors.As(err, &network) && i >= 0 {
		text = text[i+2:] // keeps only the reason, because the address of the server is printed below
	}
	return fmt.Errorf("%s: %s", s.address, plain(text))
}

// limiters returns how many keys each limiter has in the server, by the name of the limiter. It reads only the names of the
// keys.
func (s *server) limiters(ctx context.Context) (map[string]int, error) {
	counts := make(map[string]int)
	for cursor := uint64(0); ; {
		err := s.within(ctx, func(ctx context.Context) (err error) {
			var names []string
			names, cursor, err = s.client.Scan(ctx, cursor, s.store.Pattern(), 200).Result()
			for _, name := range names {
				if stored, ok := s.store.Stored(name); ok {
					counts[limiterOf(&stored)]++
				}
			}
			return err
		})
		if err != nil || cursor == 0 {
			return counts, err
		}
	}
}

// limiterOf returns the name of the limiter to which a stored state belongs. If this name has a colon, limiterOf returns only
// the part before the first colon.
func limiterOf(s *redisstore.Stored) string {
	name, _, _ := strings.Cut(s.Ask.Rule, ":")
	return name
}

// checkName returns an error if the server has keys of limiters, but none of the limiter with the given name. It does not check
// a name with a colon, because limiterOf returns only a part of such a name.
func (s *server) checkName(ctx context.Context, limiter string) error {
	counts, err := s.limiters(ctx)
	if err != nil || counts[limiter] > 0 || len(counts) == 0 || strings.Contains(limiter, ":") {
		return err
	}
	return fmt.Errorf("%s has no key of limiter %s, but %s", s.address, plain(limiter), listOf(counts))
}

// listOf returns how many keys each limiter has, such as "12 keys of limiter shop".
func listOf(counts map[string]int) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, fmt.Sprintf("%s of limiter %s", countText(counts[name], "key"), plain(name)))
	}
	return strings.Join(texts, ", ")
}
