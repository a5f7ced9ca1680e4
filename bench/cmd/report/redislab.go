package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// A redisLab takes figures on one redis-server, which is started for the first
// line that needs it.
type redisLab struct {
	server  *bench.RedisServer // nil until it is started
	stop    func()
	samples map[bench.RedisWork]map[string][]bench.RedisSample // by subject, of each round
	denied  *lab                                               // nil until it is timed
}

// start starts the server.
func (l *redisLab) start() error {
	if l.server != nil {
		return nil
	}
	server, err := bench.StartRedis(context.Background())
	if err != nil {
		return err
	}
	// A signal that ends the report ends the server as well.
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	keep := context.AfterFunc(ctx, func() {
		_ = server.Close()
		os.Exit(2)
	})
	l.server = server
	l.stop = func() {
		keep()
		release()
		_ = server.Close()
	}
	return nil
}

// close ends the server, if there is one.
func (l *redisLab) close() {
	if l.stop != nil {
		l.stop()
	}
}

// redisWork has every subject in Redis do w, in turns, and returns its samples by
// round. It is done once, however many lines are about it.
func (l *lab) redisWork(w bench.RedisWork) (map[string][]bench.RedisSample, error) {
	if err := l.redis.start(); err != nil {
		return nil, err
	}
	if samples := l.redis.samples[w]; samples != nil {
		return samples, nil
	}
	l.say("Redis: " + w.String())
	var runs []*bench.RedisRun
	specs := bench.RedisSpecs()
	for _, s := range specs {
		run, err := bench.NewRedisRun(l.redis.server, s, w)
		if err != nil {
			return nil, err
		}
		defer run.Close()
		runs = append(runs, run)
	}
	samples := make(map[string][]bench.RedisSample)
	for round := range l.rounds {
		runtime.GC()
		for i := range runs {
			i = (i + round) % len(runs)
			got, err := l.redisBatch(runs[i])
			if err != nil {
				return nil, err
			}
			samples[specs[i].Name] = append(samples[specs[i].Name], got)
		}
	}
	l.redis.samples[w] = samples
	return samples, nil
}

// redisBatch takes one sample. Others have been at work since: it begins without
// timing.
func (l *lab) redisBatch(run *bench.RedisRun) (bench.RedisSample, error) {
	ctx := context.Background()
	if _, err := run.Time(ctx, l.redisTurn/4); err != nil {
		return bench.RedisSample{}, err
	}
	return run.Time(ctx, l.redisTurn)
}

// A figure is one of those of a sample.
type figure func(bench.RedisSample) float64

var (
	perSecond figure = func(s bench.RedisSample) float64 { return s.PerSecond }
	latency   figure = func(s bench.RedisSample) float64 { return float64(s.Latency) }
	scripts   figure = func(s bench.RedisSample) float64 { return float64(s.Scripts) }
	whole     figure = func(s bench.RedisSample) float64 { return float64(s.Whole) }
	failed    figure = func(s bench.RedisSample) float64 { return s.Errors }
)

// of returns the median of f over samples.
func (f figure) of(samples []bench.RedisSample) float64 {
	var xs []float64
	for _, s := range samples {
		xs = append(xs, f(s))
	}
	return median(xs)
}

// ratio returns the median over the rounds of f of mine to that of theirs.
func (f figure) ratio(mine, theirs []bench.RedisSample) float64 {
	var ratios []float64
	for i := range mine {
		ratios = append(ratios, f(mine[i])/f(theirs[i]))
	}
	return median(ratios)
}

// The names in the lab of what DeniedByStore returns.
const (
	deniedLimiter = "limiter"
	deniedStore   = "store"
)

// redisDenied times the denials of a limiter with a store, and of the store, and the
// floor, in turns. It is done once.
func (l *lab) redisDenied() (*lab, error) {
	if err := l.redis.start(); err != nil {
		return nil, err
	}
	if l.redis.denied != nil {
		return l.redis.denied, nil
	}
	l.say("Redis: denied")
	limiter, store, err := bench.DeniedByStore(l.redis.server)
	if err != nil {
		return nil, err
	}
	spec, err := bench.Find("floor")
	if err != nil {
		return nil, err
	}
	floor, err := spec.Start(oneDenied)
	if err != nil {
		return nil, err
	}
	names := []string{"floor", deniedLimiter, deniedStore}
	subjects := []bench.Subject{floor, limiter, store}
	denied := newLab(l.sizes, io.Discard)
	for round := range l.rounds {
		runtime.GC()
		for i := range subjects {
			i = (i + round) % len(subjects)
			ns, allowed := perAsk(subjects[i], l.batch)
			if allowed > 0 && subjects[i] != floor {
				return nil, fmt.Errorf("%s: %d asks were allowed", names[i], allowed)
			}
			c := cell{names[i], oneDenied}
			denied.samples[c] = append(denied.samples[c], ns)
		}
	}
	l.redis.denied = denied
	return denied, nil
}

// perAsk asks s for as long as batch, and for a while before that is not timed, as
// others have used the caches since. It returns nanoseconds per ask, and how many
// asks were allowed. The clock is read too seldom to count, even where an ask takes
// no round trip.
func perAsk(s bench.Subject, batch time.Duration) (ns float64, allowed int) {
	const chunk = 100
	keys := bench.NewKeys(bench.Varied, 1, 1)
	begin := time.Now()
	for time.Since(begin) < batch/4 {
		allowed += bench.Serial(s, keys, chunk)
	}
	start := time.Now()
	for asks := chunk; ; asks += chunk {
		allowed += bench.Serial(s, keys, chunk)
		if took := time.Since(start); took >= batch {
			return float64(took) / float64(asks), allowed
		}
	}
}

// table returns what the subjects in Redis have shown.
func (l *redisLab) table() [][]string {
	rows := [][]string{{"in Redis, median", "subject", "decisions/s", "errors", "latency", "server in scripts", "server"}}
	works := make([]bench.RedisWork, 0, len(l.samples))
	for w := range l.samples {
		works = append(works, w)
	}
	slices.SortFunc(works, func(a, b bench.RedisWork) int {
		if a.Callers != b.Callers {
			return a.Callers - b.Callers
		}
		return a.Keys - b.Keys
	})
	for _, w := range works {
		for _, s := range bench.RedisSpecs() {
			of := func(f figure) float64 { return f.of(l.samples[w][s.Name]) }
			rows = append(rows, []string{
				w.String(), title(s.Name), thousands(of(perSecond)), percent(of(failed)),
				micros(of(latency)), micros(of(scripts)), micros(of(whole)),
			})
		}
	}
	return rows
}
