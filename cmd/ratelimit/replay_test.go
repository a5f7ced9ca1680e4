package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

const exampleLimits = `{"rules": [
  {"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "3/m", "key": "ip"},
  {"endpoint": "/search", "algorithm": "TokenBucket", "rate": "10/m", "mode": "shadow"}
], "default": {"algorithm": "TokenBucket", "rate": "20/s"}}`

const exampleOther = `{"rules": [
  {"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "5/m", "key": "ip"},
  {"endpoint": "/search", "algorithm": "TokenBucket", "rate": "10/m"}
]}`

// exampleLog returns a log of an hour, in which two hosts try to log in.
func exampleLog() string {
	var b strings.Builder
	at := time.Date(2026, 10, 10, 12, 0, 0, 0, time.UTC)
	line := func(i int, host, path string) {
		fmt.Fprintf(&b, "%s - - [%s] \"GET %s HTTP/1.1\" 200 512 \"-\" \"curl/8.5.0\"\n", host,
			at.Add(time.Duration(i)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), path)
	}
	for i := range 3600 {
		line(i, fmt.Sprintf("10.0.0.%d", i%7), fmt.Sprintf("/search?q=%d", i))
		if i%30 == 0 {
			line(i, fmt.Sprintf("10.0.0.%d", i%7), "/login")
		}
		if i >= 600 && i < 700 || i >= 3000 && i < 3020 {
			line(i, "203.0.113.9", "/login")
		}
		if i >= 650 && i < 670 {
			line(i, "203.0.113.5", "/login")
		}
	}
	return b.String()
}

// The output is the one in docs/tool.md, which TestDocs compares.
const exampleReplay = `3,860 requests, 2026-10-10 12:00:00 to 2026-10-10 12:59:59 UTC
denied: 128 requests (3.32 %) of 2 of 9 clients

rule       requests  denied                         first                 last
/login          260     128  49.23 %  2026-10-10 12:10:03  2026-10-10 12:50:19
* /search     3,600       0   0.00 %                    -                    -
default       3,600       0   0.00 %                    -                    -
* in shadow mode: what it would have denied, not in the sum above

by hour, UTC      requests  denied
2026-10-10 12:00     3,860     128  ##############################

top offenders   by rule  denied
ip:203.0.113.9  /login      111
ip:203.0.113.5  /login       17

keys by the least that was left  denied  none  <10 %  <25 %  <50 %  more
/login                                2     0      0      0      0     7
/search                               0     0      0      0      0     7
default                               0     0      0      0      0     7
`

func TestReplay(t *testing.T) {
	files := map[string]string{"access.log": exampleLog(), "limits.json": exampleLimits, "other.json": exampleOther}
	got := runIn(t, files, "replay", "access.log", "-config", "limits.json")
	require.Equal(t, call{exitOK, exampleReplay, ""}, got)
	require.Equal(t, call{exitFound, exampleReplay, "denied: 128 of 3,860 requests (3.32 %), more than -max-denied 3.31 %\n"},
		runIn(t, files, "replay", "access.log", "-config", "limits.json", "-max-denied", "3.31%"))
	require.Equal(t, exitOK, runIn(t, files, "replay", "access.log", "-config", "limits.json", "-max-denied", "3.4%").code)

	got = runIn(t, files, "replay", "access.log", "-config", "limits.json", "-against", "other.json")
	require.Equal(t, call{exitOK, exampleReplay + exampleDifference, ""}, got)

	// The same log, compressed, from the standard input.
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write([]byte(exampleLog()))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.Equal(t, call{exitOK, exampleReplay, ""}, runOf(t, files, packed.String(), "replay", "-config", "limits.json", "-"))

	for line := range strings.Lines(exampleReplay + exampleDifference) {
		require.LessOrEqual(t, len(line), 81)
	}
}

const exampleDifference = `
other.json denies 120 (3.11 %), limits.json 128
denied by both: 120

denied only by limits.json: 8 (0.21 %)
rule    denied
/login       8

top clients     by rule  denied
ip:203.0.113.9  /login        6
ip:203.0.113.5  /login        2

denied only by other.json: 0 (0.00 %)
`

