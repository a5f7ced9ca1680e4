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
	samples := make(redisSamples)
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

	got, err := inRedis("work", w, perSecond).read(l)
	require.NoError(t, err)
	more := ratio{4, "4.00 × redis_rate (0.75k/s)"}
	assert.Equal(t, reading{3000, "3k/s", "4k/s", more, more}, got)

	got, err = inRedis("work", w, latency).read(l)
	require.NoError(t, err)
	same := ratio{0.25, "0.25 × redis_rate (90 µs)"}
	assert.Equal(t, reading{22500, "22.5 µs", "15 µs", same, same}, got)
}

// The fastest peer has the most decisions or the shortest times, and no errors.
func TestFastestInRedis(t *testing.T) {
	at := func(perSecond float64, wait time.Duration, errors float64) []bench.RedisSample {
		return []bench.RedisSample{{PerSecond: perSecond, Latency: wait, Errors: errors}}
	}
	samples := redisSamples{
		"limiter": at(99, 1, 0), "store": at(99, 1, 0),
		"redis_rate": at(10, 5, 0), "throttled": at(50, 2, 0.1), "ulule": at(20, 4, 0),
	}
	assert.Equal(t, "ulule", perSecond.fastest(samples))
	assert.Equal(t, "ulule", latency.fastest(samples))
	samples["ulule"] = at(5, 6, 0)
	assert.Equal(t, "redis_rate", perSecond.fastest(samples))
	assert.Equal(t, "redis_rate", latency.fastest(samples))
	assert.Equal(t, "0.05k/s, 10 % errors", perSecond.written(samples["throttled"]))
}

// Works of few callers on many keys compare this module with one peer.
func TestRedisSubjects(t *testing.T) {
	names := func(w bench.RedisWork) (got []string) {
		for _, s := range redisSubjects(w) {
			got = append(got, s.Name)
		}
		return got
	}
	assert.Len(t, names(bench.RedisWork{Keys: 1, Callers: 1}), 5)
	assert.Len(t, names(bench.RedisWork{Keys: 10, Callers: 64}), 5)
	assert.Equal(t, []string{"limiter", "redis_rate"}, names(bench.RedisWork{Keys: 10, Callers: 4, Cancelable: true}))
}

func TestRedisTable(t *testing.T) {
	var out bytes.Buffer
	writeRedis(&out, &sampled(bench.RedisWork{Keys: 1, Callers: 64}).redis)
	rows := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, rows, 3+2+5+2)
	assert.Equal(t, "| keys=1/callers=64 | limiter | 3k | 0 % | 22.5 µs | 22.5 µs | 22.5 µs |", rows[5])

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
	assert.Equal(t, n, strings.Count(out.String(), "| not measured: no redis-server |  |  |  |"))
	assert.NotContains(t, out.String(), "## Promises")
	assert.Contains(t, progress.String(), bench.ErrNoRedis.Error())

	t.Setenv("RATELIMIT_REQUIRE_REDIS", "1")
	_, err = report(&out, &progress, options{pattern: "^Redis: "})
	assert.ErrorContains(t, err, "there is no redis-server")
}

// A report that has no line about Redis starts no server.
func TestRedisIsStartedForItsLines(t *testing.T) {
	l := newLab(quick, io.Discard)
	defer l.servers.close()
	_, err := take(l, []line{collection("collection", 10)})
	require.NoError(t, err)
	assert.Nil(t, l.redis.server)

	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("there is no redis-server")
	}
	_, err = take(l, []line{redisBytes("bytes")})
	require.NoError(t, err)
	assert.NotNil(t, l.redis.server)
}
