package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// A redisLab times limiters that keep their state in Redis. All of these limiters use one
// redis-server, which the lab starts when a line of the report first needs it.
type redisLab struct {
	server  *bench.RedisServer // nil until the method startRedis of lab is called
	samples map[bench.RedisWork]redisSamples
	denied  *lab // the times of denied calls; nil until the method redisDenied is called
}

// redisSamples maps the name of each subject to its samples, one for each round.
type redisSamples map[string][]bench.RedisSample

// startRedis starts the redis-server, unless it is already running.
func (l *lab) startRedis() (err error) {
	if l.redis.server == nil {
		l.redis.server, err = serve(&l.servers, bench.StartRedis)
	}
	return err
}

// redisWork times the limiters in Redis under the workload w, one after the other in each round. It
// keeps the samples, so the same workload is timed only once, even if several lines need it.
func (l *lab) redisWork(w bench.RedisWork) (redisSamples, error) {
	if err := l.startRedis(); err != nil {
		return nil, err
	}
	if samples := l.redis.samples[w]; samples != nil {
		return samples, nil
	}
	l.say("Redis: " + w.String())
	var runs []*bench.RedisRun
	specs := redisSubjects(w)
	for _, s := range specs {
		run, err := bench.NewRedisRun(l.redis.server, s, w)
		if err != nil {
			return nil, err
		}
		defer run.Close()
		runs = append(runs, run)
	}
	samples := make(redisSamples)
	err := inTurns(l.rounds, len(runs), func(i int) error {
		got, err := l.redisBatch(runs[i])
		samples[specs[i].Name] = append(samples[specs[i].Name], got)
		return err
	})
	if err != nil {
		return nil, err
	}
	l.redis.samples[w] = samples
	return samples, nil
}

// redisBatch times one batch of calls. Before the batch it makes calls that are not timed, because
// other subjects have filled the processor's caches in the meantime.
func (l *lab) redisBatch(run *bench.RedisRun) (bench.RedisSample, error) {
	ctx := context.Background()
	if _, err := run.Time(ctx, l.redisTurn/4); err != nil {
		return bench.RedisSample{}, err
	}
	return run.Time(ctx, l.redisTurn)
}

var (
	decisions  figure[bench.RedisSample] = func(s bench.RedisSample) float64 { return s.PerSecond }
	waited     figure[bench.RedisSample] = func(s bench.RedisSample) float64 { return float64(s.Latency) }
	scriptTime figure[bench.RedisSample] = func(s bench.RedisSample) float64 { return float64(s.Scripts) }
	serverTime figure[bench.RedisSample] = func(s bench.RedisSample) float64 { return float64(s.Whole) }
	failed     figure[bench.RedisSample] = func(s bench.RedisSample) float64 { return s.Errors }
)

// The names of the two subjects that bench.DeniedByStore returns.
const (
	deniedLimiter = "limiter"
	deniedStore   = "store"
)

// redisDenied times three subjects in turns: denials by a limiter with a store, denials by a store
// that is called directly, and the subject named floor. Only the first call of redisDenied measures.
// Later calls return the times that the first call has measured.
func (l *lab) redisDenied() (*lab, error) {
	if err := l.startRedis(); err != nil {
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
	err = inTurns(l.rounds, len(subjects), func(i int) error {
		ns, allowed := perAsk(subjects[i], l.batch)
		if allowed > 0 && subjects[i] != floor {
			return fmt.Errorf("%s: %d asks were allowed", names[i], allowed)
		}
		c := cell{names[i], oneDenied}
		denied.samples[c] = append(denied.samples[c], ns)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.redis.denied = denied
	return denied, nil
}

// perAsk calls the subject again and again until the given duration is over. Before that, it makes
// some calls that are not timed. It returns the nanoseconds per call, and how many calls were
// allowed in total. Reading the clock would add much to a fast call, so perAsk reads it only once
// for many calls.
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

// redisSubjects returns the limiters to time under the workload w. If w has 64 callers or a single
// key, it returns all limiters. Otherwise it returns only two: this module's limiter, and the
// limiter of another module that the report compares it with.
func redisSubjects(w bench.RedisWork) (specs []bench.RedisSpec) {
	for _, s := range bench.RedisSpecs() {
		if w.Callers >= manyCallers || w.Keys == 1 || s.Name == stored || s.Name == redisPeer {
			specs = append(specs, s)
		}
	}
	return specs
}

// table returns the figures of all subjects in Redis as a table, with one row for each subject
// under each workload.
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
		if a.Keys != b.Keys {
			return a.Keys - b.Keys
		}
		if a.Cancelable == b.Cancelable {
			return 0
		} else if a.Cancelable {
			return 1
		}
		return -1
	})
	for _, w := range works {
		for _, s := range redisSubjects(w) {
			of := func(f figure[bench.RedisSample]) float64 { return f.of(l.samples[w][s.Name]) }
			rows = append(rows, []string{
				w.String(), title(s.Name), thousands(of(decisions)), percent(of(failed)),
				micros(of(waited)), micros(of(scriptTime)), micros(of(serverTime)),
			})
		}
	}
	return rows
}
