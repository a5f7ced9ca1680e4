package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTopWhileReading requires that top shows the keys that it has read while it reads the others.
func TestTopWhileReading(t *testing.T) {
	t.Chdir(t.TempDir())
	address, client, _ := startRedis(t)
	use(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var text strings.Builder
	pages := writerFunc(func(b []byte) (int, error) {
		text.Write(b)
		shown := text.String()
		atEnd := strings.Count(shown, clearScreen) > 1 && !strings.Contains(shown, "reading") // pages came only after all was read
		if strings.Contains(shown, "shop:/search: TokenBucket") && (atEnd || strings.HasSuffix(shown, "reading ...\n")) {
			cancel()
		}
		return len(b), nil
	})
	run(ctx, &terminal{out: pages, err: io.Discard, width: 80, outLive: true},
		[]string{"top", "redis://" + address, "-config", "limits.json", "-count", "1", "-pause", "501ms"})
	require.Contains(t, text.String(), "reading ...\n")
	require.Contains(t, text.String(), clearScreen)
}
