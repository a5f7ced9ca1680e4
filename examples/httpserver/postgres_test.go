package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/pgserver"
)

// TestSharedInPostgres has two programs, of two replicas, on one PostgreSQL server. Together they grant
// what one would and, while the server is gone, half of it each.
func TestSharedInPostgres(t *testing.T) {
	srv := pgserver.Start(t, "fsync=off", "shared_buffers=16MB")
	t.Cleanup(func() { assert.NoError(t, srv.Close()) })
	url := strings.Replace(srv.URL(), "postgres@", "postgres:secret@", 1)
	shareServer(t, url, "1s", srv.Stop, func() { require.NoError(t, srv.Run(t.Context())) })
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close(t.Context())) }()
	var rows int
	require.NoError(t, conn.QueryRow(t.Context(), "select count(*) from ratelimit").Scan(&rows))
	assert.Positive(t, rows, "the states are in the database")
}
