package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
)

// read reads all of a log.
func read(t *testing.T, log string, o accesslog.Options) (entries []accesslog.Entry, counts accesslog.Counts) {
	t.Helper()
	r, err := accesslog.NewReader(strings.NewReader(log), o)
	require.NoError(t, err)
	for {
		var e accesslog.Entry
		err := r.Next(&e)
		if errors.Is(err, io.EOF) {
			return entries, r.Counts()
		}
		require.NoError(t, err)
		entries = append(entries, e)
	}
}

var noon = time.Date(2026, 10, 10, 12, 0, 0, 0, time.UTC).UnixNano()

func TestCombined(t *testing.T) {
	for _, row := range []struct {
		line string
		want accesslog.Entry
		why  string
	}{
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 5`, accesslog.Entry{Endpoint: "/a"}, "common, with a query"},
		{`10.0.0.1 - bob [10/Oct/2026:14:30:00 +0230] "POST /a HTTP/2.0" 200 5 "http://x/" "curl"`, accesslog.Entry{Endpoint: "/a"},
			"combined, another zone"},
		{`10.0.0.1 - bob [marley] x [10/Oct/2026:05:00:00 -0700] "GET /a HTTP/1.1" 200 -`, accesslog.Entry{Endpoint: "/a"},
			"a user with spaces and a bracket is cut there"},
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET /a\"b HTTP/1.1" 404 0 "-" "a \"b\" c"`, accesslog.Entry{Endpoint: `/a\"b`},
			"escaped quotation marks"},
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET http://h/a/b?x HTTP/1.1" 200 5`, accesslog.Entry{Endpoint: "/a/b"}, "a whole URL"},
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET http://h HTTP/1.1" 200 5`, accesslog.Entry{Endpoint: "/"}, "a URL without a path"},
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET /a b HTTP/1.1" 200 5`, accesslog.Entry{Endpoint: "/a b"}, "a path with a space"},
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET /a" 200 5`, accesslog.Entry{Endpoint: "/a"}, "no protocol"},
		{`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "OPTIONS * HTTP/1.1" 200 5`, accesslog.Entry{Endpoint: "*"}, "no path at all"},
	} {
		got, counts := read(t, row.line+"\n", accesslog.Options{})
		if strings.Contains(row.line, "marley") {
			require.Equal(t, 1, counts.Broken, row.why)
			continue
		}
		require.Empty(t, counts.Examples, row.why)
		row.want.Time, row.want.Client, row.want.IP, row.want.Cost = noon, "ip:10.0.0.1", "10.0.0.1", 1
		require.Equal(t, []accesslog.Entry{row.want}, got, row.why)
	}
	for line, reason := range map[string]string{
		`10.0.0.1`: "is not in the combined log format",
		`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET /a`:                    "is not in the combined log format",
		`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET /a HTTP/1.1" x`:        "is not in the combined log format",
		`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "-" 408 0`:                  "has a request without a path",
		`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "\x16\x03\x01" 400 0`:       "has a request without a path",
		`10.0.0.1 - - [31/Feb/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 0`:    "has a time that cannot be read",
		`10.0.0.1 - - [10/Oct/2026:12:00:00] "GET /a HTTP/1.1" 200 0`:          "has a time that cannot be read",
		`10.0.0.1 - - [10/Okt/2026:12:00:00 +0000] "GET /a HTTP/1.1" 200 0`:    "has a time that cannot be read",
		`10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "GET ?a HTTP/1.1" 200 0 "x`: "has a request without a path",
	} {
		_, counts := read(t, line, accesslog.Options{Format: accesslog.Combined})
		require.Equal(t, []*accesslog.LineError{{Line: 1, Text: line, Reason: reason}}, counts.Examples)
	}
}

func fields(t *testing.T, texts ...string) accesslog.Fields {
	t.Helper()
	f := make(accesslog.Fields)
	for _, text := range texts {
		require.NoError(t, f.Set(text))
	}
	return f
}

