package main

import (
	"encoding/csv"
	"encoding/json"
	"flag"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart/charttest"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/sim"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file of testdata. path is absolute, because tests change the directory.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

const twoRules = `{"rules": [
  {"name": "search by user", "endpoint": "/search", "algorithm": "TokenBucket", "rate": "60/m burst 10"},
  {"name": "new, to be tried", "endpoint": "/search", "algorithm": "FixedWindow", "rate": "30/m", "mode": "shadow"},
  {"name": "all <together> & by address \u001b[2J", "endpoint": "*", "additional": true, "key": "ip",
   "algorithm": "SlidingWindowLog", "rate": "100/m"}
], "default": {"algorithm": "SlidingWindowCounter", "rate": "200/90s"}}`

func TestSimulate(t *testing.T) {
	wd, err := os.Getwd()
	require.NoError(t, err)
	files := map[string]string{"limits.json": twoRules, "gateway.json": gatewayLimits}
	for name, args := range map[string][]string{
		"gateway": {"-config", "gateway.json", "-cost", "tokens=200", "-hold", "2s", "-shape", "poisson"},
		"unsaid":  {"-config", "gateway.json", "-chart=false"},
		"long":    {"-config", "gateway.json", "-cost", "3", "-cost", "tokens=0", "-hold", "90s", "-chart=false"},
		"running": {"-rate", "4/1m", "-algorithm", "InFlight,TokenBucket", "-hold", "2s", "-send", "3/s", "-shape", "poisson", "-chart=false"},
		"bursts":  {},
		"edge":    {"-rate", "100/m", "-shape", "edge", "-algorithm", "fixed-window,SlidingWindowLog"},
		"config":  {"-config", "limits.json", "-shape", "attack", "-clients", "3", "-send", "90/m"},
		"storm":   {"-shape", "onoff", "-retry", "mixed", "-clients", "3", "-algorithm", "LeakyBucket"},
		"cost":    {"-cost", "21", "-send", "5/m", "-retry", "obey", "-shape", "steady", "-algorithm", "TokenBucket,FixedWindow"},
	} {
		got := runIn(t, files, append([]string{"simulate"}, args...)...)
		require.Equal(t, exitOK, got.code, got.err)
		require.Empty(t, got.err)
		golden(t, wd+"/testdata/simulate-"+name+".txt", got.out)
		require.Equal(t, got, runIn(t, files, append([]string{"simulate"}, args...)...), "the same again")
	}
}

// gatewayLimits are the rules of docs/llm.md, with a fourth that advises.
const gatewayLimits = `{"rules": [
  {"name": "requests", "endpoint": "/v1/chat", "algorithm": "TokenBucket", "rate": "60/m"},
  {"name": "tokens", "endpoint": "/v1/chat", "algorithm": "TokenBucket", "rate": "20000/h", "unit": "tokens"},
  {"name": "at once", "endpoint": "/v1/chat", "algorithm": "InFlight", "rate": "4/1m"},
  {"name": "small", "endpoint": "/v1/chat", "algorithm": "TokenBucket", "rate": "10/m", "mode": "advise"}
]}`

// TestSimulateWidth requires that what is printed fits 80 columns, also with large numbers.
func TestSimulateWidth(t *testing.T) {
	files := map[string]string{"limits.json": twoRules, "gateway.json": gatewayLimits}
	for _, args := range [][]string{
		{"-clients", "50", "-retry", "ignore", "-retry-every", "1m"},
		{"-rate", "60000/s burst 50000", "-duration", "100ms", "-shape", "ramp", "-retry", "obey"},
		{"-rate", "5/d", "-duration", "1200h", "-shape", "poisson", "-retry", "obey"},
		{"-config", "limits.json", "-clients", "9", "-retry", "mixed"},
		{"-config", "limits.json", "-cost", "101"},
		{"-config", "gateway.json", "-hold", "90s"},
		{"-rate", "4/1m", "-algorithm", "InFlight,all", "-hold", "2s"},
	} {
		got := runIn(t, files, append([]string{"simulate"}, args...)...)
		require.Equal(t, exitOK, got.code, got.err)
		for line := range strings.Lines(got.out) {
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), 80, line)
		}
		require.NotContains(t, got.out, "\x1b")
	}
	require.NotContains(t, runIn(t, nil, "simulate", "-chart=false").out, "█")
}