func TestReplayJSON(t *testing.T) {
	files := map[string]string{"access.log": exampleLog() + "broken\n", "limits.json": exampleLimits, "other.json": exampleOther}
	got := runIn(t, files, "replay", "access.log", "-config", "limits.json", "-against", "other.json", "-json", "-enforce", "-top", "1")
	require.Equal(t, exitOK, got.code)
	var out replayJSON
	d := json.NewDecoder(strings.NewReader(got.out))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&out))
	require.Equal(t, logCount{Lines: 3861, Broken: 1}, out.Log)
	require.Equal(t, uint64(128), out.Denied)
	require.Equal(t, uint64(3600), out.Rules[1].Requests)
	require.False(t, out.Rules[1].Shadow, "-enforce")
	require.Equal(t, uint64(0), out.Rules[2].Requests, "-enforce: the rule for /search applies in place of the default")
	require.Len(t, out.Offenders, 1)
	require.Equal(t, uint64(8), out.Report.Against.OnlyOne.Denied)
}

// logLine returns a line of a log: a request for a path at a second after noon.
func logLine(second int, path string) string {
	return fmt.Sprintf("10.0.0.1 - - [10/Oct/2026:12:00:%02d +0000] \"GET %s HTTP/1.1\" 200 5\n", second, path)
}

// oddFiles returns logs and rules that are wrong, or that few would write.
func oddFiles() map[string]string {
	line := logLine
	return map[string]string{
		"limits.json": exampleLimits, "bad.json": `{"rules": [{"endpoint": "/a"}]}`, "empty.log": "", "none.log": "x\ny\n",
		"good.log":  line(0, "/a"),
		"evil.log":  "\x1b[2J\x1b]0;title\a\n" + line(0, "/\x1b[31mred") + line(0, "/a\\x1b"),
		"order.log": line(5, "/login") + line(3, "/login") + line(1, "/login") + line(4, "/login") + line(9, "/login"),
		"long.log":  line(0, "/a") + strings.Repeat("x", 10<<20) + "\n" + line(1, "/b"),
		"evil.json": `{"rules": [{"name": "\u001b[31mx", "endpoint": "/\u001b[31mred", "algorithm": "TokenBucket", "rate": "1/h"}]}`,
	}
}

func TestReplayBad(t *testing.T) {
	files := oddFiles()
	for _, row := range []struct {
		args []string
		code int
		err  string
	}{
		{nil, exitUsage, "an argument is missing"},
		{[]string{"good.log"}, exitUsage, "-config is missing"},
		{[]string{"good.log", "-config", "limits.json", "-format", "xml"}, exitUsage, `-format is "xml": must be auto`},
		{[]string{"good.log", "-config", "limits.json", "-comma", ";;"}, exitUsage, `-comma is ";;"`},
		{[]string{"good.log", "-config", "limits.json", "-top", "0"}, exitUsage, "-top is 0"},
		{[]string{"good.log", "-config", "limits.json", "-max-keys", "0"}, exitUsage, "-max-keys is 0"},
		{[]string{"good.log", "-config", "limits.json", "-max-denied", "1e3"}, exitUsage, "must be a share"},
		{[]string{"good.log", "-config", "limits.json", "-field", "who=x"}, exitUsage, `has the part "who"`},
		{[]string{"good.log", "-config", "limits.json", "-field", "client=name"}, exitFailed,
			`good.log: the combined log format has no field "name"`},
		{[]string{"good.log", "-config", "bad.json"}, exitFailed, "bad.json:1:12: rules[0].algorithm"},
		{[]string{"good.log", "-config", "missing.json"}, exitFailed, "missing.json: no such file"},
		{[]string{"good.log", "-config", "limits.json", "-against", "missing.json"}, exitFailed, "missing.json: no such file"},
		{[]string{"missing.log", "-config", "limits.json"}, exitFailed, "missing.log: no such file"},
		{[]string{".", "-config", "limits.json"}, exitFailed, "is a directory"},
		{[]string{"empty.log", "-config", "limits.json"}, exitFailed, "empty.log: there is no request in an empty log"},
		{[]string{"none.log", "-config", "limits.json"}, exitFailed, "none.log: there is no request in its 2 lines"},
		{[]string{"evil.log", "-config", "limits.json", "-strict"}, exitFailed,
			`evil.log: line 1 is not in the combined log format: \x1b[2J\x1b]0;title\a`},
		{[]string{"good.log", "-config", "limits.json", "-decisions", "no/such/dir/x"}, exitFailed, "no such file or directory"},
	} {
		got := runIn(t, files, append([]string{"replay"}, row.args...)...)
		require.Equal(t, row.code, got.code, "%q: %s", row.args, got.err)
		require.Contains(t, got.err, row.err)
		require.Empty(t, got.out, row.args)
	}
}

