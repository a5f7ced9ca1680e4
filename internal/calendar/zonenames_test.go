package calendar

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestZoneNames requires that zoneNames has names of zones only, sorted. It does not require that these are all: the
// next Go may have more. With RATELIMIT_WRITE=1 it writes them from the Go that runs it.
func TestZoneNames(t *testing.T) {
	if os.Getenv("RATELIMIT_WRITE") == "1" {
		writeZoneNames(t)
		return
	}
	names := strings.Fields(zoneNames)
	require.Greater(t, len(names), 500)
	require.True(t, slices.IsSorted(names))
	require.Equal(t, names, slices.Compact(slices.Clone(names)))
	for _, name := range names {
		l, err := time.LoadLocation(name)
		require.NoError(t, err)
		require.Equal(t, name, l.String())
		require.True(t, canBeZone(name, nil), name)
	}
}

func writeZoneNames(t *testing.T) {
	const path = "zonenames.go"
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	zones, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(out)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, zones.Close()) }()
	var names []string
	for _, f := range zones.File {
		if !strings.HasSuffix(f.Name, "/") && f.Name != "Factory" { // which is the zone of machines that have none
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	old, err := os.ReadFile(path)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(old), "`")
	require.True(t, ok)
	var list strings.Builder
	column := 0
	for _, name := range names {
		switch {
		case column == 0:
		case column+len(" ")+len(name) < 140:
			list.WriteByte(' ')
			column++
		default:
			list.WriteByte('\n')
			column = 0
		}
		list.WriteString(name)
		column += len(name)
	}
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "%s`\n%s\n`\n", before, &list), 0o600))
}