// TestSimulateDefaults requires that what is left out follows from the limit.
func TestSimulateDefaults(t *testing.T) {
	files := map[string]string{"limits.json": twoRules, "alone.json": `[{"endpoint": "*", "algorithm": "TokenBucket", "rate": "5/m"}]`}
	for want, args := range map[string][]string{
		"bursts for 5d (seed 1)\nfrom: 1 client, which sends 14/d burst 4\nlimit: 7/d burst 2;": {"-rate", "7/d burst 2"},
		"edge for 5h (seed 9)\nfrom: 2 clients, each of which sends 7 before and 7 at each edge of 1h\nlimit: 7/h\n": {"-rate", "7/h",
			"-shape", "edge", "-clients", "2", "-seed", "9"},
		"for 5m (seed 1)\nfrom: 1 client, which sends 120/m burst 20\nlimit: limits.json\n": {"-config", "limits.json"},
		"nothing was sent: the first request would come after the -duration of 1h\n": {"-rate", "7/d",
			"-shape", "edge", "-duration", "1h"},
		"5/m      1m    600":     {"-config", "alone.json"},
		"5/m      1m    600 ":    {"-config", "alone.json", "-endpoint", "/a,/b"},
		"in any window of 10s\n": {"-window", "10s"},
	} {
		got := runIn(t, files, append([]string{"simulate"}, args...)...)
		require.Equal(t, exitOK, got.code, got.err)
		require.Contains(t, got.out, want)
	}
}

// TestSimulateMonths sends requests for one month or more to rules that count in months. The traffic begins with a month, so that
// no month is counted as two.
func TestSimulateMonths(t *testing.T) {
	files := map[string]string{"month.json": `{"rules": [
  {"name": "quota", "endpoint": "*", "algorithm": "FixedWindow", "rate": "10000/month Europe/Berlin"},
  {"name": "day", "endpoint": "*", "algorithm": "FixedWindow", "rate": "500/day from first"}]}`}
	for _, row := range []struct {
		args string
		want []string
	}{
		{"-rate 10000/month -shape steady -send 15/h -duration 744h", []string{
			"limit: 10000/month; only FixedWindow has such windows\n",
			"FixedWindow   11,160   10,000   1,160  3d5h20m  10,000  30,000\n", "in any window of 31d\n"}},
		{"-rate 10000/month -shape edge -duration 745h", []string{"FixedWindow   20,000   20,000       0    0s  20,000  30,000\n"}},
		{"-config month.json -shape steady -send 15/h -duration 744h", []string{
			"month.json   11,160   10,000   1,160  3d5h20m\n", "quota  10000/month Europe/Be…     31d  11,160   1,160  10,000  30,000\n",
			"day          500/d from first      1d  11,160       0     360   1,000\n"}},
	} {
		got := runIn(t, files, append([]string{"simulate", "-chart=false"}, strings.Fields(row.args)...)...)
		require.Equal(t, call{exitOK, got.out, ""}, got)
		for _, want := range row.want {
			require.Contains(t, got.out, want)
		}
	}
}