func TestReplayOddLogs(t *testing.T) {
	files := oddFiles()
	got := runIn(t, files, "replay", "evil.log", "-config", "evil.json", "-enforce")
	require.Equal(t, exitOK, got.code)
	require.NotContains(t, got.out+got.err, "\x1b")
	require.NotContains(t, got.out+got.err, "\a")
	require.Contains(t, got.out, `\x1b[31mx`)
	require.Equal(t, "evil.log: line 1 is not in the combined log format: \\x1b[2J\\x1b]0;title\\a\n", got.err)

	got = runIn(t, files, "replay", "order.log", "-config", "limits.json", "-late", "0s")
	require.Contains(t, got.out, "3 requests are out of order, by up to 4s: decided at the latest time so far\n")
	require.Contains(t, got.out, "12:00:05  2026-10-10 12:00:09\n", "the clock does not step back")
	require.Contains(t, got.err, `warning: 3 of 5 requests (60.00 %) are late by more than 0s, by up to 4s: decided at the latest `+
		`time so far; see -late`)
	got = runIn(t, files, "replay", "order.log", "-config", "limits.json")
	require.NotContains(t, got.out, "out of order")
	require.Contains(t, got.out, "12:00:05  2026-10-10 12:00:09\n", "lines are put in order: 1, 3, 4, 5 and 9")

	got = runIn(t, files, "replay", "long.log", "good.log", "-config", "limits.json")
	require.Contains(t, got.out, "3 requests,")
	require.Contains(t, got.out, "1 of 4 lines could not be read\n")
	require.Contains(t, got.err, "long.log: line 2 is longer than 1048576 bytes: xxx")
	first, warning, _ := strings.Cut(got.err, "\n")
	require.LessOrEqual(t, len(first), 80)
	require.Equal(t, "warning: rule \"/login\" met no request: no line has the endpoint \"/login\"\n"+
		"warning: rule \"/search\" met no request: no line has the endpoint \"/search\"\n", warning)

	// What cannot be written leaves no file, nor does a run that fails.
	got = runIn(t, files, "replay", "evil.log", "-strict", "-config", "limits.json", "-decisions", "out")
	require.Equal(t, exitFailed, got.code)
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, left, len(files))
}

func TestReplayInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("limits.json", []byte(exampleLimits), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	many := strings.Repeat(logLine(0, "/a"), 5000)
	code := run(ctx, &terminal{in: strings.NewReader(many), out: &out, err: &errs, width: 80},
		[]string{"replay", "-", "-config", "limits.json"})
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs.String(), "interrupted")
}

func TestShare(t *testing.T) {
	for text, want := range map[string]uint64{"0.1%": 1000, "0.001": 1000, "100%": 1000_000, "0": 0, "33.3333%": 333_333} {
		var f shareFlag
		require.NoError(t, f.Set(text))
		require.Equal(t, want, f.of(1_000_000), text)
	}
	for _, text := range []string{"", "%", "101%", "-1%", "1/2", "0x1", "1e-3", "a", "1.5", "1", "1.0"} {
		require.Error(t, new(shareFlag).Set(text), text)
	}
	require.Equal(t, uint64(7), (&shareFlag{}).of(7), "none is given")
	require.False(t, (&shareFlag{big.NewRat(1, 3)}).exceeded(1, 3))
	require.True(t, (&shareFlag{big.NewRat(1, 3)}).exceeded(2, 5))
}

