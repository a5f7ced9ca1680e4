package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/bench"
)

// What is promised of a store in Redis is compared with redis_rate, the peer that
// decides the same in one round trip. Two more peers are shown.
const (
	stored    = "limiter" // of this module
	redisPeer = "redis_rate"
)

// redisLines is the part of the table that needs a redis-server.
func redisLines(s sizes) []line {
	const callers = 64
	var (
		one  = bench.RedisWork{Keys: 1, Callers: 1}
		hot  = bench.RedisWork{Keys: 1, Callers: callers}
		wide = bench.RedisWork{Keys: s.redisKeys, Callers: callers}
	)
	return []line{
		faster("Redis: TokenBucket.Take, one hot key, 64 callers", hot, 4).inSummary(),
		faster("Redis: TokenBucket.Take, "+bench.Count(s.redisKeys)+" keys, uniform, 64 callers", wide, 2.2),
		overRedis("Redis: TokenBucket.Take, one key, one caller", one, latency, 1.05),
		overRedis("Redis: server time in scripts per decision, one key, one caller", one, scripts, 1.05),
		overRedis("Redis: server time in scripts per decision, one hot key, 64 callers", hot, scripts, 0.6),
		deniedOverFloor("Redis: TokenBucket.Allow, one key, serial, denied", deniedLimiter, 3),
		deniedOverFloor("Redis: Store.Take, one key, serial, denied", deniedStore, 3),
		redisBytes("Redis: bytes per key of 24 bytes, TokenBucket", 1.5),
	}
}

// faster promises at least bound times as many decisions in a second as the peer.
func faster(work string, w bench.RedisWork, bound float64) line {
	return line{work: work, target: fmt.Sprintf("≥ %.4g × %s", bound, redisPeer), bound: 1 / bound,
		read: func(l *lab) (reading, error) {
			samples, err := l.redisWork(w)
			if err != nil {
				return reading{}, err
			}
			return reading{
				value:    perSecond.ratio(samples[redisPeer], samples[stored]),
				measured: side(samples, perSecond, func(n float64) string { return thousands(n) + "/s" }),
				ratio:    fmt.Sprintf("%.2f", perSecond.ratio(samples[stored], samples[redisPeer])),
			}, nil
		}}
}

// overRedis promises at most bound times the peer's f.
func overRedis(work string, w bench.RedisWork, f figure, bound float64) line {
	return line{work: work, target: fmt.Sprintf("≤ %.4g × %s", bound, redisPeer), bound: bound,
		read: func(l *lab) (reading, error) {
			samples, err := l.redisWork(w)
			if err != nil {
				return reading{}, err
			}
			r := f.ratio(samples[stored], samples[redisPeer])
			return reading{r, side(samples, f, micros), fmt.Sprintf("%.2f", r)}, nil
		}}
}

// side writes f of this module's limiter and, beside it, of the others.
func side(samples map[string][]bench.RedisSample, f figure, write func(float64) string) string {
	var others []string
	for _, s := range bench.RedisSpecs() {
		if s.Name == stored {
			continue
		}
		text := s.Name + " " + write(f.of(samples[s.Name]))
		if share := failed.of(samples[s.Name]); share > 0 {
			text += " (" + percent(share) + " errors)"
		}
		others = append(others, text)
	}
	return write(f.of(samples[stored])) + "; " + strings.Join(others, ", ")
}

// deniedOverFloor promises that a denial costs at most bound times what the floor
// in memory does.
func deniedOverFloor(work, algo string, bound float64) line {
	mine, floor := cell{algo, oneDenied}, cell{"floor", oneDenied}
	return line{work: work, target: fmt.Sprintf("≤ %.4g × floor", bound), bound: bound,
		read: func(l *lab) (reading, error) {
			denied, err := l.redisDenied()
			if err != nil {
				return reading{}, err
			}
			r := denied.ratio(mine, floor)
			return reading{
				value:    r,
				measured: fmt.Sprintf("%s; floor %s", nanos(denied.median(mine)), nanos(denied.median(floor))),
				ratio:    fmt.Sprintf("%.2f", r),
			}, nil
		}}
}

// redisBytes promises that a token bucket takes at most bound times the memory in
// Redis that the peer does, and shows the other algorithms.
func redisBytes(work string, bound float64) line {
	return line{work: work, target: fmt.Sprintf("≤ %.4g × %s", bound, redisPeer), bound: bound,
		read: func(l *lab) (reading, error) {
			if err := l.redis.start(); err != nil {
				return reading{}, err
			}
			bytes := make(map[string]int64)
			var others []string
			for _, s := range bench.RedisStates() {
				n, err := bench.RedisBytes(l.redis.server, s, 1)
				if err != nil {
					return reading{}, err
				}
				bytes[s.Name] = n
				others = append(others, fmt.Sprintf("%s %d", s.Name, n))
				if s.Name != string(ratelimit.AlgorithmSlidingWindowLog) {
					continue
				}
				if n, err = bench.RedisBytes(l.redis.server, s, logEntries); err != nil {
					return reading{}, err
				}
				others = append(others, fmt.Sprintf("with %d entries %d", logEntries, n))
			}
			mine := bytes[string(ratelimit.AlgorithmTokenBucket)]
			r := float64(mine) / float64(bytes[redisPeer])
			return reading{r, strings.Join(others, ", "), fmt.Sprintf("%.2f", r)}, nil
		}}
}

// logEntries is how many asks a full log has granted.
const logEntries = 1000

// micros writes nanoseconds as microseconds, or as milliseconds from one on.
func micros(ns float64) string {
	if ns >= float64(time.Millisecond) {
		return millis(time.Duration(ns))
	}
	return fmt.Sprintf("%.3g µs", ns/float64(time.Microsecond))
}

// thousands writes n in thousands.
func thousands(n float64) string { return fmt.Sprintf("%.3gk", n/1000) }

// percent writes a share.
func percent(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) }
