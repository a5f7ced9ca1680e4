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

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/pgstore"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// serverFlags hold the flags that say how to reach a server, and how the states of limiters are named there.
type serverFlags struct {
	timeout *time.Duration
	prefix  *string
	name    *string
	redis   *string // address of a Redis server; an argument may name it, too

	// These two flags are nil for the commands that need Redis.
	postgres *string // address of a PostgreSQL server; an argument may name it, too
	table    *string
}

// The defaults of the flags -prefix and -table. They are the same as in the packages redisstore and pgstore.
const (
	defaultPrefix = "ratelimit"
	defaultTable  = "ratelimit"
)

// newRedisFlags defines the flags of a command that needs a Redis server.
func newRedisFlags(fs *flag.FlagSet) *serverFlags {
	return &serverFlags{
		timeout: fs.Duration("timeout", 2*time.Second, "how `long` to wait for an answer of the server"),
		prefix:  fs.String("prefix", defaultPrefix, "the first `word` of the keys in Redis, as WithPrefix says"),
		name:    fs.String("name", "", "the `name` of the limiter, as WithName says"),
		redis:   fs.String("redis", "", "the `address` of the server, such as redis://:password@host:6379/0; may be an argument, too"),
	}
}

// newServerFlags defines the flags of a command that needs a server, either of Redis or of PostgreSQL.
func newServerFlags(fs *flag.FlagSet) *serverFlags {
	f := newRedisFlags(fs)
	f.postgres = fs.String("postgres", "",
		"the `address` of a PostgreSQL server, such as postgres://user@host:5432/database, in place of -redis;\n"+
			"may be an argument, too; the password may come from PGPASSWORD or ~/.pgpass")
	f.table = fs.String("table", defaultTable, "the `table` in PostgreSQL, as WithTable says")
	return f
}

// A server is a connected server in which limiters keep their state.
type server struct {
	database
	address string // address of the server for printing, without the password
	timeout time.Duration
}

// A database reads the states that limiters have in a server. Each call with a ctx fails if ctx ends before the server answers.
type database interface {
	// scan makes one step through the states in the server. A step looks at roughly as many names as the parameter count says. In
	// the first step, the parameter from is empty. In each later step, it is the result next of the step before. If next is empty,
	// the step was the last one.
	scan(ctx context.Context, from string, count int) (states []state, next string, err error)

	// tiers finds the rate of the client's tier for each state. It looks for the one of the state's rates with which the server
	// last wrote the state, and sets ask.Rate to it. If the server does not say which one this is, ask.Rate does not change.
	tiers(ctx context.Context, states []state) error

	// look returns, for each state, the result that a request for one unit would get now, and changes nothing. If a state cannot be
	// read, because no limiter has written it, the error is a ratelimit.StoreErrorAnswered.
	look(ctx context.Context, states []state) ([]ratelimit.Result, error)

	// store returns the store of limiters in the server. The store makes nothing in the server before it is used.
	store(ctx context.Context) (ratelimit.Store, error)

	close()
}

// A state is the state of one key of a limiter in a server.
type state struct {
	name   string           // name of the state in the server; no other state has this name
	ask    ratelimit.Ask    // has the Rule, the Key and the Algorithm; the fields Rate, Warmup and Penalty come from the file of rules
	warms  bool             // whether the rule of the state has a warm-up
	hashed bool             // whether the name of the state does not say which rule and key it belongs to, because they are too long
	rate   ratelimit.Rate   // rate of the rule
	rates  []ratelimit.Rate // rates of the tiers that the rule has

	// In PostgreSQL, a step through the states also reads them.
	row  *dbstore.Stored
	read time.Time // time of the server when it was read
}

// defaultURL is the address of the Redis server that is used if the command line names no server.
const defaultURL = "redis://127.0.0.1:6379/0"