// TestProgress requires that there is a progress line on a terminal, which fits and is removed, and
// none in a pipe.
func TestProgress(t *testing.T) {
	var errs strings.Builder
	p := newProgress(&terminal{err: &errs, width: 40, live: true}, []string{"-"})
	p.began = time.Now().Add(-10 * time.Second)
	p.read, p.lines = 123_456_789, 1_000_000
	require.Equal(t, "123.5 MB, 1,000,000 lines, 100,000 lines/s", p.text(10*time.Second))
	p.total = 493_827_156
	require.Equal(t, " 25 %  123.5 MB, 1,000,000 lines, 100,000 lines/s, 30s left", p.text(10*time.Second))
	p.show(1)
	p.show(1)
	p.end()
	p.end()
	shown := strings.Split(errs.String(), "\r")
	require.Len(t, shown, 4, "%q", errs.String())
	require.Len(t, shown[1], 39)
	require.Empty(t, strings.TrimSpace(shown[2]))

	errs.Reset()
	p.live = false
	p.show(1)
	p.end()
	require.Empty(t, errs.String())
	require.Equal(t, "999 bytes 1.0 kB -1,234 0", size(999)+" "+size(1000)+" "+number(-1234)+" "+number(0))
}

// A decisionLog is an Observer that writes a log.
type decisionLog struct{ log *slog.Logger }

func (o decisionLog) Observe(ctx context.Context, d ratelimit.Decision) {
	if r := d.Request; d.Mode != ratelimit.ModeShadow {
		o.log.InfoContext(ctx, "decision", "at", d.Time.UnixNano(), "client", r.Client, "endpoint", r.Endpoint,
			"ip", r.IP, "cost", d.Cost, "tier", r.Tier, "tenant", r.Attrs["tenant"])
	}
}

// A recorder also keeps the decisions.
type recorder struct {
	decisionLog
	all []ratelimit.Decision
}

func (r *recorder) Observe(ctx context.Context, d ratelimit.Decision) {
	r.decisionLog.Observe(ctx, d)
	if d.Mode != ratelimit.ModeShadow {
		r.all = append(r.all, d)
	}
}

// randomRules returns a config of random rules.
func randomRules(r *rand.Rand) string {
	algorithms := []string{"TokenBucket", "LeakyBucket", "FixedWindow", "SlidingWindowCounter", "SlidingWindowLog"}
	keys := []string{"user", "ip", "endpoint", "user_endpoint", "global", "attr:tenant", "attr:tenant+user"}
	rule := func() map[string]any {
		algorithm := algorithms[r.IntN(5)]
		per := []string{"s", "m", "90s", "100ms"}[r.IntN(4)]
		m := map[string]any{"algorithm": algorithm, "rate": fmt.Sprintf("%d/%s", 1+r.IntN(40), per), "key": keys[r.IntN(len(keys))]}
		if strings.HasSuffix(algorithm, "Bucket") && r.IntN(2) == 0 {
			m["burst"] = 1 + r.IntN(20)
		}
		if r.IntN(3) == 0 {
			m["tiers"] = map[string]any{"paid": fmt.Sprintf("%d/%s", 1+r.IntN(90), per), "free": "unlimited"}
		}
		return m
	}
	var rules []map[string]any
	for i := range 1 + r.IntN(5) {
		m := rule()
		m["name"], m["endpoint"] = fmt.Sprint("rule", i), []string{"/a", "/b", "/a/*", "*"}[r.IntN(4)]
		if r.IntN(3) == 0 {
			m["additional"] = true
		}
		if r.IntN(4) == 0 {
			m["mode"] = "shadow"
		}
		rules = append(rules, m)
	}
	text, _ := json.Marshal(map[string]any{"rules": rules, "default": rule()})
	return string(text)
}