func TestFields(t *testing.T) {
	log := `10.0.0.1 - bob [10/Oct/2026:12:00:00 +0000] "PUT /a HTTP/1.1" 200 512 "http://x/" "curl 8"
10.0.0.2 - - [10/Oct/2026:12:00:00 +0000] "GET /b HTTP/1.1" 200 - "-" "-"
`
	f := fields(t, "client=user,host", "cost=bytes", "tier=agent", "attr:method=method", "attr:from=referer")
	require.Equal(t, "attr:from=referer attr:method=method client=user,host cost=bytes tier=agent", f.String())
	got, counts := read(t, log, accesslog.Options{Fields: f})
	require.Equal(t, accesslog.Counts{Lines: 2, Entries: 2}, counts)
	require.Equal(t, []accesslog.Entry{
		{Time: noon, Client: "bob", Endpoint: "/a", IP: "10.0.0.1", Cost: 512, Tier: "curl 8",
			Attrs: map[string]string{"method": "PUT", "from": "http://x/"}},
		{Time: noon, Client: "ip:10.0.0.2", Endpoint: "/b", IP: "10.0.0.2", Cost: 1, Attrs: map[string]string{"method": "GET", "from": ""}},
	}, got)

	for text, want := range map[string]string{"client": "must be part=column", "client=": "must be part=column",
		"who=x": `has the part "who"`, "attr:=x": `has the part "attr:"`, "ip=a,": "without a name"} {
		require.ErrorContains(t, make(accesslog.Fields).Set(text), want)
	}
	r, err := accesslog.NewReader(strings.NewReader(log), accesslog.Options{Fields: fields(t, "client=name")})
	require.NoError(t, err)
	require.ErrorContains(t, r.Next(new(accesslog.Entry)), `has no field "name"`)
}

func TestJSON(t *testing.T) {
	log := `{"ts":1791633600.5,"request":{"remote_ip":"10.0.0.1","uri":"/a?b","headers":{"x":["y",{}]}},"status":200}
{"time": "2026-10-10T12:00:00.25Z", "client": "b\u00f6b", "path": "/c?d", "cost": 3, "tier": null, "x": [1, -2.5e3, true, {"time": 5}]}
{"time":"2026-10-10T12:00:00Z","client":"a","endpoint":"/a","cost":1.5}
{"time":"2026-10-10T12:00:00Z","client":"a","endpoint":"/a"
{"time":"2026-10-10T12:00:00Z","client":"a","endpoint":"/a"} x
{"client":"a","endpoint":"/a"}
{"time":"2026-10-10T12:00:00Z"}
[1]
`
	f := fields(t, "client=client,request.remote_ip", "endpoint=path,request.uri")
	got, counts := read(t, log, accesslog.Options{Fields: f})
	require.Equal(t, []accesslog.Entry{
		{Time: noon + 5e8, Client: "10.0.0.1", Endpoint: "/a", Cost: 1},
		{Time: noon + 25e7, Client: "böb", Endpoint: "/c", Cost: 3},
	}, got)
	require.Equal(t, 6, counts.Broken)
	require.Equal(t, "has a cost that is no whole number from 0 to 2147483647", counts.Examples[0].Reason)
	require.Equal(t, "is no JSON object", counts.Examples[1].Reason)
	require.Equal(t, "has text after the JSON object", counts.Examples[2].Reason)

	_, counts = read(t, `{"x":`+strings.Repeat("[", 1000)+strings.Repeat("]", 1000)+"}", accesslog.Options{})
	require.Equal(t, 1, counts.Broken, "nested too deep")
}

