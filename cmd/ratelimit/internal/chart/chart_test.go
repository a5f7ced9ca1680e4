package chart_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/chart/charttest"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func drawn(t *testing.T, f chart.Figure) string {
	t.Helper()
	var b strings.Builder
	require.NoError(t, f.WriteSVG(&b))
	return b.String()
}

// everything is a figure with all kinds and all looks.
func everything() chart.Figure {
	wave := []chart.Point{{X: 0, Y: 0}, {X: 10, Y: 40}, {X: 20, Y: 40}, {X: 30, Y: 10}, {X: 95, Y: 1200}, {X: 100, Y: 0}}
	return chart.Figure{
		ID: "all", Title: "All kinds & looks <of series>, with a title that is too long for one line of it", Desc: "Some lines.",
		X: chart.Axis{Label: "time", Seconds: true},
		Panels: []chart.Panel{
			{Title: "first", Y: chart.Axis{Label: "units"}, Series: []chart.Series{
				{Name: "offered", Kind: chart.Area, Look: chart.Grey, Points: wave},
				{Name: "granted", Kind: chart.Steps, Look: chart.Blue, Points: wave},
				{Name: "level", Kind: chart.Line, Look: chart.Green, Points: wave},
				{Name: "limit", Kind: chart.Level, Look: chart.Ink, Points: []chart.Point{{Y: 1000}}},
			}},
			{Title: "second", Height: 40, Y: chart.Axis{Min: -1, Max: 1}, Series: []chart.Series{
				{Name: "one of many words that will not fit in one line of the legend at the bottom of it", Kind: chart.Dots, Look: chart.Orange,
					Points: wave[:2]},
				{Name: "granted", Kind: chart.Lane, Look: chart.Blue, Points: wave},
				{Name: "denied", Kind: chart.Lane, Look: chart.Orange, Points: wave},
				{Name: "none", Kind: chart.Steps, Look: chart.Ink},
				{Name: "late", Kind: chart.Lane, Look: chart.Green, Points: wave[3:]},
				{Name: "grey", Kind: chart.Lane, Look: chart.Grey, Points: append(wave, wave...)},
				{Name: "ink", Kind: chart.Lane, Look: chart.Ink, Points: wave},
			}},
		},
	}
}

func TestGolden(t *testing.T) {
	svg := drawn(t, everything())
	golden(t, "testdata/everything.svg", svg)
	require.Equal(t, svg, drawn(t, everything()), "the same bytes")
	require.Empty(t, charttest.Problems([]byte(svg)))
	inline := everything()
	inline.Inline = true
	require.NotContains(t, drawn(t, inline), "<style>")
	require.Contains(t, svg, "prefers-color-scheme:dark")
	require.Contains(t, svg, `role="img" aria-labelledby="all-title all-desc"`)
	require.Contains(t, svg, `<desc id="all-desc">Some lines.</desc>`)
	require.Contains(t, svg, "&lt;of series&gt;")
}

// TestTextsFit draws random figures, of which no text may overlap another or be cut.
func TestTextsFit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "x", "granted", "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW", "units of 1s each",
		"日本語のラベル", "\x1b[2J"}
	name := func() string { return names[r.IntN(len(names))] }
	for range 500 {
		f := chart.Figure{ID: "f", Title: "t" + name(), Desc: "d", Width: 300 + r.IntN(600),
			X: chart.Axis{Label: name(), Seconds: r.IntN(2) == 0}}
		span := math.Pow(10, -3+10*r.Float64())
		for range 1 + r.IntN(4) {
			p := chart.Panel{Title: name(), Height: r.IntN(200), Y: chart.Axis{Label: name()}}
			scale := math.Pow(10, -2+8*r.Float64())
			for range r.IntN(4) {
				s := chart.Series{Name: name(), Kind: chart.Kind(r.IntN(6)), Look: chart.Look(r.IntN(5))}
				if s.Kind == chart.Lane {
					s.Name = "granted"
				}
				for i := range 5 {
					s.Points = append(s.Points, chart.Point{X: span * float64(i) / 4, Y: scale * r.Float64()})
				}
				p.Series = append(p.Series, s)
			}
			f.Panels = append(f.Panels, p)
		}
		svg := drawn(t, f)
		require.Empty(t, charttest.Problems([]byte(svg)), "%+v", f)
		boxes, _, _, err := charttest.Texts([]byte(svg))
		require.NoError(t, err)
		require.Greater(t, len(boxes), 3, "title and ticks")
	}
}

