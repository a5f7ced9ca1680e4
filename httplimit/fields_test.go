package httplimit_test

import (
	"cmp"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// An item is one string of a structured list, with its parameters.
type item struct {
	name   string
	params map[string]int64
}

// parseList reads header lines as a List of Strings with Integers as parameters, by the
// algorithms of RFC 9651, 4.2. It knows nothing else and is as strict as these.
func parseList(t testing.TB, lines []string) (items []item) {
	t.Helper()
	in := strings.Join(lines, ", ")
	for in != "" {
		require.Equal(t, byte('"'), in[0], "a string begins: %s", in)
		in = in[1:]
		it := item{params: map[string]int64{}}
		for {
			if in == "" {
				require.Fail(t, "a string does not end")
			}
			c := in[0]
			in = in[1:]
			if c == '"' {
				break
			}
			if c == '\\' {
				require.NotEmpty(t, in)
				c = in[0]
				require.Contains(t, `"\`, string(c), "only these are escaped")
				in = in[1:]
			}
			if c < ' ' || c > '~' {
				require.Fail(t, "not printable ASCII", "%q", c)
			}
			it.name += string(c)
		}
		for strings.HasPrefix(in, ";") {
			key, rest, found := strings.Cut(in[1:], "=")
			require.True(t, found, "a parameter has a value")
			if key == "" || strings.Trim(key, " abcdefghijklmnopqrstuvwxyz") != "" {
				require.Fail(t, "not a key", "%q", key)
			}
			end := strings.IndexFunc(rest, func(c rune) bool { return c != '-' && (c < '0' || c > '9') })
			if end < 0 {
				end = len(rest)
			}
			require.LessOrEqual(t, end, 15, "an integer has at most 15 digits")
			n, err := strconv.ParseInt(rest[:end], 10, 64)
			require.NoError(t, err)
			it.params[strings.TrimLeft(key, " ")] = n
			in = rest[end:]
		}
		items = append(items, it)
		in = strings.TrimLeft(in, " \t")
		if in == "" {
			break
		}
		require.Equal(t, byte(','), in[0], "items are separated: %s", in)
		in = strings.TrimLeft(in[1:], " \t")
		require.NotEmpty(t, in, "no comma at the end")
	}
	return items
}

// A served is a real server, and clients of it.
type served struct {
	url string
	h1  *http.Client
	h2  *http.Client
}

// serve starts a real server for HTTP/1.1 and, without TLS, HTTP/2.
func serve(t testing.TB, h http.Handler) served {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: h, Protocols: protocols, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	only := new(http.Protocols)
	only.SetUnencryptedHTTP2(true)
	h1, h2 := &http.Transport{}, &http.Transport{Protocols: only}
	t.Cleanup(func() {
		h1.CloseIdleConnections()
		h2.CloseIdleConnections()
		require.NoError(t, server.Close())
		<-done
	})
	return served{"http://" + listener.Addr().String(), &http.Client{Transport: h1}, &http.Client{Transport: h2}}
}

// get returns the response to a GET, whose body is read and closed.
func (s served) get(t testing.TB, c *http.Client, path string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := c.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res
}

// own returns the results that a client is shown, by the words of the documentation: its own
// rules, with those that have the fewest units left first, at most 8.
func own(info *httplimit.Info, hidden ...string) (shown []ratelimit.Result) {
	for _, res := range info.Rules {
		if res.Limit >= 0 && !res.Degraded && !slices.Contains(hidden, res.Rule) {
			shown = append(shown, res)
		}
	}
	slices.SortStableFunc(shown, func(a, b ratelimit.Result) int { return cmp.Compare(a.Remaining, b.Remaining) })
	return shown[:min(len(shown), 8)]
}

// ceil returns d in seconds, rounded up.
func ceil(d time.Duration) int64 {
	s := d.Truncate(time.Second)
	if s < d {
		s += time.Second
	}
	return int64(s / time.Second)
}

// TestFields compares the header fields of real responses with the Info.
func TestFields(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "per-client", Endpoint: "/a", Rate: ratelimit.PerMinute(5).WithBurst(3),
			Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600), "free": ratelimit.PerMinute(5), "staff": ratelimit.Unlimited}},
		{Name: "dé%\"\\\r\nily", Endpoint: "/a", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerDay(1000)},
		{Name: "by ip", Endpoint: "/a", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog,
			Rate: ratelimit.Rate{Requests: 50, Per: 1500 * time.Millisecond}},
		{Name: "short", Endpoint: "/a", Algorithm: ratelimit.AlgorithmSlidingWindowCounter,
			Rate: ratelimit.Rate{Requests: 900, Per: 999 * time.Millisecond}},
		{Name: "global", Endpoint: "/a", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(2000)},
		{Name: "resolved", Endpoint: "/a", Rate: ratelimit.PerSecond(1),
			Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(700), true }},
	}
	names := map[string]string{`d%C3%A9%25"\%0D%0Aily`: rules[1].Name}
	windows := map[string]int64{"per-client": 36, rules[1].Name: 86400, "by ip": 2}
	for _, form := range []httplimit.Headers{httplimit.HeadersDraft11, httplimit.HeadersDelta, httplimit.HeadersEpoch, httplimit.HeadersNone} {
		for _, shared := range []bool{false, true} {
			var mu sync.Mutex
			var info *httplimit.Info
			note := func(i *httplimit.Info) {
				mu.Lock()
				defer mu.Unlock()
				info = i
			}
			l, clock := limited(t, rules, nil)
			next := http.NewServeMux()
			next.HandleFunc("/a", func(_ http.ResponseWriter, r *http.Request) {
				i, _ := httplimit.FromContext(r.Context())
				note(i)
			})
			server := serve(t, wrap(t, l, httplimit.Config{
				Headers: form, ShowShared: shared, Info: true,
				Client: func(r *http.Request) (string, string, bool) {
					return r.Header.Get("User"), r.Header.Get("Tier"), true
				},
				Denied: func(w http.ResponseWriter, r *http.Request, i *httplimit.Info) {
					note(i)
					httplimit.Problem(w, r, i)
				},
			}, next))
			hidden := []string{"global"}
			if shared {
				hidden = nil
			}
			denied := 0
			for i, tier := range []string{"free", "free", "free", "free", "free", "paid", "paid", "staff", "free", "", ""} {
				c := server.h1
				if i%2 == 1 {
					c = server.h2
				}
				res := server.get(t, c, "/a", "User", "u"+tier, "Tier", tier)
				clock.Advance(1234 * time.Millisecond)
				mu.Lock()
				got := *info
				mu.Unlock()
				require.Equal(t, res.StatusCode == http.StatusOK, got.Result.Allowed)
				if !got.Result.Allowed {
					denied++
					require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
					require.Equal(t, strconv.FormatInt(ceil(got.Result.RetryAfter), 10), res.Header.Get("Retry-After"))
				} else {
					require.Empty(t, res.Header.Values("Retry-After"))
				}
				shown := own(&got, hidden...)
				binding := slices.DeleteFunc(slices.Clone(shown), func(r ratelimit.Result) bool { return !got.Result.Allowed && r.Allowed })
				switch form {
				case httplimit.HeadersDraft11:
					limits, policies := parseList(t, res.Header.Values("RateLimit")), parseList(t, res.Header.Values("RateLimit-Policy"))
					require.Len(t, limits, len(binding))
					for i, want := range binding {
						require.Equal(t, want.Rule, cmp.Or(names[limits[i].name], limits[i].name))
						require.EqualValues(t, want.Remaining, limits[i].params["r"])
						after, told := limits[i].params["t"]
						require.Equal(t, want.Remaining < want.Limit, told)
						pace := int64(0) // the time in which the units that are left come back
						for _, p := range policies {
							if bucket := want.Rule == "per-client" || want.Rule == "global"; bucket && told && p.name == limits[i].name {
								pace = (int64(want.Remaining)*p.params["w"] + int64(want.Limit) - 1) / int64(want.Limit)
							}
						}
						if !want.Allowed {
							require.Equal(t, max(ceil(want.RetryAfter), pace), after)
							if want.Remaining == 0 {
								require.LessOrEqual(t, after, ceil(got.Result.RetryAfter), "Retry-After is not earlier")
							}
						}
						require.GreaterOrEqual(t, after, pace, "who paces itself by it stays within the rate")
						require.LessOrEqual(t, after, max(ceil(max(want.ResetAfter, want.RetryAfter)), pace))
					}
					require.Len(t, policies, len(shown))
					for i, want := range shown {
						require.Equal(t, want.Rule, cmp.Or(names[policies[i].name], policies[i].name))
						require.EqualValues(t, want.Limit, policies[i].params["q"])
						w := windows[want.Rule]
						switch {
						case want.Rule == "per-client" && tier != "":
							w = 60
						case want.Rule == "global":
							w = 1
						}
						require.Equal(t, w, policies[i].params["w"], want.Rule)
						_, told := policies[i].params["w"]
						require.Equal(t, w > 0, told, "not told, rather than 0")
					}
				case httplimit.HeadersDelta, httplimit.HeadersEpoch:
					require.Equal(t, strconv.Itoa(binding[0].Limit), res.Header.Get("X-RateLimit-Limit"))
					require.Equal(t, strconv.Itoa(binding[0].Remaining), res.Header.Get("X-RateLimit-Remaining"))
					reset, err := strconv.ParseInt(res.Header.Get("X-RateLimit-Reset"), 10, 64)
					require.NoError(t, err)
					if form == httplimit.HeadersDelta && !got.Result.Allowed {
						require.Equal(t, ceil(binding[0].RetryAfter), reset)
					}
					if form == httplimit.HeadersEpoch {
						require.Greater(t, reset, start.Unix(), "by the machine's clock")
					}
				}
				if form != httplimit.HeadersDraft11 {
					require.Empty(t, res.Header.Values("RateLimit"))
					require.Empty(t, res.Header.Values("RateLimit-Policy"))
				}
				if form == httplimit.HeadersDraft11 || form == httplimit.HeadersNone {
					require.Empty(t, res.Header.Values("X-RateLimit-Limit"))
				}
			}
			require.Positive(t, denied)
		}
	}
}

// TestFieldsOfWindows has rules whose windows are those of a calendar, and differ in length: the parameter w is the length of
// the window that contains the time of the response. The time in a bubble of synctest begins on January 1, 2000.
func TestFieldsOfWindows(t *testing.T) {
	const day = 86400
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "month", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmFixedWindow,
				Rate:  ratelimit.Rate{Requests: 2, Window: ratelimit.Calendar("month", "")},
				Tiers: map[string]ratelimit.Rate{"paid": {Requests: 3, Window: ratelimit.Monthly(15, "")}}},
			{Name: "day", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmFixedWindow,
				Rate: ratelimit.Rate{Requests: 9, Window: ratelimit.Calendar("day", "Europe/Berlin")}},
			{Name: "first", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmFixedWindow,
				Rate: ratelimit.Rate{Requests: 9, Per: time.Hour, Window: "first"}},
		}, nil)
		require.NoError(t, err)
		h := wrap(t, l, httplimit.Config{Client: func(r *http.Request) (string, string, bool) {
			return r.Header.Get("User"), r.Header.Get("Tier"), true
		}}, ok)
		for _, row := range []struct {
			at         string
			tier       string
			month, day int64
			why        string
		}{
			{"2000-01-01T00:00:00Z", "", 31 * day, day, "January"},
			{"2000-01-31T23:59:59Z", "", 31 * day, day, "its last second"},
			{"2000-02-01T00:00:00Z", "", 29 * day, day, "February of a leap year"},
			{"2000-02-01T00:00:00Z", "paid", 31 * day, day, "the month that began on January 15"},
			{"2000-02-15T00:00:00Z", "paid", 29 * day, day, "the month that begins on February 15"},
			{"2000-03-25T23:00:00Z", "", 31 * day, 23 * 3600, "the clocks of Berlin are set forward on that day"},
			{"2000-10-29T12:00:00Z", "", 31 * day, 25 * 3600, "and set back on that day"},
		} {
			at, err := time.Parse(time.RFC3339, row.at)
			require.NoError(t, err)
			time.Sleep(time.Until(at))
			w := get(t, h, "/", "203.0.113.9:1", "User", row.at, "Tier", row.tier)
			require.Equal(t, http.StatusOK, w.Code)
			windows := map[string]int64{}
			for _, i := range parseList(t, w.Header().Values("RateLimit-Policy")) {
				windows[i.name] = i.params["w"]
			}
			require.Equal(t, map[string]int64{"month": row.month, "day": row.day, "first": 3600}, windows, row.why)
		}

		for range 2 {
			get(t, h, "/", "203.0.113.9:1", "User", "u")
		}
		w := get(t, h, "/", "203.0.113.9:1", "User", "u")
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Equal(t, strconv.Itoa(2*day+12*3600), w.Header().Get("Retry-After"), "until November begins in UTC")
	})
}

