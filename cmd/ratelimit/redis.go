package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// An inRedis reads the states of limiters in a Redis server.
type inRedis struct {
	client *redis.Client
	keys   *redisstore.Store
}

// connectRedis connects to the Redis server at the given URL. It returns once the server has answered a PING.
func (f *serverFlags) connectRedis(ctx context.Context, url string) (*server, error) {
	o, err := redis.ParseURL(url)
	if err != nil { // the text of the error is not printed, as it contains the password
		return nil, usageError("the address must be redis://user:password@host:port/db, rediss://... or unix://path" + f.orPostgres())
	}
	logging.Disable() // stops the client from logging the errors, which it also returns
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = *f.timeout, *f.timeout, *f.timeout, *f.timeout
	o.MaxRetries, o.DialerRetries, o.PoolSize, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, 2, true, true
	in := &inRedis{client: redis.NewClient(o)}
	s := &server{database: in, address: plain(o.Addr), timeout: *f.timeout}
	if o.Network != "unix" {
		s.address += "/" + strconv.Itoa(o.DB)
	}
	in.keys, err = redisstore.New(in.client,
		redisstore.WithPrefix(*f.prefix), redisstore.WithTimeout(*f.timeout), redisstore.WithDenialCache(0))
	if err == nil {
		err = s.within(ctx, func(ctx context.Context) error { return in.client.Ping(ctx).Err() })
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (in *inRedis) close() { _ = in.client.Close() }

// redis returns the store in a Redis server. It panics for a PostgreSQL server, so only commands that do not work with PostgreSQL
// call it.
func (s *server) redis() *redisstore.Store { return s.database.(*inRedis).keys }

func (in *inRedis) store(context.Context) (ratelimit.Store, error) { return in.keys, nil }

// scan makes one step of the command SCAN. It reads the names of keys only.
func (in *inRedis) scan(ctx context.Context, from string, count int) (states []state, next string, err error) {
	cursor, err := strconv.ParseUint("0"+from, 10, 64)
	if err != nil {
		return nil, "", err
	}
	names, cursor, err := in.client.Scan(ctx, cursor, in.keys.Pattern(), int64(count)).Result()
	if err != nil {
		return nil, "", err
	}
	for _, name := range names {
		if s, ok := in.keys.Stored(name); ok {
			states = append(states, state{name: name, ask: s.Ask, warms: s.Warms})
		}
	}
	if cursor != 0 {
		next = strconv.FormatUint(cursor, 10)
	}
	return states, next, nil
}

// look reads the states with one call of a Redis script.
func (in *inRedis) look(ctx context.Context, states []state) ([]ratelimit.Result, error) {
	stored := make([]redisstore.Stored, len(states))
	for i := range states {
		stored[i] = redisstore.Stored{Name: states[i].name, Ask: states[i].ask, Warms: states[i].warms}
	}
	return in.keys.Look(ctx, stored)
}

// tiers finds the rate of the client's tier for each state of a bucket, and sets ask.Rate to it. The value of a bucket in Redis
// contains this rate. The value of a window does not, so the state of a window keeps the rate of its rule.
func (in *inRedis) tiers(ctx context.Context, states []state) error {
	var at []int
	for i := range states {
		if len(states[i].rates) > 0 && !states[i].ask.Algorithm.Windowed() {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	values := make([]*redis.StringCmd, len(at))
	_, err := in.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, j := range at {
			values[i] = p.Get(ctx, states[j].name)
		}
		return nil
	})
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) { // a redis.Error only means that one key has gone, or has a value of another type
		return err
	}
	for i, j := range at {
		for _, rate := range states[j].rates {
			if isRateOf(values[i].Val(), rate) {
				states[j].ask.Rate = rate
			}
		}
	}
	return nil
}

// isRateOf reports whether the value of a bucket begins with the three numbers of the given rate. The first two are a reduced
// fraction, which says how many tokens drain in a microsecond. The third is the burst. For 500 in a minute, the value begins
// with "1 120000 500".
func isRateOf(value string, r ratelimit.Rate) bool {
	fields := strings.Fields(value)
	if len(fields) < 3 {
		return false
	}
	var numbers [3]int64
	for i := range numbers {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil || n <= 0 {
			return false
		}
		numbers[i] = n
	}
	gain, unit, burst := numbers[0], numbers[1], numbers[2]
	want := int64(r.Burst)
	if r.Burst == 0 {
		want = int64(r.Requests)
	}
	requests, micros := int64(r.Requests), r.Per.Microseconds()
	divisor := gcd(requests, micros)
	return burst == want && gain == requests/divisor && unit == micros/divisor && r.Per%time.Microsecond == 0
}

// gcd returns the greatest common divisor of two numbers above 0.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
