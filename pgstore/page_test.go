package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// TestReadPage reads each row once, by a role that may only read, while the rows change.
func TestReadPage(t *testing.T) {
	url, name := sharedServer(t).url(), table(t)
	admin := poolOf(t, url, 4, nil)
	s := newStore(t, admin, pgstore.WithTable(name))
	for i := range 25 {
		_, err := s.Take(t.Context(), []ratelimit.Ask{ask(fmt.Sprintf("key-%02d", i), 100)})
		require.NoError(t, err)
	}
	_, _, err := s.Once(t.Context(), ratelimit.Attempt{Client: "c", ID: "1", TTL: time.Hour}, []ratelimit.Ask{ask("with ID", 100)})
	require.NoError(t, err)
	execute(t, admin, "update "+name+" set expires = clock_timestamp() - interval '1 second' where position('key-07'::bytea in key) > 0")
	execute(t, admin, "create role "+name+" login")
	execute(t, admin, "grant select on "+name+" to "+name)
	pool := poolOf(t, strings.Replace(url, "postgres:secret", name+":secret", 1), 1, nil)
	execute(t, pool, "set default_transaction_read_only = on")

	var keys []string
	pages, rows := 0, 0
	for from := []byte(nil); pages == 0 || from != nil; pages++ {
		p, err := pgstore.ReadPage(t.Context(), pool, name, from, 9)
		require.NoError(t, err)
		require.Equal(t, p.Rows == 0, p.Time.IsZero())
		for _, state := range p.States {
			keys = append(keys, state.Ask.Key)
			state.Ask.Rate = ask("", 100).Rate
			res, err := state.Look(p.Time)
			require.NoError(t, err)
			require.Equal(t, 99, res.Remaining)
		}
		rows, from = rows+p.Rows, p.Next
		execute(t, admin, "update "+name+" set expires = expires + interval '1 second'") // moves the rows to other places
	}
	require.Equal(t, 4, pages, "the last one is empty")
	require.Equal(t, 27, rows, "with the record of the ID, and the row that has expired")
	var want []string
	for i := range 25 {
		if i != 7 {
			want = append(want, fmt.Sprintf("key-%02d", i))
		}
	}
	require.ElementsMatch(t, append(want, "with ID"), keys)

	_, err = pgstore.ReadPage(t.Context(), pool, "not_there", nil, 9)
	var failed *pgstore.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "42P01", failed.Code)
	_, err = pgstore.ReadPage(t.Context(), nil, "a b", nil, 0)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "pool is <nil>")
	require.ErrorContains(t, err, "n is 0")
	require.ErrorContains(t, err, `table is "a b"`)
}

// TestWithoutUpkeep opens a table that a service has made, and makes none.
func TestWithoutUpkeep(t *testing.T) {
	pool, name := poolOf(t, sharedServer(t).url(), 4, nil), table(t)
	_, err := pgstore.New(t.Context(), pool, pgstore.WithTable(name), pgstore.WithoutUpkeep())
	require.EqualError(t, err, "pgstore: the database has no table "+name+" and no function "+name+"_put_1 and no function "+name+"_swap_1")
	require.Zero(t, query[int](t, pool, "select count(*) from pg_class where relname = $1", name))
	service := newStore(t, pool, pgstore.WithTable(name))
	_, err = service.Take(t.Context(), []ratelimit.Ask{ask("a", 3)})
	require.NoError(t, err)

	guest := newStore(t, pool, pgstore.WithTable(name), pgstore.WithoutUpkeep())
	results, err := guest.Take(t.Context(), []ratelimit.Ask{ask("a", 3)})
	require.NoError(t, err)
	require.Equal(t, 1, results[0].Remaining)
	require.NoError(t, guest.Ping(t.Context()))
	require.False(t, guest.Sweeps(), "the guest deletes no rows")
	require.True(t, service.Sweeps())
	execute(t, pool, "drop function "+name+"_swap_1")
	_, err = pgstore.New(t.Context(), pool, pgstore.WithTable(name), pgstore.WithoutUpkeep())
	require.EqualError(t, err, "pgstore: the database has no function "+name+"_swap_1")
}