// TestFieldsOfAMonthAlone requires the length of the present month where a limiter has one rule, whose text could be kept.
func TestFieldsOfAMonthAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "month", Endpoint: "*", Algorithm: ratelimit.AlgorithmFixedWindow,
			Rate: ratelimit.Rate{Requests: 2, Window: ratelimit.Calendar("month", "")}}}, nil)
		require.NoError(t, err)
		h := wrap(t, l, httplimit.Config{}, ok)
		for _, days := range []int64{31, 29, 31} { // of the year 2000, in which the clock begins
			w := get(t, h, "/", "203.0.113.9:1")
			policies := parseList(t, w.Header().Values("RateLimit-Policy"))
			require.Len(t, policies, 1)
			require.Equal(t, days*86400, policies[0].params["w"])
			time.Sleep(time.Duration(days) * 24 * time.Hour)
		}
	})
}

// TestManyRules shows the 8 rules with the fewest units left.
func TestManyRules(t *testing.T) {
	var rules []ratelimit.Rule
	for i := range 20 {
		rules = append(rules, ratelimit.Rule{Name: strconv.Itoa(i), Endpoint: "*", Rate: ratelimit.PerHour(1 + (i*7)%20)})
	}
	l, _ := limited(t, rules, nil)
	h := wrap(t, l, httplimit.Config{}, ok)
	for _, want := range []int{200, 429} {
		w := get(t, h, "/", "203.0.113.9:1")
		require.Equal(t, want, w.Code)
		var left []int64
		for _, it := range parseList(t, w.Result().Header.Values("RateLimit-Policy")) {
			left = append(left, it.params["q"])
		}
		assert.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8}, left)
		if want == 429 {
			assert.Equal(t, []item{{"0", map[string]int64{"r": 0, "t": 3600}}}, parseList(t, w.Result().Header.Values("RateLimit")))
		}
	}
}