func TestSimulateBadInput(t *testing.T) {
	files := map[string]string{"limits.json": twoRules, "gateway.json": gatewayLimits, "bad.json": `[{"endpoint": 5}]`}
	for want, args := range map[string][]string{
		`-shape is "x": must be one of steady, poisson, bursts, onoff, ramp, attack, edge`: {"-shape", "x"},
		`-retry is "x": must be one of none, obey, ignore, mixed`:                          {"-retry", "x"},
		`-rate is "x": must look like "100/m"`:                                             {"-rate", "x"},
		`-rate is "unlimited": must be a limit`:                                            {"-rate", "unlimited"},
		`-rate is "65537/m": for SlidingWindowLog, its count must be`: {"-rate", "65537/m",
			"-algorithm", "SlidingWindowLog"},
		`-rate is "5/m burst 5000000000": for TokenBucket, its burst must be at most 4294967295`: {"-rate", "5/m burst 5000000000",
			"-algorithm", "TokenBucket"},
		`-send is "100/M, burst=20": must be written "100/m burst 20"`:                          {"-send", "100/M, burst=20"},
		`-send is "100/month": must be a number in a length of time, such as "120/m" or`:        {"-send", "100/month"},
		`-send is "100/day from first": must be a number in a length of time, such as "120/m"`:  {"-send", "100/day from first"},
		`-algorithm has "Bucket": must be all, or some of TokenBucket, LeakyBucket`:             {"-algorithm", "Bucket"},
		`-algorithm has "LeakyBucket" twice`:                                                    {"-algorithm", "LeakyBucket, LeakyBucket"},
		`-algorithm is "all,all": must be`:                                                      {"-algorithm", "all,all"},
		`-algorithm is ",": must be`:                                                            {"-algorithm", ","},
		`-duration is 0s: must be above 0 and at most 8784h0m0s`:                                {"-duration", "0s"},
		`-duration is 9000h0m0s: must be`:                                                       {"-duration", "9000h"},
		`invalid value "x" for flag -duration: must be a length of time, such as 90s`:           {"-duration", "x"},
		`invalid value "0" for flag -clients: must be a whole number from 1 to 100000`:          {"-clients", "0"},
		`invalid value "1.5" for flag -cost: must be a whole number from 1 to 10000000`:         {"-cost", "1.5"},
		`-window is -1s: must be above 0`:                                                       {"-window", "-1s"},
		`-retry-every is 0s: must be above 0`:                                                   {"-retry", "ignore", "-retry-every", "0s"},
		`-retry-every is 2s, but -retry is none: must be ignore or mixed`:                       {"-retry-every", "2s"},
		`-hold is 2s, but no rule has the algorithm InFlight`:                                   {"-config", "limits.json", "-hold", "2s"},
		`-hold is 0s: must be above 0 and at most 8784h0m0s`:                                    {"-config", "gateway.json", "-hold", "0s"},
		`-cost has the unit "tokns", which no rule counts`:                                      {"-config", "gateway.json", "-cost", "tokns=5"},
		`"tokens=-1" for flag -cost: must be a whole number from 1 to 10000000, or unit=number`: {"-cost", "tokens=-1"},
		`"=1" for flag -cost: must name a unit, as in tokens=2000`:                              {"-cost", "=1"},
		`-algorithm is "InFlight,LeakyBucket,all": must be all`: {
			"-rate", "4/m", "-algorithm", "InFlight,LeakyBucket,all",
		},
		`-csv and -json are both set: must be one of them`:                  {"-csv", "-json"},
		`-config is "limits.json", so -rate and -algorithm must not be set`: {"-config", "limits.json", "-rate", "1/s"},
		`make about 60,000,000,000 requests: must be at most 10,000,000`: {"-send", "1000000/s", "-duration", "1m",
			"-clients", "1000"},
		`"extra" is one argument too many`: {"extra"},
	} {
		got := runIn(t, files, append([]string{"simulate"}, args...)...)
		require.Equal(t, exitUsage, got.code, args)
		require.Contains(t, got.err, want)
		require.Empty(t, got.out)
	}
	for want, args := range map[string][]string{
		"missing.json: no such file or directory": {"-config", "missing.json"},
		"bad.json:1:3":                    {"-config", "bad.json"},
		`-svg is "no/such/limit.svg": `:   {"-svg", "no/such/limit.svg"},
		`-html is "no/such/limit.html": `: {"-html", "no/such/limit.html"},
	} {
		got := runIn(t, files, append([]string{"simulate"}, args...)...)
		require.Equal(t, exitFailed, got.code, args)
		require.Contains(t, got.err, want)
		require.Empty(t, got.out)
	}
}

func TestSimulateTooMany(t *testing.T) {
	defer func(n int) { maxRequests = n }(maxRequests)
	maxRequests = 1000
	got := runIn(t, nil, "simulate", "-retry", "ignore", "-retry-every", "1ms")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.err, "-retry is ignore: with the requests that are sent again, there are more than 1,000: must have a shorter "+
		"-duration, or a longer -retry-every")
	require.Empty(t, got.out)
}