// FuzzJSON compares what is read of an object with what encoding/json reads.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"time":1,"client":"a\u0000\"","x":{"client":2}}`, `{"client":-0.5e+3}`, `{"client":1e999}`,
		`{"a":[[],{}],"client":""}`, `{"client":"\ud800"}`, `{"cli\u0065nt":"a"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.TrimSuffix(line, "\r") // the end of the line
		if line == "" || line == "\r" || strings.Contains(line, "\n") || strings.HasPrefix(line, "\ufeff") ||
			strings.Contains(line, "\\u") && !json.Valid([]byte(line)) {
			return
		}
		r, err := accesslog.NewReader(strings.NewReader(line),
			accesslog.Options{Format: accesslog.JSON, Fields: accesslog.Fields{"time": {"t"}, "client": {"client"}, "ip": {"-"}, "endpoint": {"e"}}})
		if err != nil {
			return // it has the magic bytes of gzip
		}
		var e accesslog.Entry
		require.ErrorIs(t, r.Next(&e), io.EOF)
		shown := r.Counts().Examples
		require.Len(t, shown, 1, "it has no time")
		valid := json.Valid([]byte(line)) && strings.HasPrefix(strings.TrimLeft(line, " \t\r"), "{")
		read := shown[0].Reason == "has no time" || strings.Contains(shown[0].Reason, "time that cannot")
		if strings.Count(line, "{")+strings.Count(line, "[") < 50 {
			require.Equal(t, valid, read, "%q: %s", line, shown[0].Reason)
		}
	})
}

func TestCSV(t *testing.T) {
	const rows = "2026-10-10 12:00:00,\"a \"\"b\"\", c\",/x?y,2\r\n" + "2026-10-10 12:00:00+02:00,d,\"/z\",\n" + "1,2\n" + "1,\"2,3,4\n" +
		"1,\"2\"3,4,5\n"
	want := []accesslog.Entry{
		{Time: noon, Client: `a "b", c`, Endpoint: "/x", Cost: 2},
		{Time: noon - 7200e9, Client: "d", Endpoint: "/z", Cost: 1},
	}
	got, counts := read(t, "time,client,endpoint,cost\n\n"+rows, accesslog.Options{})
	require.Equal(t, want, got)
	require.Equal(t, 3, counts.Broken)
	require.Equal(t, "has 2 fields, not 4", counts.Examples[0].Reason)
	require.Equal(t, "has a quotation mark that nothing closes", counts.Examples[1].Reason)
	require.Equal(t, "has text after a quotation mark", counts.Examples[2].Reason)

	o := accesslog.Options{Format: accesslog.CSV, Columns: []string{"time", "client", "endpoint", "cost"}}
	got, _ = read(t, rows, o)
	require.Equal(t, want, got, "without a header")
	o.Comma = ';'
	got, _ = read(t, "1791633600;a;/x;1\n", o)
	require.Equal(t, []accesslog.Entry{{Time: noon, Client: "a", Endpoint: "/x", Cost: 1}}, got)

	for header, want := range map[string]string{"when,client": "no column for the time: must be time or ts",
		"time,who": "no column for the client", "a,\"b": "the header has a quotation mark"} {
		r, err := accesslog.NewReader(strings.NewReader(header+"\n1,2\n"), accesslog.Options{Format: accesslog.CSV})
		require.NoError(t, err)
		require.ErrorContains(t, r.Next(new(accesslog.Entry)), want)
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]int64{
		"1791633600":                          noon,
		"1791633600.123456789":                noon + 123456789,
		"1791633600.1234567891":               noon + 123456789,
		"1791633600123":                       noon + 123e6,
		"1791633600123.5":                     noon + 1235e5,
		"1791633600123456":                    noon + 123456e3,
		"1791633600123456789":                 noon + 123456789,
		"2026-10-10T12:00:00Z":                noon,
		"2026-10-10t12:00:00.000000001z":      noon + 1,
		"2026-10-10 12:00:00":                 noon,
		"2026-10-10 12:00:00,5 +0100":         noon + 5e8 - 3600e9,
		"2026-10-10T12:00:00-07":              noon + 7*3600e9,
		"10/Oct/2026:12:00:00 +0000":          noon,
		"[10/Oct/2026:12:00:00.250 -0130]":    noon + 25e7 + 5400e9,
		"1970-01-01T00:00:00Z":                0,
		"1969-12-31T23:00:00-01:00":           0,
		"2262-04-11T00:00:00Z":                time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC).UnixNano(),
		"2024-02-29T23:59:60Z":                time.Date(2024, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano(),
		"0":                                   0,
		"9223372035000000000":                 9223372035000000000,
		"99999999999":                         -1,
		"9223372036854775807":                 -1,
		"99999999999999999999999":             -1,
		"1969-12-31T23:59:59Z":                -1,
		"2023-02-29T00:00:00Z":                -1,
		"2263-01-01T00:00:00Z":                -1,
		"2026-13-10T12:00:00Z":                -1,
		"2026-10-10T24:00:00Z":                -1,
		"2026-10-10T12:00:00.Z":               -1,
		"2026-10-10T12:00:00Zx":               -1,
		"2026-10-10":                          -1,
		"10/Oct/2026:12:00:00":                -1,
		"-1":                                  -1,
		"1e9":                                 -1,
		"yesterday":                           -1,
		"10/10/2026:12:00:00 +0000":           -1,
		"2026-10-10T12:00:00+99:00":           -1,
		"2026-10-10T12:00:00.123456789123 +0": -1,
	} {
		got, counts := read(t, fmt.Sprintf(`{"time":%q,"client":"a"}`, text), accesslog.Options{})
		if want < 0 {
			require.Equal(t, 1, counts.Broken, text)
			continue
		}
		require.Len(t, got, 1, text)
		require.Equal(t, want, got[0].Time, text)
	}
}

func TestBroken(t *testing.T) {
	good := `{"time":1,"client":"a"}` + "\n"
	log := good + "{\n{\n\n{\n{" + strings.Repeat("x", 500) + "\n" + good
	got, counts := read(t, log, accesslog.Options{})
	require.Len(t, got, 2)
	require.Equal(t, 6, counts.Lines)
	require.Equal(t, 4, counts.Broken)
	require.Len(t, counts.Examples, 3)
	require.Equal(t, 5, counts.Examples[2].Line, "an empty line has a number too")

	r, err := accesslog.NewReader(strings.NewReader(log), accesslog.Options{Strict: true})
	require.NoError(t, err)
	var e accesslog.Entry
	require.NoError(t, r.Next(&e))
	err = r.Next(&e)
	var broken *accesslog.LineError
	require.ErrorAs(t, err, &broken)
	require.EqualError(t, err, "line 2 is no JSON object: {")
}

// TestManyTexts reads more different texts than are kept, each several times.
func TestManyTexts(t *testing.T) {
	var log strings.Builder
	var want []string
	for range 3 {
		for i := range 20_000 {
			want = append(want, fmt.Sprint("client", i))
			fmt.Fprintf(&log, "1,client%d\n", i)
		}
	}
	got, _ := read(t, log.String(), accesslog.Options{Columns: []string{"time", "client"}, Format: accesslog.CSV})
	require.Len(t, got, len(want))
	for i, e := range got {
		if e.Client != want[i] {
			require.Equal(t, want[i], e.Client)
		}
	}
}

func TestEmpty(t *testing.T) {
	for _, log := range []string{"", "\n\n\r\n", "\ufeff"} {
		got, counts := read(t, log, accesslog.Options{})
		require.Empty(t, got)
		require.Zero(t, counts)
	}
	got, _ := read(t, "\ufefftime,client\n1,a", accesslog.Options{})
	require.Len(t, got, 1, "a byte order mark, and no end of the last line")
}

func TestGzip(t *testing.T) {
	var packed bytes.Buffer
	for range 2 { // of two members
		z := gzip.NewWriter(&packed)
		_, err := fmt.Fprintln(z, `{"time":1,"client":"a"}`)
		require.NoError(t, err)
		require.NoError(t, z.Close())
	}
	whole := packed.String()
	got, _ := read(t, whole, accesslog.Options{})
	require.Len(t, got, 2)

	r, err := accesslog.NewReader(strings.NewReader(whole[:len(whole)-4]), accesslog.Options{})
	require.NoError(t, err)
	var e accesslog.Entry
	require.NoError(t, r.Next(&e))
	require.NoError(t, r.Next(&e))
	require.ErrorIs(t, r.Next(&e), io.ErrUnexpectedEOF, "a file that is cut off is no end")
	_, err = accesslog.NewReader(strings.NewReader("\x1f\x8b\x08"), accesslog.Options{})
	require.ErrorContains(t, err, "not a complete gzip file")
}

// packedLog is a log with one line, by bzip2 -9.
const packedLog = "QlpoOTFBWSZTWW4ML+sAAAtZgAAQEAQgEConBAogACITQyeoeQpgABEVKA0GY/PTnypYsXckU4UJBuDC/rA="

func TestOtherPacked(t *testing.T) {
	packed, err := base64.StdEncoding.DecodeString(packedLog)
	require.NoError(t, err)
	got, _ := read(t, string(packed)+string(packed), accesslog.Options{})
	require.Len(t, got, 2, "of two streams, as pbzip2 writes them")
	r, err := accesslog.NewReader(bytes.NewReader(packed[:len(packed)-8]), accesslog.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Next(new(accesslog.Entry)))
	require.ErrorIs(t, r.Next(new(accesslog.Entry)), io.ErrUnexpectedEOF, "a file that is cut off is no end")
	_, counts := read(t, "BZh9 is no bzip2\n"+`{"time":1,"client":"a"}`, accesslog.Options{Format: accesslog.JSON})
	require.Equal(t, 1, counts.Broken)

	_, err = accesslog.NewReader(strings.NewReader("\x28\xb5\x2f\xfd\x04"), accesslog.Options{})
	require.ErrorContains(t, err, "zstd -dc FILE | ratelimit")
	_, err = accesslog.NewReader(strings.NewReader("\xfd7zXZ\x00\x00"), accesslog.Options{})
	require.ErrorContains(t, err, "xz -dc FILE | ratelimit")
}

// endless reads n times the byte x, then text.
func endless(n int64, text string) io.Reader {
	return io.MultiReader(io.LimitReader(xs{}, n), strings.NewReader(text))
}

type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestLongLine requires that a line takes a bounded memory, however long it is.
func TestLongLine(t *testing.T) {
	const good = "\n" + `{"time":1,"client":"a"}`
	for _, size := range []int64{accesslog.MaxLine + 1, 10 << 20, 200 << 20} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := accesslog.NewReader(endless(size, good), accesslog.Options{Format: accesslog.JSON})
		require.NoError(t, err)
		var e accesslog.Entry
		require.NoError(t, r.Next(&e))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20), "of a line of %d bytes", size)
		counts := r.Counts()
		require.Equal(t, 1, counts.TooLong)
		require.Equal(t, 1, counts.Broken)
		require.Equal(t, 2, counts.Lines)
		require.Equal(t, "is longer than 1048576 bytes", counts.Examples[0].Reason)
		require.Less(t, len(counts.Examples[0].Text), 200)
	}
	r, err := accesslog.NewReader(strings.NewReader(`{"time":1,"client":"`+strings.Repeat("a", accesslog.MaxLine-22)+"\"}\r\n"),
		accesslog.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Next(new(accesslog.Entry)), "the longest line")
}

func BenchmarkCombined(b *testing.B) {
	var log strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&log, "10.0.%d.%d - - [10/Oct/2026:12:%02d:%02d +0000] \"GET /path/%d?q=%d HTTP/1.1\" 200 %d \"https://example.com/\" "+
			"\"Mozilla/5.0 (X11; Linux x86_64)\"\n", i%7, i%251, i/600%60, i/10%60, i%50, i, i)
	}
	text := log.String()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := accesslog.NewReader(strings.NewReader(text), accesslog.Options{})
		require.NoError(b, err)
		var e accesslog.Entry
		for r.Next(&e) == nil {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/line")
}
