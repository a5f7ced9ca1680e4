package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"time"

	_ "modernc.org/sqlite" // the driver, in pure Go

	"github.com/ratelimit-go/ratelimit/dbstore"
)

// A backend is a dbstore.Backend that keeps its rows in a file of SQLite, for several processes on one machine. All of these
// processes have the same clock, the clock of the machine, so the backend uses this clock as the time of the database.
type backend struct {
	db  *sql.DB
	now func() time.Time
}

// open opens the file, and makes the table if the file does not have it yet.
func open(ctx context.Context, path string) (*backend, error) {
	// An immediate transaction takes the lock for writing when it begins, so that it never fails in the middle. It waits for the lock
	// for up to 100 ms.
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(100)", "journal_mode(WAL)", "synchronous(NORMAL)"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+settings.Encode())
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `create table if not exists ratelimit (key blob primary key, value blob not null, expires integer not null)
		without rowid`)
	return &backend{db, time.Now}, err
}

// Swap does what dbstore.Backend says, in one transaction for all groups.
func (b *backend) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	writes := slices.ContainsFunc(groups, func(g dbstore.Group) bool { return slices.ContainsFunc(g.Changes, changes) })
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: !writes})
	if err != nil {
		return time.Time{}, dbstore.NotDone(err)
	}
	defer func() { _ = tx.Rollback() }() // after Commit, Rollback does nothing
	at := b.now()
	timely := now.IsZero() || !now.After(at) && at.Sub(now) <= dbstore.MaxBehind
	for i := range groups {
		if err := swap(ctx, tx, &groups[i], timely); err != nil {
			return time.Time{}, dbstore.NotDone(err)
		}
	}
	return at, tx.Commit()
}

// changes reports whether the row of c gets another value.
func changes(c dbstore.Change) bool {
	return !c.Read && ((c.Old == nil) != (c.New == nil) || !bytes.Equal(c.Old, c.New))
}

// swap reads the rows of one group in the transaction tx, and changes them if they still have their old values. If timely is false,
// the decision was made for a wrong time, and swap only reads the rows.
func swap(ctx context.Context, tx *sql.Tx, g *dbstore.Group, timely bool) error {
	g.Done = timely
	for i := range g.Changes {
		c := &g.Changes[i]
		err := tx.QueryRowContext(ctx, "select value from ratelimit where key = ?", c.Key).Scan(&c.Value)
		if errors.Is(err, sql.ErrNoRows) {
			c.Value = nil
		} else if err != nil {
			return err
		}
		g.Done = g.Done && !c.Read && (c.Value == nil) == (c.Old == nil) && bytes.Equal(c.Value, c.Old)
	}
	for _, c := range g.Changes {
		var err error
		switch {
		case !g.Done || !changes(c):
		case c.New == nil:
			_, err = tx.ExecContext(ctx, "delete from ratelimit where key = ?", c.Key)
		default:
			_, err = tx.ExecContext(ctx, "insert or replace into ratelimit values (?, ?, ?)", c.Key, c.New, c.Expires.Unix())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sweep deletes the rows that have expired.
func (b *backend) sweep(ctx context.Context) error {
	_, err := b.db.ExecContext(ctx, "delete from ratelimit where expires < ?", b.now().Unix())
	return err
}
