package main

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/bench"
)

// sampled returns a lab that has done w, in two rounds, of which the second was
// twice as slow.
func sampled(w bench.RedisWork) *lab {
	l := newLab(quick, io.Discard)
	l.redis.server = new(bench.RedisServer) // none is started
	samples := make(map[string][]bench.RedisSample)
	for name, speed := range map[string]float64{"limiter": 4, "store": 2, "redis_rate": 1, "throttled": 1, "ulule": 1} {
		for _, slow := range []float64{1, 2} {
			cost := time.Duration(slow / speed * 60e3)
			samples[name] = append(samples[name], bench.RedisSample{
				PerSecond: 1000 * speed / slow, Latency: cost, Effort: bench.Effort{Scripts: cost, Whole: cost},
			})
		}
	}
	for i := range samples["throttled"] {
		samples["throttled"][i].Errors = 0.5
	}
	l.redis.samples[w] = samples
	return l
}

func TestRedisRatiosAreTakenWithinRounds(t *testing.T) {
	w := bench.RedisWork{Keys: 1, Callers: 1}
	l := sampled(w)

	got, err := faster("work", w, 4).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{
		value:    0.25,
		measured: "3k/s; store 1.5k/s, redis_rate 0.75k/s, throttled 0.75k/s (50 % errors), ulule 0.75k/s",
		ratio:    "4.00",
	}, got)
	assert.Equal(t, meets, verdictOn(got.value, faster("work", w, 4).bound))
	assert.Equal(t, misses, verdictOn(got.value, faster("work", w, 4.1).bound))

	got, err = overRedis("work", w, latency, 1.1).read(l)
	require.NoError(t, err)
	assert.Equal(t, reading{
		value:    0.25,
		measured: "22.5 µs; store 45 µs, redis_rate 90 µs, throttled 90 µs (50 % errors), ulule 90 µs",
		ratio:    "0.25",
	}, got)
}

func TestRedisTable(t *testing.T) {
	var out bytes.Buffer
	writeRedis(&out, &sampled(bench.RedisWork{Keys: 1, Callers: 64}).redis)
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, rows, 2+5)
	assert.Equal(t, "| keys=1/callers=64 | limiter | 3k | 0 % | 22.5 µs | 22.5 µs | 22.5 µs |", rows[2])

	out.Reset()
	writeRedis(&out, new(redisLab))
	assert.Empty(t, out.String())
}

func TestMicros(t *testing.T) {
	assert.Equal(t, "7.12 µs", micros(7123))
	assert.Equal(t, "1.5 ms", micros(1.5e6))
	assert.Equal(t, "12.3k", thousands(12345))
	assert.Equal(t, "57 %", percent(0.571))
}

// Without a redis-server, what needs one is shown as not measured, unless it has to
// be there.
func TestReportWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("RATELIMIT_REQUIRE_REDIS", "")
	var out, progress bytes.Buffer
	kept, err := report(&out, &progress, options{pattern: "^Redis: "})
	require.NoError(t, err)
	assert.True(t, kept)
	n := len(redisLines(full))
	assert.Equal(t, n, strings.Count(out.String(), "| no redis-server on this machine |  | not measured |"))
	assert.Contains(t, progress.String(), bench.ErrNoRedis.Error())

	t.Setenv("RATELIMIT_REQUIRE_REDIS", "1")
	_, err = report(&out, &progress, options{pattern: "^Redis: "})
	assert.ErrorContains(t, err, "there is no redis-server")
}

// A report that has no line about Redis starts no server.
func TestRedisIsStartedForItsLines(t *testing.T) {
	l := newLab(quick, io.Discard)
	defer l.redis.close()
	_, err := take(l, []line{collection("collection", 10, time.Second)}, false)
	require.NoError(t, err)
	assert.Nil(t, l.redis.server)

	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	_, err = take(l, []line{redisBytes("bytes", 1)}, false)
	require.NoError(t, err)
	assert.NotNil(t, l.redis.server)
}
