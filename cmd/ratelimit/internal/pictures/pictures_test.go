package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart/charttest"
)

// committed is where the pictures of the documents are.
const committed = "../../../../docs/pictures"

// TestCommitted requires that the committed pictures are those that the code draws now, byte for byte.
func TestCommitted(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, drawAll(folder))
	files, err := os.ReadDir(committed)
	require.NoError(t, err)
	require.Len(t, files, len(pictures))
	for _, file := range files {
		want, err := os.ReadFile(filepath.Join(folder, file.Name()))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(committed, file.Name()))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s: run go generate in cmd/ratelimit", file.Name())
		require.Empty(t, charttest.Problems(got), file.Name())
		require.GreaterOrEqual(t, charttest.TextOnPhone(got), 11.0, "%s: pixels", file.Name())
	}
	require.Error(t, drawAll(filepath.Join(folder, "missing")))
}

// TestPlays requires that the pictures show what the text beside them says.
func TestPlays(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/algorithms.md")
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("sends the same %d requests", len(requests())))
	for a, want := range map[ratelimit.Algorithm]struct{ granted, maxGranted, bound int }{
		ratelimit.AlgorithmTokenBucket:          {36, 17, 19},
		ratelimit.AlgorithmLeakyBucket:          {36, 17, 19},
		ratelimit.AlgorithmFixedWindow:          {40, 20, 20},
		ratelimit.AlgorithmSlidingWindowCounter: {31, 16, 19},
		ratelimit.AlgorithmSlidingWindowLog:     {30, 10, 10},
	} {
		p, err := run(a)
		require.NoError(t, err)
		_, maxGranted := p.inWindow()
		require.Equal(t, want, struct{ granted, maxGranted, bound int }{len(p.granted), maxGranted, p.bound()}, a)
		require.Len(t, requests(), len(p.granted)+len(p.denied), a)
		require.Regexp(t, fmt.Sprintf("\\n\\| [^|]*`%s`[^|]* \\| %d \\| %d \\| %d \\|\\n", a, want.granted, want.maxGranted, want.bound),
			string(text))
		for i, at := range p.left {
			if a == ratelimit.AlgorithmTokenBucket {
				require.Equal(t, int(at.Y), int(limit-p.debt[i].Y+1e-6), "the level is that of Remaining")
			}
		}
	}
}

// TestWindows requires that the pictures of other windows show what the text beside them says.
func TestWindows(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/algorithms.md")
	require.NoError(t, err)
	p, err := runMonths()
	require.NoError(t, err)
	var first, granted []float64 // the days of the first request granted in each month, and the requests granted in each
	for i, at := range p.granted {
		if i%limit == 0 {
			first = append(first, at.X)
		}
		granted = append(granted, at.X)
	}
	require.Equal(t, []float64{0.5, 32.5, 60.5}, first, "the first requests after day 0, 31 and 59")
	require.Len(t, granted, 3*limit)
	require.Len(t, p.denied, 15)
	require.Zero(t, p.used[len(p.used)-1].Y, "the clocks were set forward, so that April begins an hour before day 90")

	q, err := runRate(ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: limit, Per: per, Window: "first"})
	require.NoError(t, err)
	_, most := q.inWindow()
	require.Equal(t, 10, most)
	require.Len(t, q.granted, 30)
	require.Equal(t, []time.Duration{8500 * time.Millisecond, 18500 * time.Millisecond, 34 * time.Second},
		[]time.Duration{q.granted[0], q.granted[limit], q.granted[2*limit]})
	require.Contains(t, string(text), "begin at 8.5 s, 18.5 s and 34 s")
}
