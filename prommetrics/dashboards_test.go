package prommetrics_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A dashboard is what the tests read of a dashboard of Grafana.
type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name       string          `json:"name"`
			Type       string          `json:"type"`
			Label      string          `json:"label"`
			Definition string          `json:"definition"`
			Query      json.RawMessage `json:"query"`
			AllValue   string          `json:"allValue"`
			Multi      bool            `json:"multi"`
			IncludeAll bool            `json:"includeAll"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

// A panel is one of its panels. A row has a title only.
type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Panels  []panel  `json:"panels"`
	Targets []target `json:"targets"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// A target is one query of a panel.
type target struct {
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	RefID        string     `json:"refId"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
	Format       string     `json:"format"`
}

// beside returns the text of a file of the repository. It skips the test if the module is not in the
// repository, as in a module cache.
func beside(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat("../go.work"); os.IsNotExist(err) {
		t.Skip("the module is by itself: it has no dashboards beside it")
	}
	text, err := os.ReadFile(filepath.Join("..", path))
	require.NoError(t, err)
	return string(text)
}

func readDashboard(t testing.TB) (d dashboard) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(beside(t, "dashboards/ratelimit.json")), &d))
	return d
}

// TestDashboard checks the layout of the dashboard, and that it has every panel.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	assert.Equal(t, []string{"ratelimit", "Rate limits"}, []string{d.UID, d.Title})
	assert.GreaterOrEqual(t, d.SchemaVersion, 36, "data sources are objects since then")

	var titles []string
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	bottom := 0
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "%s: id %d is that of another panel", p.Title, p.ID)
		ids[p.ID] = true
		g := p.GridPos
		assert.True(t, g.X >= 0 && g.Y >= 0 && g.W >= 1 && g.H >= 1 && g.X+g.W <= 24, "%s: %v is not within 24 columns", p.Title, g)
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				assert.Empty(t, taken[[2]int{x, y}], "%s overlaps", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		bottom = max(bottom, g.Y+g.H)
		assert.NotEmpty(t, p.Title)
		titles = append(titles, p.Title)
		if p.Type == "row" {
			assert.Empty(t, p.Panels, "a row that is open has its panels after it")
			assert.Equal(t, [2]int{0, 24}, [2]int{g.X, g.W}, p.Title)
			continue
		}
		checkPanel(t, &p)
	}
	assert.Len(t, taken, 24*bottom, "the panels leave no gap")
	assert.Equal(t, []string{
		"Traffic", "Requests by result", "Denied share", "Top denied rules", "Shadow denials",
		"Replayed requests", "Units given back",
		"Overrides and penalties", "Blocks begun", "Overridden requests", "Overrides",
		"Store", "Degraded requests", "Store errors", "Open parts",
		"Memory", "Keys", "Overflow",
		"Time", "Decision time",
		"Rules", "Limits", "Last reload", "Reloads",
	}, titles)
}

// checkPanel checks what a reader needs of a panel, and Grafana of its queries.
func checkPanel(t *testing.T, p *panel) {
	t.Helper()
	ours := datasource{"prometheus", "${datasource}"}
	assert.Contains(t, []string{"timeseries", "stat", "table", "bargauge"}, p.Type, p.Title)
	assert.Equal(t, ours, p.Datasource, p.Title)
	assert.Regexp(t, `^[A-Z].*\.$`, p.Description, p.Title)
	assert.Contains(t, []string{"reqps", "cps", "percentunit", "short", "s"}, p.FieldConfig.Defaults.Unit, p.Title)
	assert.NotEmpty(t, p.Targets, p.Title)
	for i, target := range p.Targets {
		assert.Equal(t, string(rune('A'+i)), target.RefID, p.Title)
		assert.Equal(t, ours, target.Datasource, p.Title)
		assert.NotEmpty(t, target.LegendFormat, p.Title)
		assert.Equal(t, !target.Instant, target.Range, p.Title)
		assert.Equal(t, p.Type != "timeseries", target.Instant, p.Title)
		assert.Equal(t, p.Type == "table", target.Format == "table", p.Title)
		for _, metric := range regexp.MustCompile(`ratelimit_\w+\{`).FindAllStringIndex(target.Expr, -1) {
			selector, _, _ := strings.Cut(target.Expr[metric[1]:], "}")
			want := []string{`job=~"$job"`, `instance=~"$instance"`, `limiter=~"$limiter"`}
			if name := target.Expr[metric[0] : metric[1]-1]; !slices.Contains([]string{"ratelimit_store_parts", "ratelimit_store_opened_total",
				"ratelimit_store_failures_total",
				"ratelimit_decision_duration_seconds_bucket", "ratelimit_overrides", "ratelimit_overridden_requests_total"}, name) &&
				!strings.HasPrefix(name, "ratelimit_config_") {
				want = append(want, `rule=~"$rule"`)
			}
			assert.Subset(t, strings.Split(selector, ","), want, "%s: a variable selects nothing", p.Title)
		}
	}
}

// TestVariables checks the variables of the dashboard.
func TestVariables(t *testing.T) {
	d := readDashboard(t)
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
		assert.NotEmpty(t, v.Label, v.Name)
		if v.Type == "datasource" {
			assert.JSONEq(t, `"prometheus"`, string(v.Query))
			continue
		}
		assert.Equal(t, "query", v.Type, v.Name)
		assert.JSONEq(t, `{"query": `+strconv.Quote(v.Definition)+`, "refId": "var-`+v.Name+`"}`, string(v.Query))
		assert.Equal(t, ".*", v.AllValue, "%s: a list of all names may be longer than a URL", v.Name)
		assert.True(t, v.Multi && v.IncludeAll, v.Name)
	}
	assert.Equal(t, []string{"datasource", "job", "instance", "limiter", "rule"}, names)
}

// metricNames returns the names of metrics in text, without those of a histogram's parts.
func metricNames(text string) map[string]bool {
	names := map[string]bool{}
	for _, name := range regexp.MustCompile(`\bratelimit_\w+`).FindAllString(text, -1) {
		names[strings.TrimSuffix(name, "_bucket")] = true
	}
	return names
}

// checkShown checks that the dashboard has every metric that is exported, and no other. Of the counters
// of rules, it has those that operators need, and may leave out others.
func checkShown(t testing.TB, exported map[string]bool) {
	t.Helper()
	shown := metricNames(beside(t, "dashboards/ratelimit.json"))
	for _, c := range ratelimit.Counters() {
		if name := "ratelimit_" + c.Name + "_total"; exported[name] {
			shown[name] = true
		}
	}
	assert.Equal(t, exported, shown)
}

// TestMetricNames compares the names in the dashboard and in the alerts with those of a scrape.
func TestMetricNames(t *testing.T) {
	golden, err := os.ReadFile("testdata/scrape.txt")
	require.NoError(t, err)
	exported := exportedNames(string(golden))
	exported["ratelimit_config_last_reload_success_timestamp_seconds"] = true // no file was applied in that scrape
	exported["ratelimit_store_failures_total"] = true                         // no call has failed
	checkShown(t, exported)
	for name := range metricNames(beside(t, "dashboards/alerts.yaml")) {
		assert.Contains(t, exported, name, "in alerts.yaml")
	}
}

// exportedNames returns the names of the metrics in the text of a scrape.
func exportedNames(scrape string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(scrape) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names[name] = true
		}
	}
	return names
}