// TestReplayEqualsWhatWasAnswered makes 100,000 requests to limiters of random rules, one at a time,
// and replays what an observer has written of them: each answer is the same.
func TestReplayEqualsWhatWasAnswered(t *testing.T) {
	const configs, requests = 40, 3000
	replayed, differ, denied := 0, 0, 0
	for seed := range uint64(configs) {
		r := rand.New(rand.NewPCG(seed, 14))
		config := randomRules(r)
		clock := ratelimit.NewFakeClock(time.Unix(0, 1_791_600_000_000_000_000+r.Int64N(1e12)))
		var written bytes.Buffer
		seen := &recorder{decisionLog: decisionLog{slog.New(slog.NewJSONHandler(&written, nil))}}
		dir := t.TempDir()
		t.Chdir(dir)
		require.NoError(t, os.WriteFile("limits.json", []byte(config), 0o600))
		_, l, err := loadRules("limits.json", ratelimit.WithClock(clock), ratelimit.WithObserver(seen), ratelimit.WithObservedRequests())
		require.NoError(t, err, config)
		for range requests {
			if r.IntN(3) > 0 {
				clock.Advance(time.Duration(r.Int64N(int64([]time.Duration{time.Microsecond, 50 * time.Millisecond, 2 * time.Second}[r.IntN(3)]))))
			}
			req := ratelimit.Request{
				Client: fmt.Sprint("c", r.IntN(8)), Endpoint: []string{"/a", "/b", "/a/b", "/c"}[r.IntN(4)], IP: fmt.Sprint("10.0.0.", r.IntN(4)),
				Tier: []string{"", "paid", "free", "other"}[r.IntN(4)], Attrs: map[string]string{"tenant": fmt.Sprint(r.IntN(3))},
			}
			if r.IntN(4) == 0 {
				req.Cost = r.IntN(6)
			}
			_, err := l.Check(t.Context(), req)
			require.NoError(t, err)
		}
		// A request for which only rules in shadow mode decide has no other decision, and no line.
		require.Greater(t, len(seen.all), requests*3/4)
		replayed += len(seen.all)
		require.NoError(t, os.WriteFile("log.json", written.Bytes(), 0o600))
		var out, errs strings.Builder
		code := run(t.Context(), &terminal{out: &out, err: &errs, width: 80},
			strings.Fields("replay log.json -config limits.json -decisions out.json -field time=at -field attr:tenant=tenant"))
		require.Equal(t, exitOK, code, errs.String())
		text, err := os.ReadFile("out.json")
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		require.Len(t, lines, len(seen.all))
		for i, line := range lines {
			var got decisionJSON
			require.NoError(t, json.Unmarshal([]byte(line), &got))
			d := seen.all[i]
			want := decisionJSON{
				d.Time.UnixNano(), d.Request.Client, d.Request.Endpoint, d.Request.IP, d.Request.Tier, d.Request.Attrs, d.Cost, nil,
				d.Result.Allowed, d.Result.Limit, d.Result.Remaining, d.Result.RetryAfter, d.Result.ResetAfter, d.Result.Delay, d.Result.Rule,
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				differ++
				t.Errorf("request %d:\n%+v\n%+v\n%s", i, got, want, config)
			}
			if !got.Allowed {
				denied++
			}
		}
		require.Zero(t, differ)
	}
	t.Logf("%d requests, %d denied, %d differ", replayed, denied, differ)
	require.Greater(t, replayed, 100_000)
	require.Greater(t, denied, replayed/10)
	require.Less(t, denied, replayed*9/10)
}

