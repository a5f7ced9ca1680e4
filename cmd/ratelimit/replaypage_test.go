package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart/charttest"
)

// TestReplayPage requires that the page has what the report says, and a picture, and that no text of the log is HTML.
func TestReplayPage(t *testing.T) {
	log := exampleLog()
	for i := range 60 {
		log += fmt.Sprintf("<b>x</b>%d - - [10/Oct/2026:18:00:0%d +0000] \"GET /login HTTP/1.1\" 200 1 \"-\" \"-\"\n", i%2, i%10)
	}
	files := map[string]string{"access.log": log, "limits.json": exampleLimits, "other.json": exampleOther}
	got := runIn(t, files, strings.Fields("replay access.log -config limits.json -against other.json -html page.html")...)
	require.Equal(t, exitOK, got.code, got.err)
	text, err := os.ReadFile("page.html")
	require.NoError(t, err)
	page := string(text)
	require.Contains(t, page, "<h1>What is denied: limits.json and other.json</h1>")
	for _, line := range strings.Split(got.out, "\n")[:2] {
		require.Contains(t, page, "<p>"+line+"</p>")
	}
	require.Contains(t, page, "<caption>top offenders</caption>")
	require.Contains(t, page, `<td role="cell" data-label="by rule">/login</td>`)
	require.Contains(t, page, `<td role="cell" data-label="first" class="none">-</td>`, "a phone does not show it")
	require.Contains(t, page, "denied only by other.json")
	require.Contains(t, page, "&lt;b&gt;x&lt;/b&gt;")
	for _, banned := range []string{"<b>", "<script", "<link", "src=", "href=", "url(", "ZgotmplZ", "###"} {
		require.NotContains(t, page, banned)
	}
	drawn := pictures.FindAll(text, -1)
	require.Len(t, drawn, 1)
	require.Empty(t, charttest.Problems(drawn[0]))
	require.GreaterOrEqual(t, charttest.TextOnPhone(drawn[0]), 11.0)
	require.Contains(t, string(drawn[0]), "Requests in each 1h")
	require.Contains(t, string(drawn[0]), "since 2026-10-10 12:00:00 UTC")
	require.Regexp(t, `<path class="g c1" d="M\S+ \S+H\S+V\S+H\S+V\S+H\S+"/>`, string(drawn[0]), "an hour, five without, and an hour")

	got = runIn(t, files, strings.Fields("replay access.log -config limits.json -html no/such/page.html")...)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, `-html is "no/such/page.html": `)
}