func TestSimulateData(t *testing.T) {
	got := runIn(t, map[string]string{"limits.json": twoRules}, "simulate", "-config", "limits.json", "-csv")
	records, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	require.NoError(t, err)
	require.Len(t, records, 5, "a head and four rules")
	require.Equal(t, []string{"limits.json", "600", "600"},
		[]string{records[1][0], records[1][1], strconv.Itoa(atoi(t, records[1][2]) + atoi(t, records[1][3]))})
	require.NotContains(t, got.out, "\x1b")
	require.Equal(t, []string{"new, to be tried", "FixedWindow", "30/m", "shadow"}, records[2][10:14])
	for _, r := range records {
		require.Len(t, r, 22)
	}

	got = runIn(t, nil, "simulate", "-json", "-rate", "5/m")
	var read struct {
		Shape    string
		Send     string
		Seed     int
		Outcomes []struct {
			Name                     string
			Offered, Granted, Denied int
			Rules                    []struct{ Most, Bound int }
			Bins                     []struct{ Offered, Granted int }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(got.out), &read))
	require.Equal(t, "bursts", read.Shape)
	require.Equal(t, "10/m", read.Send)
	require.Len(t, read.Outcomes, 5)
	for _, out := range read.Outcomes {
		require.Equal(t, 50, out.Offered)
		require.Equal(t, 50, out.Granted+out.Denied)
		require.LessOrEqual(t, out.Rules[0].Most, out.Rules[0].Bound)
	}
}

func atoi(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

var pictures = regexp.MustCompile(`(?s)<svg .*?</svg>`)

func TestSimulatePictures(t *testing.T) {
	files := map[string]string{"limits.json": twoRules}
	for _, args := range [][]string{
		{}, {"-shape", "edge", "-window", "10s"}, {"-config", "limits.json", "-shape", "attack"},
		{"-rate", "1/h", "-duration", "8760h", "-clients", "2"}, {"-rate", "100000/s", "-duration", "1s", "-algorithm", "TokenBucket"},
	} {
		got := runIn(t, files, append([]string{"simulate", "-svg", "limit.svg", "-html", "limit.html"}, args...)...)
		require.Equal(t, exitOK, got.code, got.err)
		svg, err := os.ReadFile("limit.svg")
		require.NoError(t, err)
		require.Empty(t, charttest.Problems(svg), args)
		require.GreaterOrEqual(t, charttest.TextOnPhone(svg), 11.0)
		html, err := os.ReadFile("limit.html")
		require.NoError(t, err)
		drawn := pictures.FindAll(html, -1)
		require.NotEmpty(t, drawn)
		for _, svg := range drawn {
			require.Empty(t, charttest.Problems(svg), args)
			require.GreaterOrEqual(t, charttest.TextOnPhone(svg), 11.0)
		}
		ids := make(map[string]bool)
		for _, id := range regexp.MustCompile(` id="[^"]*"`).FindAllString(string(html), -1) {
			require.False(t, ids[id], "%s is there twice", id)
			ids[id] = true
		}
		require.Equal(t, 1, strings.Count(string(html), "<style>"))
		require.Len(t, ids, 2*len(drawn), "the title and the description of each picture")
		for _, banned := range []string{"<script", "<link", "src=", "href=", "url(", "@import", "<together>", "\x1b", "ZgotmplZ"} {
			require.NotContains(t, string(html), banned)
			require.NotContains(t, string(svg), banned)
		}
		require.Contains(t, string(html), `name="viewport" content="width=device-width,initial-scale=1"`)
		require.Contains(t, string(html), "prefers-color-scheme:dark")
	}
}

// TestSimulateLarge simulates a limit that a sliding window log cannot have: the other algorithms are compared.
func TestSimulateLarge(t *testing.T) {
	got := runIn(t, nil, strings.Fields("simulate -rate 1000000/s -send 10/s -duration 5s")...)
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.out, "limit: 1000000/s; too high for SlidingWindowLog\n")
	require.Contains(t, got.out, "\nSlidingWindowCounter ")
	require.NotContains(t, got.out, "\nSlidingWindowLog ")
	got = runIn(t, nil, strings.Fields("simulate -rate 9000000000000000/s -send 10/s -duration 5s -csv")...)
	require.Equal(t, exitOK, got.code, got.err)
	require.Equal(t, 3, strings.Count(got.out, "\n"), "the header, FixedWindow and SlidingWindowCounter")
	require.Empty(t, got.err)
	got = runIn(t, nil, strings.Fields("simulate -rate 1000000/s -send 2000000/s -duration 1s -algorithm FixedWindow")...)
	require.Equal(t, "FixedWindow: about 2,000,000 requests ...\n", got.err)
}

