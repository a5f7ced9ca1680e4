package verify

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
)

// TestFileMeans has documents, with all that is said of them: how many rules there are, or the
// error, less the name of the file.
func TestFileMeans(t *testing.T) {
	const good = `{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "1/s"}`
	for _, tt := range []struct {
		text  string
		rules int
		err   string
	}{
		{"\ufeff[" + good + "]", 1, ""},
		{`{"$schema": "x", "Rules": [` + good + `, {"name": "\ud83d\ude00", "algorithm": "GCRA", "rate": "1/s"}], "default": {"algorithm": "GCRA", "rate": "1/s"}}`, 2, ""},
		{"[" + good + "] x", 0, `1:65: must end here, but there is "x"`},
		{`{"rules": [], "rules": []}`, 0, `1:15: "rules" must be given once, and is given before in the same object`},
		{strings.Repeat("[", 33), 0, `1:33: must have at most 32 objects and lists within each other`},
		{"[\"\xff\"]", 0, `1:3: must be UTF-8, but has the byte 0xff`},
		{`["\ud83d"]`, 0, `1:3: must be a whole character: half of a pair of \u stands alone`},
		{`[1, ]`, 0, `1:5: must be a JSON value, but is "]": remove the comma before it`},
		{`[01]`, 0, `1:3: must have a "," or a "]" here, but has "1"`},
		{"[\n " + good + ",\n  " + good + "]", 0, `3:4: rules[1].endpoint is "/a": is that of rules[0]: rules that share an endpoint need names`},
		{"{\"default\": {\"algorithm\": \"GCRA\",\n  \"rate\": 0},\n\"rules\": [{\"nane\": 1,\n  \"algorithm\": \"FixedWindow\", \"tiers\": {\"paid\": \"x\"}, \"limit\": -1, \"windowMs\": 1}]}", 0,
			"2:3: default.rate is 0: must look like \"100/m\", \"10 per 2 minutes\", \"100/90s\" or \"100/m burst 20\"\n" +
				"3:12: rules[0].nane is 1: unknown field; did you mean \"name\"?\n" +
				"4:41: rules[0].tiers[\"paid\"] is \"x\": must look like \"100/m\", \"10 per 2 minutes\", \"100/90s\" or \"100/m burst 20\"\n" +
				"4:55: rules[0].limit is -1: must be at least 1"},
	} {
		f, err := configfile.Parse("f", []byte(tt.text))
		if err == nil {
			var l *ratelimit.RateLimiter
			if l, err = f.New(); err == nil {
				rules, _ := l.Rules()
				require.Len(t, rules, tt.rules, tt.text)
				require.Empty(t, tt.err, tt.text)
				continue
			}
		}
		var lines []string
		for line := range strings.SplitSeq(err.Error(), "\n") {
			lines = append(lines, strings.TrimPrefix(line, "f:"))
		}
		require.Equal(t, tt.err, strings.Join(lines, "\n"), tt.text)
	}
	f, err := configfile.Parse("f", []byte("["+good+"]"))
	require.NoError(t, err)
	_, err = f.New(ratelimit.WithMaxKeys(-1))
	require.ErrorContains(t, err, "ratelimit: maxKeys is -1: ", "it is none of the file")
}

// TestFileWatched follows a file through good and bad content, and one that never rests.
func TestFileWatched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	write := func(n int, end string) {
		text := `[{"name": "a", "algorithm": "FixedWindow", "rate": "` + strconv.Itoa(n) + `/m"}` + end
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(1, "]")
	var log strings.Builder
	l, w, err := configfile.Open(path)
	require.NoError(t, err)
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	rate := func(name string) int {
		rules, _ := l.Rules()
		for _, r := range rules {
			if r.Name == name {
				return r.Rate.Requests
			}
		}
		return 0
	}
	code := ratelimit.Rule{Name: "code", Rate: ratelimit.PerMinute(9)}
	const round, rest = 5500 * time.Millisecond, 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		after := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		loaded := func(loads, failures int) {
			t.Helper()
			s := w.Status()
			require.Equal(t, []int{loads, failures}, []int{s.Loads, s.Failures})
			require.Equal(t, loads+failures-1, strings.Count(log.String(), `is applied"`)+strings.Count(log.String(), "refused"))
		}
		require.NoError(t, l.AddRule(code))
		after(3 * round)
		require.Equal(t, 9, rate("code"), "the file has not changed")

		write(2, "")
		after(3 * round)
		require.Error(t, w.Status().Err)
		require.Equal(t, 1, rate("a"))
		loaded(1, 1)
		write(1, "]")
		after(round + rest)
		require.NoError(t, w.Status().Err)
		require.Equal(t, 9, rate("code"), "the file is again what it was")
		loaded(1, 1)

		write(3, "]")
		after(round + rest)
		require.Equal(t, []int{3, 0}, []int{rate("a"), rate("code")})
		require.Contains(t, log.String(), "added=[] removed=[code] changed=[a]")
		loaded(2, 1)

		require.NoError(t, l.AddRule(code))
		require.NoError(t, w.Reload())
		require.Zero(t, rate("code"), "Look applies the file also if it has not changed")
		after(round)

		n := 1000
		longest := n + int((round+20*rest)/(100*time.Millisecond)) // the longest pause of Run, and 20 reads
		for ; rate("a") == 3 && n < longest; n++ {                 // a new content for each read
			write(n, map[bool]string{true: "]", false: ""}[n%2 == 0])
			after(100 * time.Millisecond)
		}
		require.GreaterOrEqual(t, rate("a"), n-7, "the newest that is good")
		require.GreaterOrEqual(t, n, 1000+int(19*rest/(100*time.Millisecond)), "as long as it may rest")
		require.Equal(t, 1, w.Status().Failures, "no half of a file was tried")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})

	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	require.EqualError(t, w.Reload(), path+": must be a regular file, but its mode is prw-------")
	require.NoError(t, os.Remove(path))
	write(5, strings.Repeat(" ", 4<<20)+"]")
	require.EqualError(t, w.Reload(), path+": must have at most 4194304 bytes")
}
