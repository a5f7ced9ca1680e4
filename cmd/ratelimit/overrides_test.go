//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

const operatedLimits = `{"rules": [
  {"endpoint": "/search", "algorithm": "TokenBucket", "rate": "2/h", "penalty": {"after": 2, "within": "1h", "for": "5h"}},
  {"endpoint": "/login", "algorithm": "SlidingWindowLog", "rate": "5/d", "key": "ip"},
  {"name": "pair", "endpoint": "/pair", "algorithm": "TokenBucket", "rate": "5/d", "key": "user+ip",
    "penalty": {"after": 2, "within": "1h", "for": "5h"}}
]}`

// An operated is a limiter of a service, and a server that the service and the tool share.
type operated struct {
	t       *testing.T
	l       *ratelimit.RateLimiter
	address string
}

func startOperated(t *testing.T) *operated {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("limits.json", []byte(operatedLimits), 0o600))
	address, client, _ := startRedis(t)
	store, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second), redisstore.WithDenialCache(0))
	require.NoError(t, err)
	_, l, err := loadRules("limits.json", ratelimit.WithStore(store), ratelimit.WithName("shop"), ratelimit.WithOverrides(),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	return &operated{t, l, address}
}

// run runs a command on the server and the limiter. The times in the output are replaced by TIME.
func (o *operated) run(name string, args ...string) call {
	o.t.Helper()
	got := do(o.t, append([]string{name, "-redis", "redis://" + o.address, "-name", "shop"}, args...)...)
	for _, text := range []*string{&got.out, &got.err} {
		*text = strings.ReplaceAll(*text, o.address, "SERVER")
		*text = strings.ReplaceAll(*text, who(), "by WHO")
		*text = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?`).ReplaceAllString(*text, "TIME")
	}
	return got
}

// ask returns the answer of the service, which knows all overrides in the server.
func (o *operated) ask(req ratelimit.Request) ratelimit.Result {
	o.t.Helper()
	_, err := o.l.Overrides(o.t.Context()) // reads them now
	require.NoError(o.t, err)
	res, err := o.l.Check(o.t.Context(), req)
	require.NoError(o.t, err)
	return res
}

const obeyed = "Processes with WithOverrides obey within 1s after their next request.\n"

func TestOverrideCommands(t *testing.T) {
	o := startOperated(t)
	alice := ratelimit.Request{Client: "alice", IP: "203.0.113.9", Endpoint: "/search"}
	require.True(t, o.ask(alice).Allowed)

	got := o.run("block", "-client", "alice", "-for", "90m", "-note", "ticket\n4711 <b>")
	require.Equal(t, call{exitOK, "SERVER/0: blocked client alice in limiter shop\nrules  all\nuntil  TIME UTC, in 1h30m\n" +
		`note   ticket\n4711 <b>, by WHO` + "\n" + obeyed, ""}, got)
	res := o.ask(alice)
	require.False(t, res.Allowed)
	require.Equal(t, ratelimit.Reason("override"), res.Reason)
	require.LessOrEqual(t, res.RetryAfter, 90*time.Minute)
	require.Greater(t, res.RetryAfter, time.Duration(0))

	got = o.run("exempt", "-config", "limits.json", "-ip", "::ffff:203.0.113.0/120", "-rules", "shop:/search,/login", "-rule", "pair")
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `^SERVER/0: exempted ip 203\.0\.113\.0/24 in limiter shop\nrules  /search, /login, pair\nuntil  lifted\n`+
		`note   by WHO\n`+regexp.QuoteMeta(obeyed)+`note: this exemption has no end, see -for and -until\n$`, got.out)
	require.Equal(t, -1, o.ask(ratelimit.Request{Client: "bob", IP: "203.0.113.9", Endpoint: "/search"}).Limit)

	// The name is one that top, replay and logs print.
	for _, printed := range []string{`evil\x1b[2J`, `"evil\x1b[2J"`, `"evil\u001b[2J"`} {
		got = o.run("rate", "-config", "limits.json", "-client", printed, "-until", "2199-12-01T00:00:00Z", "-note", "more", "500/m")
		require.Equal(t, exitOK, got.code, got.err)
		require.Regexp(t, `^SERVER/0: rate 500/m for client evil\\x1b\[2J in limiter shop\nrules  all\nuntil  TIME UTC, in \S+\n`+
			`note   more, by WHO\n`, got.out)
	}
	require.Equal(t, 500, o.ask(ratelimit.Request{Client: "evil\x1b[2J", Endpoint: "/search"}).Limit)
	got = o.run("block", "-exact", "-client", `"evil\x1b[2J"`, "-note", "exact")
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, ratelimit.Reason("override"), o.ask(ratelimit.Request{Client: `"evil\x1b[2J"`, Endpoint: "/search"}).Reason)

	got = o.run("overrides")
	require.Equal(t, exitOK, got.code, got.err)
	require.Regexp(t, `^SERVER/0, TIME UTC: 4 overrides of limiter shop

whom +effect +rules +until +note
client "evil\\x1b\[2J" +block +all +lifted +exact, by WHO
client alice +block +all +TIME \(1h30m\) +ticket\\n4711 <b>, by WHO
client evil\\x1b\[2J +rate 500/m +all +TIME \(\S+\) +more, by WHO
ip 203\.0\.113\.0/24 +exempt +/login, /search, pair +lifted +by WHO
$`, got.out)
	got = do(t, "overrides", "-redis", "redis://"+o.address, "-name", "shop", "-json", "-client", "alice")
	var out overridesJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &out), got.out)
	require.Len(t, out.Overrides, 1)
	require.Equal(t, "ticket\n4711 <b>, "+who(), out.Overrides[0].Note)
	require.Equal(t, out.Overrides[0].Until.Sub(out.Time), out.Overrides[0].Rest)

	got = o.run("lift", "-client", "carol")
	require.Equal(t, call{exitFound, "", "SERVER/0: nothing to lift in limiter shop; see ratelimit overrides\n"}, got)
	got = o.run("lift", "-config", "limits.json", "-client", "alice", "-rules", "/search")
	require.Equal(t, exitFound, got.code, "that of alice is for all rules")
	got = o.run("lift", "-client", "alice")
	require.Equal(t, call{exitOK, "SERVER/0: lifted 1 override of limiter shop\n" +
		"whom          effect  rules                     until  note\n" +
		`client alice   block  all    TIME (1h30m)  ticket\n4711 <b>, by WHO` + "\n" + obeyed, ""}, got)
	require.True(t, o.ask(alice).Allowed)
	got = do(t, "lift", "-redis", "redis://"+o.address, "-name", "shop", "-all", "-json")
	require.NoError(t, json.Unmarshal([]byte(got.out), &out), got.out)
	require.Len(t, out.Overrides, 3)
	require.Equal(t, call{exitOK, "SERVER/0, TIME UTC: 0 overrides of limiter shop\n", ""}, o.run("overrides"))

	got = do(t, "block", "-redis", "redis://"+o.address, "-name", "shpo", "-client", "alice", "-json")
	require.Equal(t, exitOK, got.code)
	var one overrideJSON
	require.NoError(t, json.Unmarshal([]byte(got.out), &one))
	require.Nil(t, one.Until)
	got = do(t, "overrides", "redis://"+o.address, "-name", "elsewhere")
	require.Contains(t, got.out, `note: no limiter "elsewhere" has keys in this server; those that have: shop`)
	got = o.run("block", "-ip", "2001:db8::1")
	require.Contains(t, got.out, "note: a client can change its address within its network, 2001:db8::/64\n")
	got = o.run("block", "-ip", "0.0.0.0/0")
	require.Contains(t, got.out, "note: this is for all addresses\n")
}

// TestExplainOfServer explains with the overrides that a server has.
func TestExplainOfServer(t *testing.T) {
	o := startOperated(t)
	require.Equal(t, exitOK, o.run("block", "-client", "alice", "-note", "ticket 4711").code)
	got := o.run("explain", "limits.json", "-client", "alice", "-endpoint", "/search")
	require.Equal(t, exitFound, got.code, got.err)
	require.Regexp(t, `denied, until the block is lifted\n\nblocked by an override, and no rule is asked:\n`+
		`  block of client "alice": "ticket 4711, by WHO"\n$`, strings.ReplaceAll(got.out, "\n    ", " "))
	require.Equal(t, exitOK, o.run("lift", "-client", "alice").code)
	got = o.run("explain", "limits.json", "-client", "alice", "-endpoint", "/search", "-name", "shop")
	require.Equal(t, exitOK, got.code, "after the lift: "+got.err)
	require.True(t, o.ask(ratelimit.Request{Client: "alice", Endpoint: "/search"}).Allowed)
	got = do(t, "explain", "limits.json", "-redis", "redis://"+o.address, "-name", "shpo", "-client", "alice", "-endpoint", "/search")
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.err, "note: no override of limiter shpo: "+o.address+"/0 has no key of limiter shpo, but 1 key of limiter shop\n")
}

func TestPardon(t *testing.T) {
	o := startOperated(t)
	alice := ratelimit.Request{Client: "alice", Endpoint: "/search"}
	for range 4 {
		o.ask(alice)
	}
	require.Equal(t, ratelimit.Reason("penalty"), o.ask(alice).Reason)
	require.Regexp(t, `\nalice +0 +2 +[45]h\S* `, do(t, "top", "redis://"+o.address, "-config", "limits.json").out, "top shows the block")
	got := o.run("pardon", "-config", "limits.json", "-client", "alice")
	require.Equal(t, call{exitOK, "SERVER/0: pardoned client alice in limiter shop\nrules  /search\n" +
		"Processes may still deny for 1s.\nleft out: pair\n" +
		"their keys are not those of one client alone; see ratelimit reset\n", ""}, got)
	res := o.ask(alice)
	require.False(t, res.Allowed, "the limit is still used up")
	require.NotEqual(t, ratelimit.Reason("penalty"), res.Reason)

	got = o.run("pardon", "-config", "limits.json", "-ip", "203.0.113.9")
	require.Equal(t, call{exitFound, "SERVER/0: left out: /search, pair\n" +
		"their keys are not those of one address alone; see ratelimit reset\n", ""}, got)
	got = o.run("pardon", "-config", "limits.json", "-client", "alice", "-rule", "/search", "-json")
	require.Equal(t, call{exitOK, "{\n  \"leftOut\": [],\n  \"pardoned\": [\n    \"/search\"\n  ]\n}\n", ""}, got)
	got = o.run("pardon", "-config", "limits.json", "-client", "alice", "-rule", "/login")
	require.Equal(t, call{exitFailed, "", "ratelimit pardon: limits.json: none of these rules has a penalty\n"}, got)
	got = o.run("pardon", "-config", "limits.json", "-client", "alice", "-rule", "/serch")
	require.Contains(t, got.err, `-rules: unknown rule "/serch"; did you mean "/search"?`)
	require.Contains(t, o.run("pardon", "-client", "alice").err, "-config is missing")
}

// TestBadOverrideCommands has what the commands refuse. Nothing is set.
func TestBadOverrideCommands(t *testing.T) {
	o := startOperated(t)
	for _, row := range []struct {
		args []string
		err  string
	}{
		{[]string{"block"}, "-client or -ip is missing"},
		{[]string{"block", "-client", "a", "-ip", "10.0.0.1"}, "-client and -ip are given"},
		{[]string{"block", "-client", "a", "-name", ""}, "-name is missing"},
		{[]string{"block", "-client", "a", "-for", "1h", "-until", "2199-12-01T00:00:00Z"}, "-for and -until are given"},
		{[]string{"block", "-client", "a", "-for", "5"}, `-for is "5": must be a time with its unit, such as 90m, 2h or 7d`},
		{[]string{"block", "-client", "a", "-for", "1h burst 2"}, `-for is "1h burst 2": must be a time`},
		{[]string{"block", "-client", "a", "-for", "-1h"}, `-for is "-1h": must be a time`},
		{[]string{"block", "-client", "a", "-until", "tomorrow\x1b" + strings.Repeat("x", 1<<17)}, `-until is "tomorrow\x1bxxx`},
		{[]string{"block", "-client", "a", "-until", "2020-01-01T00:00:00Z"}, `-until is TIME: must be in the future: it is TIME in the server`},
		{[]string{"block", "-client", strings.Repeat("a", 1<<17)}, "-client is 131072 bytes: must have at most 4096 bytes"},
		{[]string{"block", "-client", "a", "-note", strings.Repeat("a", 257)}, "-note is 257 bytes: must have at most "},
		{[]string{"block", "-client", "a", "-until", "2h"}, `-until is "2h": must be a time`},
		{[]string{"block", "-client", "a", "-until", "24:00"}, `-until is "24:00": must be a time`},
		{[]string{"block", "-client", "a", "-until", "2020-01-01"}, `-until is TIME: must be in the future: it is TIME in the server`},
		{[]string{"block", "-ip", "10.0.0.1/8"}, `-ip is "10.0.0.1/8": has bits set beyond its length: 10.0.0.0/8 is the prefix`},
		{[]string{"block", "-ip", "10.0.0.1:80"}, `-ip is "10.0.0.1:80": must be an address`},
		{[]string{"block", "-client", "a", "-rules", "/search"}, "-config is missing"},
		{[]string{"block", "-client", "a", "-config", "limits.json", "-rules", "/serch"},
			`-rules: unknown rule "/serch"; did you mean "/search"?`},
		{[]string{"block", "-client", "a", "surplus"}, `"surplus" is one argument too many`},
		{[]string{"rate", "-client", "a", "-config", "limits.json"}, "the rate is missing"},
		{[]string{"rate", "-client", "a", "500/m"}, "-config is missing"},
		{[]string{"rate", "-client", "a", "-config", "limits.json", "many"}, `rate is "many"`},
		{[]string{"rate", "-client", "a", "-config", "limits.json", "-rules", "/login", "500/d"},
			`-rules is "/login": must have only rules whose keys belong to one client: others would get the rate, too`},
		{[]string{"rate", "-ip", "10.0.0.1", "-config", "limits.json", "500/h"},
			`the window of the rate is 1h0m0s: must be that of the rule's rate`},
		{[]string{"lift"}, "-client or -ip is missing"},
		{[]string{"lift", "-all", "-client", "a"}, "-all stands beside"},
	} {
		got := o.run(row.args[0], row.args[1:]...)
		require.Equal(t, exitUsage, got.code, "%.200q: %s", row.args, got.err)
		require.Contains(t, got.err, row.err)
		require.Empty(t, got.out)
		require.Less(t, len(got.err), 1000)
		require.NotContains(t, got.err, "\x1b")
	}
	require.Contains(t, o.run("overrides").out, " 0 overrides")
	got := o.run("block", "-client", "a", "-config", "none.json")
	require.Equal(t, call{exitFailed, "", "ratelimit block: none.json: no such file or directory\n"}, got)
}

// TestOverridesServerHangs stops a server: no command waits for longer than -timeout.
func TestOverridesServerHangs(t *testing.T) {
	t.Chdir(t.TempDir())
	address, _, process := startRedis(t)
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	for _, command := range []string{"block", "exempt", "lift", "overrides"} {
		got := do(t, command, "redis://:hunter2@"+address, "-name", "shop", "-client", "a", "-timeout", "200ms")
		require.Equal(t, call{exitFailed, "", fmt.Sprintf("ratelimit %s: %s/0 does not answer within 200ms\n", command, address)}, got)
	}
	require.NoError(t, process.Signal(syscall.SIGCONT))
}

// TestUntil reads the values of -until at a time of the server.
func TestUntil(t *testing.T) {
	now := time.Date(2026, 12, 31, 17, 59, 59, 1, time.UTC)
	for text, want := range map[string]string{
		"18:00": "2026-12-31 18:00:00", "17:59": "2027-01-01 17:59:00", "17:59:59": "2027-01-01 17:59:59", "0:30": "2027-01-01 00:30:00",
		"tomorrow": "2027-01-01 00:00:00", "tomorrow 9:30": "2027-01-01 09:30:00", "tomorrow 18:00": "2027-01-01 18:00:00",
		"2027-02-01": "2027-02-01 00:00:00", "2027-02-01 18:00": "2027-02-01 18:00:00", "2027-02-01 18:00:01": "2027-02-01 18:00:01",
		"2027-02-01T00:00:00+01:00": "2027-01-31 23:00:00", "today 18:00": "2026-12-31 18:00:00", "today 9:00": "2026-12-31 09:00:00",
	} {
		ends, err := endOf("", text)
		require.NoError(t, err, text)
		require.Equal(t, want, exactly(ends(now)), text)
	}
	for _, text := range []string{"today", "tomorrow 25:00", "tomorrow tomorrow", "18", "Monday", "-1:00", " ", "2027-02-30"} {
		_, err := endOf("", text)
		require.ErrorAs(t, err, new(usageError), text)
	}
}

func TestNote(t *testing.T) {
	note, err := noteOf("")
	require.NoError(t, err)
	require.Equal(t, who(), note)
	most := 256 - len(", "+who())
	note, err = noteOf(strings.Repeat("a", most))
	require.NoError(t, err)
	require.Len(t, note, 256)
	_, err = noteOf(strings.Repeat("a", most+1))
	require.EqualError(t, err, fmt.Sprintf("-note is %d bytes: must have at most %d bytes, because %q is added", most+1, most, ", "+who()))
}

func TestPasted(t *testing.T) {
	for printed, want := range map[string]string{
		"alice": "alice", `"alice"`: "alice", `a"b`: `a"b`, `"a\"b"`: `a"b`, `"`: `"`, "": "", `""`: "", `evil\x1b[2J"`: "evil\x1b[2J\"",
		`a\nb`: "a\nb", `a\tb`: "a\tb", `c:\x`: `c:\x`, `c:\new`: "c:\new",
		`c:\dir`: `c:\dir`, `"\u00e9\/"`: "é/", `a\u00e9`: `a\u00e9`, `\xff`: "\xff",
	} {
		require.Equal(t, want, pasted(printed), printed)
	}
	for _, client := range []string{"a b", "<b>", "\x1b", "a\n\"b\"\\", "ü\x00", "\xff\\"} {
		require.Equal(t, client, pasted(plain(client)), "as the tool prints it")
		text, err := json.Marshal(client)
		require.NoError(t, err)
		require.Equal(t, strings.ToValidUTF8(client, "\ufffd"), pasted(string(text)), "as a log in JSON has it")
		require.Equal(t, client, pasted(fmt.Sprintf("%q", client)), "as a log in text has it")
	}
}