// TestNarrow runs commands in a terminal of 40 columns.
func TestNarrow(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{"access.log": exampleLog(), "limits.json": exampleLimits, "other.json": exampleOther} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	for _, args := range []string{
		"replay access.log -config limits.json", "replay access.log -config limits.json -against other.json", "prove limits.json",
		"explain limits.json -ip 203.0.113.9 -endpoint /login -after access.log", "simulate -rate 100/m", "simulate -config limits.json",
	} {
		var out strings.Builder
		code := run(t.Context(), &terminal{in: strings.NewReader(""), out: &out, err: io.Discard, width: 40}, strings.Fields(args))
		require.Less(t, code, exitUsage, args)
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 40, "%s: %s", args, line)
		}
		require.NotContains(t, out.String(), "by by ", args)
		if strings.HasPrefix(args, "simulate -rate") {
			require.Contains(t, out.String(), "\nSlidingWindowLog\n  offered 1,000\n  granted 500\n  denied 500\n")
		}
		require.NotRegexp(t, ` deni `, out.String(), args)
	}
}

// TestSimulateDenied requires that the dashed line of denials is drawn over the line of grants, so that both are seen where they
// are equal.
func TestSimulateDenied(t *testing.T) {
	got := runIn(t, nil, strings.Fields("simulate -rate 100/m -shape bursts -algorithm TokenBucket -svg limit.svg")...)
	require.Equal(t, exitOK, got.code, got.err)
	svg, err := os.ReadFile("limit.svg")
	require.NoError(t, err)
	lines := regexp.MustCompile(`<path class="c(\d) d\d" d="([^"]*)"/>`).FindAllSubmatch(svg, -1)
	require.Len(t, lines, 2)
	require.Equal(t, "2", string(lines[0][1]), "granted: a solid line in blue")
	require.Equal(t, "3", string(lines[1][1]), "denied: a dashed line in orange")
	require.Equal(t, string(lines[0][2]), string(lines[1][2]), "of 200 requests at once, half are granted")
	require.Contains(t, string(svg), ".rl .d3{stroke-dasharray:")
	require.NotContains(t, string(svg), ".rl .d2{stroke-dasharray:")
}

// TestSimulateKeepsFiles requires that a file that cannot be written whole leaves nothing behind.
func TestSimulateKeepsFiles(t *testing.T) {
	got := runIn(t, map[string]string{"limit.svg": "old"}, "simulate", "-svg", "limit.svg", "-html", ".")
	require.Equal(t, exitFailed, got.code)
	require.Empty(t, got.out)
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, left, 1, "the picture, and no part of the page")
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1: "1ns", 999: "999ns", 12346: "12.35µs", 1499 * time.Millisecond: "1.5s", 60*time.Second + 1: "1m0.01s",
		1000*time.Second + 1: "16m41s", 8759*time.Hour + 1: "365d", 100 * time.Millisecond: "100ms",
	} {
		require.Equal(t, want, short(d))
	}
	for d := time.Duration(1); d < 366*24*time.Hour; d = d*9/8 + 1 {
		require.LessOrEqual(t, len([]rune(short(d))), 8, "%v: %s", d, short(d))
	}
}

// TestParts requires that the lengths of parts are short, and said to be rounded if they are.
func TestParts(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Minute: "5s", 50 * time.Second: "1.25s", time.Hour: "1m", 24 * time.Hour: "24m", 7919: "about 98ns", 3: "about 0s",
	} {
		var s simulation
		s.traffic.Duration = d
		require.Equal(t, want, s.partText(s.parts()), d)
		require.Zero(t, sim.Bins%s.parts())
	}
}