// url returns the address of the server: that of the flag -redis or -postgres, or the only one of the arguments, or defaultURL.
func (f *serverFlags) url(args []string) (url string, postgres bool, err error) {
	inPostgres := f.postgres != nil && *f.postgres != ""
	switch {
	case isPostgres(*f.redis):
		return "", false, usageError("-redis has the address of a PostgreSQL server" + f.insteadOfRedis())
	case inPostgres && *f.redis != "":
		return "", false, usageError("-redis and -postgres are given: the limiter has its state in one of them")
	case inPostgres:
		url, postgres = *f.postgres, true
	default:
		url = *f.redis
	}
	if url != "" {
		args = append([]string{url}, args...)
	}
	switch len(args) {
	case 0:
		url = defaultURL
	case 1:
		url, postgres = args[0], postgres || isPostgres(args[0])
	default:
		return "", false, usageError(fmt.Sprintf("%q is one argument too many", plain(args[1])))
	}
	switch {
	case postgres && f.postgres == nil:
		return "", false, usageError("the address is one of PostgreSQL" + f.insteadOfRedis())
	case postgres && *f.prefix != defaultPrefix:
		return "", false, usageError("-prefix is for Redis: in PostgreSQL, -table names the table")
	case !postgres && f.table != nil && *f.table != defaultTable:
		return "", false, usageError("-table is for PostgreSQL: in Redis, -prefix is the first word of the keys")
	case *f.timeout <= 0:
		return "", false, usageError(fmt.Sprintf("-timeout is %v: must be above 0", *f.timeout))
	}
	return url, postgres, nil
}

// isPostgres reports whether the text is the URL of a PostgreSQL server.
func isPostgres(text string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(text), "://")
	return ok && (scheme == "postgres" || scheme == "postgresql")
}

// insteadOfRedis returns the end of an error about the address of a PostgreSQL server that was given in place of one of Redis. The
// end of the error says what to do instead.
func (f *serverFlags) insteadOfRedis() string {
	if f.postgres != nil {
		return ": use -postgres"
	}
	return ": overrides that processes share need Redis"
}

// orPostgres returns the end of an error about the address of a server: the form of an address of PostgreSQL. It is empty for
// a command that needs Redis.
func (f *serverFlags) orPostgres() string {
	if f.postgres != nil {
		return ", or postgres://user:password@host:port/database"
	}
	return ""
}

// connect connects to the server that a flag or an argument names. It returns once the server has answered.
func (f *serverFlags) connect(ctx context.Context, args []string) (*server, error) {
	url, postgres, err := f.url(args)
	switch {
	case err != nil:
		return nil, err
	case postgres:
		return f.connectPostgres(ctx, url)
	}
	return f.connectRedis(ctx, url)
}

// The method within calls the given function with a context that ends when the server's timeout is over. If the function
// fails, the method returns an error that also has the address of the server.
func (s *server) within(ctx context.Context, do func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := do(limited)
	var reply redis.Error
	var failed *redisstore.Error
	var answer *pgstore.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case limited.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &failed) && failed.Class == redisstore.ClassTimeout,
		errors.As(err, &network) && network.Timeout():
		return fmt.Errorf("%s does not answer within %v", s.address, s.timeout)
	case errors.As(err, &reply):
		return fmt.Errorf("%s answers: %s", s.address, plain(reply.Error()))
	case errors.As(err, &answer) && answer.Code != "":
		return fmt.Errorf("%s answers: %s", s.address, plain(strings.TrimPrefix(answer.Error(), "pgstore: ")))
	}
	text := err.Error()
	if i := strings.LastIndex(text, ": "); errors.As(err, &network) && i >= 0 {
		text = text[i+2:] // keeps only the reason, because the address of the server is printed below
	}
	return fmt.Errorf("%s: %s", s.address, plain(strings.TrimPrefix(text, "pgstore: ")))
}

// step does what scan does, within the server's timeout.
func (s *server) step(ctx context.Context, from string, count int) (states []state, next string, err error) {
	err = s.within(ctx, func(ctx context.Context) (err error) {
		states, next, err = s.scan(ctx, from, count)
		return err
	})
	return states, next, err
}

// limiters returns how many keys in the server each limiter has. The keys of the map are the names of the limiters. Keys whose
// names in the server are hashed are not counted.
func (s *server) limiters(ctx context.Context) (map[string]int, error) {
	counts := make(map[string]int)
	for from := ""; ; {
		states, next, err := s.step(ctx, from, 200)
		for i := range states {
			if !states[i].hashed {
				counts[states[i].limiter()]++
			}
		}
		if from = next; err != nil || from == "" {
			return counts, err
		}
	}
}

// limiter returns the name of the limiter to which the state belongs. If this name has a colon, limiter returns only the part
// before it.
func (s *state) limiter() string {
	name, _, _ := strings.Cut(s.ask.Rule, ":")
	return name
}

// checkName returns an error if the server has keys of other limiters, but none of the limiter with the given name. It checks no
// name that has a colon.
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