func TestProblems(t *testing.T) {
	svg := func(texts string) []byte { return []byte(`<svg width="100" height="50">` + texts + `</svg>`) }
	require.Empty(t, charttest.Problems(svg(`<text x="0" y="20">one</text><text x="40" y="20">two</text>`)))
	require.Len(t, charttest.Problems(svg(`<text x="0" y="20">one</text><text x="20" y="20">two</text>`)), 1)
	require.Len(t, charttest.Problems(svg(`<text x="90" y="20">one</text>`)), 1)
	require.Len(t, charttest.Problems(svg(`<text`)), 1)
}

func TestBadFigures(t *testing.T) {
	write := func(f chart.Figure) error { return f.WriteSVG(&strings.Builder{}) }
	require.ErrorContains(t, write(chart.Figure{}), "needs an ID")
	require.ErrorContains(t, write(chart.Figure{}), "needs a panel")
	f := everything()
	f.Panels[0].Series[0].Points = []chart.Point{{X: 1, Y: math.NaN()}}
	require.ErrorContains(t, write(f), `panel 0, series "offered": {1 NaN} is no point`)
	f = everything()
	f.Panels[1].Series[0].Look = 9
	require.ErrorContains(t, write(f), "there is no look 9")
}

func TestNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"0": chart.Number(0, 0), "1,234,567": chart.Number(1234567, 0), "-1,000.50": chart.Number(-1000.5, 2), "0.0": chart.Number(-0.01, 1),
		"999": chart.Number(999, 0),
	} {
		require.Equal(t, want, got)
	}
	for want, d := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "59s": 59 * time.Second, "1m": time.Minute, "1m30s": 90 * time.Second, "2h": 2 * time.Hour,
		"1h5m": 65 * time.Minute, "1h0m5s": time.Hour + 5*time.Second, "1d": 24 * time.Hour, "3d6h": 78 * time.Hour,
		"1d500ms": 24*time.Hour + 500*time.Millisecond,
		"1m0.5s":  time.Minute + 500*time.Millisecond, "-2m0s": -2 * time.Minute, "10m": 10 * time.Minute, "1h10m": 70 * time.Minute,
		"10m20s": 620 * time.Second,
	} {
		require.Equal(t, want, chart.Duration(d))
	}
}

// TestTicks requires that the ticks of any axis are few, and read back as where they are.
func TestTicks(t *testing.T) {
	for _, span := range []float64{0.003, 1, 7, 10, 60, 90, 3600, 86400, 40 * 86400, 1e9} {
		f := chart.Figure{ID: "f", Title: "t", Desc: "d", X: chart.Axis{Seconds: true}, Panels: []chart.Panel{{Series: []chart.Series{
			{Kind: chart.Line, Points: []chart.Point{{X: span, Y: span}}},
		}}}}
		boxes, _, _, err := charttest.Texts([]byte(drawn(t, f)))
		require.NoError(t, err)
		texts := make(map[string]bool)
		for _, b := range boxes {
			texts[b.Text] = true
		}
		require.True(t, texts["0s"] && texts["0"], "%v: %v", span, texts)
		require.LessOrEqual(t, len(boxes), 1+13+8, "%v: %v", span, texts)
		require.GreaterOrEqual(t, len(boxes), 6, "%v: %v", span, texts)
	}
}

func TestText(t *testing.T) {
	one := chart.Text{Rows: []chart.Row{{"granted", []float64{0, 1, 2, 4, 8, 0.01}}, {"no", []float64{0, 0, 4}}}, From: "0s", To: "6s"}
	require.Equal(t, "granted  ▁▂▄█▁\nno        ▄\n        0s  6s\n", one.String())
	require.Equal(t, 72, one.Columns())
	tall := chart.Text{Rows: []chart.Row{{"a", []float64{1, 2, 3}}}, Height: 2, Width: 4}
	require.Equal(t, "   ▃\na ▅█\n", tall.String(), "two columns fit")
	for width := 14; width < 100; width++ {
		wide := chart.Text{Rows: []chart.Row{{strings.Repeat("ü", 60), make([]float64, 200)}, {"x", []float64{1}}}, From: "0s", To: "1h",
			Width: width}
		for i := range wide.Rows[0].Values {
			wide.Rows[0].Values[i] = float64(i + 1)
		}
		for line := range strings.Lines(wide.String()) {
			require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), width, fmt.Sprint(width))
		}
	}
	require.Equal(t, "x\n", (&chart.Text{Rows: []chart.Row{{"x", []float64{0, 0}}}}).String(), "nothing at all")
}