// TestSchedules plays random schedules to each algorithm: a client that obeys Retry-After is
// never denied twice, one that sends r requests is never denied, and after t more there is more.
func TestSchedules(t *testing.T) {
	schedules := 1000
	if testing.Short() {
		schedules = 100
	}
	for _, a := range []ratelimit.Algorithm{
		ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket, ratelimit.AlgorithmFixedWindow,
		ratelimit.AlgorithmSlidingWindowLog, ratelimit.AlgorithmSlidingWindowCounter,
	} {
		t.Run(string(a), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(13, 1))
			for range schedules {
				playSchedule(t, rnd, a)
			}
		})
	}
}

func playSchedule(t *testing.T, rnd *rand.Rand, a ratelimit.Algorithm) {
	rate := ratelimit.Rate{Requests: 1 + rnd.IntN(8), Per: time.Duration(1 + rnd.Int64N(int64(30*time.Second)))}
	if (a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket) && rnd.IntN(2) == 0 {
		rate.Burst = 1 + rnd.IntN(8)
	}
	l, clock := limited(t, nil, &ratelimit.Rule{Algorithm: a, Rate: rate})
	h, r := wrap(t, l, httplimit.Config{}, ok), request(t, "/", "203.0.113.9:1")
	ask := func() (granted bool, left, after int64) {
		w := answer(h, r)
		limits := parseList(t, w.Result().Header.Values("RateLimit"))
		require.Len(t, limits, 1)
		after, told := limits[0].params["t"]
		require.Equal(t, limits[0].params["r"] < parseList(t, w.Result().Header.Values("RateLimit-Policy"))[0].params["q"], told)
		if w.Code == http.StatusOK {
			return true, limits[0].params["r"], after
		}
		retry, err := strconv.ParseInt(w.Header().Get("Retry-After"), 10, 64)
		require.NoError(t, err)
		require.Equal(t, retry, after, "with one rule both are the same")
		return false, limits[0].params["r"], retry
	}
	for range 3 {
		clock.Advance(time.Duration(rnd.Int64N(int64(rate.Per))))
		granted, left, after := ask()
		if !granted {
			clock.Advance(time.Duration(after) * time.Second)
			granted, _, _ = ask()
			require.True(t, granted, "denied twice: %v", rate)
			continue
		}
		for range left {
			granted, _, _ = ask()
			require.True(t, granted, "of %d left, of %v", left, rate)
		}
		clock.Advance(time.Duration(after) * time.Second)
		granted, _, _ = ask()
		require.True(t, granted, "%d s after %d were left, of %v", after, left, rate)
	}
}
