package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

// An inPostgres reads the states of limiters in a PostgreSQL server.
type inPostgres struct {
	pool    *pgxpool.Pool
	table   string
	timeout time.Duration
}

// connectPostgres connects to the PostgreSQL server at the given URL. It returns once the server has read the first row of the table.
func (f *serverFlags) connectPostgres(ctx context.Context, url string) (*server, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil { // the text of the error is not printed, as it may contain the password
		return nil, usageError("the address must be postgres://user:password@host:port/database")
	}
	config.MaxConns, config.ConnConfig.ConnectTimeout = 2, *f.timeout
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	in := &inPostgres{pool, *f.table, *f.timeout}
	host := config.ConnConfig.Host
	if !strings.HasPrefix(host, "/") { // a host that begins with "/" is the folder of a Unix socket, which has no port
		host = net.JoinHostPort(host, strconv.Itoa(int(config.ConnConfig.Port)))
	}
	s := &server{database: in, address: plain(host + "/" + config.ConnConfig.Database), timeout: *f.timeout}
	var missing *pgstore.Error
	err = s.within(ctx, func(ctx context.Context) error {
		_, err := pgstore.ReadPage(ctx, pool, in.table, nil, 1)
		if errors.As(err, &missing) && missing.Code == "42P01" {
			err = fmt.Errorf("the database has no table %s: see -table", in.table)
		}
		return err
	})
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// close closes the connections. It does not wait long for a server that does not answer.
func (in *inPostgres) close() {
	closed := make(chan struct{})
	go func() {
		in.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(min(in.timeout, time.Second)):
	}
}

// store returns a store that makes no table and deletes no rows. The time limit of the store is longer than that of the method
// server.within, which makes all calls. So this method ends a slow call before the store does, and the user reads its error.
func (in *inPostgres) store(ctx context.Context) (ratelimit.Store, error) {
	s, err := pgstore.New(ctx, in.pool, pgstore.WithTable(in.table), pgstore.WithoutUpkeep(),
		pgstore.WithStoreOptions(dbstore.WithTimeout(in.timeout+in.timeout/8), dbstore.WithDenialCache(0)))
	if err != nil {
		return nil, err
	}
	return s, nil
}

// scan reads the next rows of the table. The parameter count is the largest number of rows to read.
func (in *inPostgres) scan(ctx context.Context, from string, count int) (states []state, next string, err error) {
	page, err := pgstore.ReadPage(ctx, in.pool, in.table, []byte(from), count)
	if err != nil {
		return nil, "", err
	}
	for i := range page.States {
		row := &page.States[i]
		states = append(states, state{name: row.RowKey, ask: row.Ask, warms: row.Warms, hashed: row.Hashed, row: row, read: page.Time})
	}
	return states, string(page.Next), nil
}

// tiers finds the rate of the client's tier for each state. It looks for the one of the state's rates at which the row was last
// charged, and sets ask.Rate to it. It sends no query, because scan has read the rows, and each row tells its rate.
func (in *inPostgres) tiers(_ context.Context, states []state) error {
	for i := range states {
		s := &states[i]
		s.row.Ask = s.ask
		for _, rate := range s.rates {
			if s.row.ChargedAt(rate) {
				s.ask.Rate = rate
			}
		}
	}
	return nil
}

// look returns what a request for one unit would get from each state. It sends no query, because scan has read the rows.
func (in *inPostgres) look(_ context.Context, states []state) ([]ratelimit.Result, error) {
	results := make([]ratelimit.Result, len(states))
	for i := range states {
		s := &states[i]
		s.row.Ask = s.ask
		var err error
		if results[i], err = s.row.Look(s.read); err != nil {
			return nil, err
		}
	}
	return results, nil
}