// TestReplayMarkdown compares two files of rules for a pull request.
func TestReplayMarkdown(t *testing.T) {
	files := map[string]string{"access.log": exampleLog(), "limits.json": exampleLimits, "other.json": exampleOther,
		"evil.csv": "time,client,path,ip\n1,a`|</td>@x,/login,1\n1,a`|</td>@x,/login,1\n1,a`|</td>@x,/login,1\n1,a`|</td>@x,/login,1\n"}
	got := runIn(t, files, "replay", "access.log", "-config", "other.json", "-against", "limits.json", "-markdown")
	require.Equal(t, call{exitOK, "### Rate limits: `limits.json` instead of `other.json`\n\n" +
		"3,860 requests, 2026-10-10 12:00:00 to 2026-10-10 12:59:59 UTC.\n\n" + `|  | requests | share |
|---|---:|---:|
` + "| denied by `other.json` | 120 | 3.11 % |\n| denied by `limits.json` | 128 | 3.32 % |\n| **newly denied** | 8 | 0.21 % |\n" +
		"| no longer denied | 0 | 0.00 % |\n\n| Newly denied | by rule | denied |\n|---|---|---:|\n" +
		"| `ip:203.0.113.9` | `/login` | 6 |\n| `ip:203.0.113.5` | `/login` | 2 |\n\n", ""}, got)
	got = runIn(t, files, "replay", "evil.csv", "-config", "limits.json", "-markdown")
	require.Contains(t, got.out, "> **Warning:** rule \"/search\" met no request: no line has the endpoint \"/search\"\n\n")
	require.Contains(t, got.out, "| `/login` | 4 | 1 | 25.00 % |\n| `/search` (shadow) | 0 | 0 | - |\n")
	require.Contains(t, got.out, "| `a'\\|</td>@x` | `/login` | 1 |\n", "a name from a log stays in its cell")
}

// TestReplayOverrides replays a log by a file of rules with overrides. A request that an override blocks is denied by no rule.
func TestReplayOverrides(t *testing.T) {
	files := map[string]string{
		"limits.json": `{"rules": [{"endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/m", "mode": "shadow"}], "overrides": [
  {"client": "x", "effect": "block", "until": "2026-10-10T12:00:02Z"}, {"client": "y", "effect": "exempt"}]}`,
		"plain.json": `[{"endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/m"}]`,
	}
	for i := range 4 {
		for _, client := range []string{"x", "y"} {
			files["log"] += fmt.Sprintf(`{"time": "2026-10-10T12:00:0%dZ", "client": "%s", "endpoint": "/a"}`+"\n", i, client)
		}
	}
	got := runIn(t, files, strings.Fields("replay log -config limits.json")...)
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `(?m)^denied: 2 requests \(25\.00 %\) of 1 of 2 clients\n\n.*\n\* /a +2 +1 .*\n\(blocked\) +2 +2 +100\.00 %`, got.out)
	require.Regexp(t, `\nx +\(blocked\) +2\n`, got.out)
	got = runIn(t, files, strings.Fields("replay log -config limits.json -enforce -json")...)
	var enforced replayJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &enforced))
	require.EqualValues(t, 3, enforced.Denied, "two by the block, and one by the rule, which now enforces; y is exempt")
	got = runIn(t, files, strings.Fields("replay log -config plain.json -against limits.json")...)
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.out, "(blocked)")
}

// TestReplayOne requires that a report of one request and one client has no plural.
func TestReplayOne(t *testing.T) {
	files := map[string]string{"log.csv": "time,client,endpoint\n1791633600,a,/b\n", "limits.json": `{"rules": [
  {"endpoint": "/a", "algorithm": "TokenBucket", "rate": "1/h"}]}`}
	got := runIn(t, files, strings.Fields("replay log.csv -config limits.json")...)
	require.Contains(t, got.out, "1 request, 2026-10-10 12:00:00 to 2026-10-10 12:00:00 UTC\n1 request has no rule\n"+
		"denied: 0 requests (0.00 %) of 0 of 1 client\n")
	got = runIn(t, files, strings.Fields("replay log.csv -config limits.json -markdown")...)
	require.Contains(t, got.out, "\n1 request, 2026-10-10")
}
