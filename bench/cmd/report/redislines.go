package main

import (
	"fmt"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/bench"
)

// These are names of subjects in bench.RedisSpecs. The report divides this module's figures by the figures of
// redis_rate because redis_rate, like this module, makes one round trip to the Redis server for a decision.
const (
	stored     = "limiter" // this module's limiter with a store
	storeAlone = "store"   // this module's store, called without a limiter
	redisPeer  = "redis_rate"
)

// manyCallers is the number of callers (goroutines) in the workloads with many callers at once.
const manyCallers = 64

// redisLines returns the lines of the report that need a redis-server.
func redisLines(s sizes) []line {
	var (
		lone = bench.RedisWork{Keys: 1, Callers: 1}
		hot  = bench.RedisWork{Keys: 1, Callers: manyCallers}
		wide = bench.RedisWork{Keys: s.serverKeys, Callers: manyCallers}
		keys = bench.Count(s.serverKeys) + " keys"
	)
	table := []line{
		inRedis("Redis: TokenBucket.Take, one hot key, 64 callers", hot, perSecond).titled("Redis, one key, 64 callers"),
		inRedis("Redis: TokenBucket.Take, "+keys+", uniform, 64 callers", wide, perSecond).titled("Redis, " + keys + ", 64 callers"),
		inRedis("Redis: TokenBucket.Take, one key, one caller", lone, latency).titled("Redis, one caller: time of a decision"),
	}
	for _, callers := range []int{1, 2, 4} {
		for _, cancelable := range []bool{false, true} {
			work := fmt.Sprintf("Redis: TokenBucket.Take, %s keys, uniform, callers: %d", bench.Count(s.few), callers)
			if cancelable {
				work += ", contexts that can be canceled"
			}
			table = append(table, inRedis(work, bench.RedisWork{Keys: s.few, Callers: callers, Cancelable: cancelable}, latency))
		}
	}
	return append(table,
		inRedis("Redis: server time in scripts per decision, one key, one caller", lone, scripts),
		inRedis("Redis: server time in scripts per decision, one hot key, 64 callers", hot, scripts),
		deniedOverFloor("Redis: TokenBucket.Allow, one key, serial, denied", deniedLimiter),
		deniedOverFloor("Redis: Store.Take, one key, serial, denied", deniedStore),
		redisBytes("Redis: bytes per key of 24 bytes, TokenBucket"),
	)
}

// A redisFigure is a figure in Redis, as the report shows it.
type redisFigure struct{ shown[bench.RedisSample] }

var (
	perSecond = redisFigure{shown[bench.RedisSample]{decisions, perSec, true}}
	latency   = redisFigure{shown[bench.RedisSample]{waited, micros, false}}
	scripts   = redisFigure{shown[bench.RedisSample]{scriptTime, micros, false}}
)

// inRedis returns a line of the report that compares this module's limiter with the peers (limiters
// of other modules). The figure f of all limiters is measured under the workload w.
func inRedis(work string, w bench.RedisWork, f redisFigure) line {
	return line{work: work, read: func(l *lab) (reading, error) {
		samples, err := l.redisWork(w)
		if err != nil {
			return reading{}, err
		}
		mine := samples[stored]
		to := func(name string) ratio {
			return newRatio(f.ratio(mine, samples[name]), name, f.written(samples[name]))
		}
		got := reading{
			value:    f.of(mine),
			measured: f.written(mine),
			best:     f.best(mine),
			base:     to(redisPeer),
		}
		if len(samples) == len(bench.RedisSpecs()) {
			got.peer = to(f.fastest(samples))
		}
		return got, nil
	}}
}

// fastest returns the name of the peer (limiter of another module) with the best median. It leaves
// out peers whose calls have failed, because they did less work.
func (f redisFigure) fastest(samples redisSamples) string {
	best := redisPeer
	for _, s := range bench.RedisSpecs() {
		if s.Name == stored || s.Name == storeAlone || failed.of(samples[s.Name]) > 0 {
			continue
		}
		if was, is := f.of(samples[best]), f.of(samples[s.Name]); f.more && is > was || !f.more && is < was {
			best = s.Name
		}
	}
	return best
}

// written returns the median of f as text. If calls failed, the text includes their share.
func (f redisFigure) written(samples []bench.RedisSample) string {
	text := f.write(f.of(samples))
	if share := failed.of(samples); share > 0 {
		text += ", " + percent(share) + " errors"
	}
	return text
}

// deniedOverFloor returns a line of the report that divides the time of a denial by the time of a
// call to the subject named floor. The parameter algo is the name of the subject that denies. This
// subject remembers a denial in the process, so it denies further calls without calling the Redis
// server.
func deniedOverFloor(work, algo string) line {
	mine, floor := cell{algo, oneDenied}, cell{"floor", oneDenied}
	return line{work: work, read: func(l *lab) (reading, error) {
		denied, err := l.redisDenied()
		if err != nil {
			return reading{}, err
		}
		return reading{
			value:    denied.median(mine),
			measured: nanos(denied.median(mine)),
			best:     nanos(denied.best(mine)),
			base:     denied.compared(mine, floor, "floor"),
		}, nil
	}}
}

// redisBytes returns a line of the report for the memory that one key takes in Redis, for each
// algorithm of this module and for each peer (limiter of another module).
func redisBytes(work string) line {
	return line{work: work, read: func(l *lab) (reading, error) {
		if err := l.startRedis(); err != nil {
			return reading{}, err
		}
		bytes := make(map[string]int64)
		var all []string
		for _, s := range bench.RedisStates() {
			n, err := bench.RedisBytes(l.redis.server, s, 1)
			if err != nil {
				return reading{}, err
			}
			bytes[s.Name] = n
			all = append(all, fmt.Sprintf("%s %d", s.Name, n))
			if s.Name != string(ratelimit.AlgorithmSlidingWindowLog) {
				continue
			}
			if n, err = bench.RedisBytes(l.redis.server, s, logEntries); err != nil {
				return reading{}, err
			}
			all = append(all, fmt.Sprintf("with %d entries %d", logEntries, n))
		}
		mine, peer := float64(bytes[string(ratelimit.AlgorithmTokenBucket)]), float64(bytes[redisPeer])
		return reading{
			value:    mine,
			measured: strings.Join(all, ", "),
			base:     newRatio(mine/peer, redisPeer, fmt.Sprintf("%.0f", peer)),
		}, nil
	}}
}

// logEntries is the number of entries with which redisBytes measures a full sliding window log.
const logEntries = 1000
