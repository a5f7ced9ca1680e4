package pgstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit/dbstore"
)

// mode is how all statements are sent, whatever the configuration of the pool says. In this mode, no statement needs a prepared statement
// of an earlier transaction. So the Store also works with a connection pooler, which may use another connection for each transaction.
const mode = pgx.QueryExecModeCacheDescribe

// The operations (ops) on a row that the SQL functions know. The comment of the constant schema explains them.
const (
	opRead = iota
	opCompare
	opInsert
	opUpdate
	opDelete
	opKeep
)

// A backend is the dbstore.Backend of a Store.
type backend struct {
	pool    *pgxpool.Pool
	table   string
	durable bool
	put     string // the statement for one row
	swap    string // the statement for several rows
}

func newBackend(pool *pgxpool.Pool, set *settings) *backend {
	return &backend{
		pool: pool, table: set.table, durable: set.durable,
		put:  fmt.Sprintf("select done, v, at from %s_put_1($1, $2, $3, $4, $5, $6, $7, $8)", set.table),
		swap: fmt.Sprintf("select dones, vs, at from %s_swap_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)", set.table),
	}
}

// opOf returns the operation for the row of the change c.
func opOf(c *dbstore.Change) int {
	switch {
	case c.Read:
		return opRead
	case c.Old == nil && c.New == nil, c.Old != nil && c.New != nil && bytes.Equal(c.Old, c.New):
		return opCompare
	case c.Old == nil:
		return opInsert
	case c.New == nil:
		return opDelete
	}
	return opUpdate
}

// Swap does what [dbstore.Backend] says, by one statement. It may send the statement a second time.
func (b *backend) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (at time.Time, err error) {
	for again := true; ; again = false {
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			return at, dbstore.NotDone(describe(err))
		}
		if len(groups) == 1 && len(groups[0].Changes) == 1 {
			at, err = b.putOne(ctx, conn, now, &groups[0])
		} else {
			at, err = b.swapAll(ctx, conn, now, groups)
		}
		code := codeOf(err)
		if badConnection[code] {
			_ = conn.Conn().Close(ctx) // so that the next connection goes to the server that now takes writes
		}
		conn.Release()
		switch {
		case err == nil:
			return at.UTC(), nil
		case code == codeLate && again: // nothing was written, as now is too long ago: ask again, for the values only
			now = time.Time{}
			for i := range groups {
				for j := range groups[i].Changes {
					groups[i].Changes[j].Read = true
				}
			}
		case code == codeSerialization || code == codeDeadlock:
			if !again {
				return at, dbstore.NotDone(describe(err))
			}
		case code != "" && !badConnection[code], pgconn.SafeToRetry(err):
			return at, dbstore.NotDone(describe(err))
		default:
			return at, describe(err)
		}
	}
}

// waitOf returns for how many milliseconds the server may wait for a lock, so that it gives up before ctx ends.
func waitOf(ctx context.Context) int {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 1000
	}
	left := time.Until(deadline)
	return max(int((left-left/4)/time.Millisecond), 1)
}

// guessOf returns the parameter guess of the SQL functions: the time now, or nil if now is zero. The Store has guessed that the
// database has the time now, and has made its decisions for this time.
func guessOf(now time.Time) *time.Time {
	if now.IsZero() {
		return nil
	}
	return &now
}

// untilOf returns the parameter until of the SQL functions: the time at which the new row expires, or nil if c writes no row.
func untilOf(c *dbstore.Change) *time.Time {
	if c.New == nil || c.Expires.IsZero() {
		return nil
	}
	return &c.Expires
}

func (b *backend) putOne(ctx context.Context, conn *pgxpool.Conn, now time.Time, g *dbstore.Group) (at time.Time, err error) {
	c := &g.Changes[0]
	err = conn.QueryRow(ctx, b.put, mode, opOf(c), c.Key, c.Old, c.New, untilOf(c), guessOf(now), waitOf(ctx), b.durable).
		Scan(&g.Done, &c.Value, &at)
	return at, err
}

// A place says where a Change is: the index of its group, and its index in that group.
type place struct{ group, change int }

func (b *backend) swapAll(ctx context.Context, conn *pgxpool.Conn, now time.Time, groups []dbstore.Group) (at time.Time, err error) {
	var places []place
	for i := range groups {
		for j := range groups[i].Changes {
			places = append(places, place{i, j})
		}
	}
	change := func(p place) *dbstore.Change { return &groups[p.group].Changes[p.change] }
	slices.SortFunc(places, func(p, q place) int { return bytes.Compare(change(p).Key, change(q).Key) })
	writes := make([]bool, len(groups))
	for i := range groups {
		writes[i] = slices.ContainsFunc(groups[i].Changes, func(c dbstore.Change) bool { return opOf(&c) > opCompare })
	}
	n := len(places)
	ops, of, single := make([]int, n), make([]int, n), make([]bool, n)
	keys, olds, news, untils := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([]*time.Time, n)
	for i, p := range places {
		c := change(p)
		ops[i], of[i], single[i] = opOf(c), p.group+1, len(groups[p.group].Changes) == 1
		if ops[i] == opCompare && writes[p.group] {
			ops[i] = opKeep
		}
		keys[i], olds[i], news[i], untils[i] = c.Key, c.Old, c.New, untilOf(c)
	}
	var dones []bool
	var values [][]byte
	err = conn.QueryRow(ctx, b.swap, mode, ops, of, single, keys, olds, news, untils, guessOf(now), waitOf(ctx), b.durable).
		Scan(&dones, &values, &at)
	if err != nil {
		return at, err
	}
	if len(dones) != n || len(values) != n {
		return at, fmt.Errorf("the function %s_swap_1 has answered for %d of %d rows", b.table, len(dones), n)
	}
	for i := range groups {
		groups[i].Done = dones[i]
	}
	for i, p := range places {
		change(p).Value = values[i]
	}
	return at, nil
}

// probe writes a row and deletes it again, to find out whether the Store can work.
func (b *backend) probe(ctx context.Context) error {
	key := append([]byte("!"), make([]byte, 16)...)
	_, _ = rand.Read(key[1:])
	value := []byte("probe")
	for _, c := range []dbstore.Change{
		{Key: key, New: value, Expires: time.Now().Add(time.Minute)},
		{Key: key, Old: value},
	} {
		groups := []dbstore.Group{{Changes: []dbstore.Change{c}}}
		if _, err := b.Swap(ctx, time.Time{}, groups); err != nil {
			return err
		}
		if !groups[0].Done {
			return errors.New("pgstore: a row that was written is not there: is the table written by triggers or rules?")
		}
	}
	return nil
}

// The error codes (SQLSTATE) of the server after which Swap does something special.
const (
	codeLate          = "RL001" // the functions of the schema raise this error if a row was locked for so long that now is more than 50 ms ago
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
)

// badConnection has the codes after which a connection is of no use: the server is read-only, or it stops.
var badConnection = map[string]bool{"25006": true, "57P01": true, "57P02": true, "57P03": true}

// codeOf returns the code (SQLSTATE) of an error of the server. For any other error, it returns an empty text.
func codeOf(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// describe returns err as an [Error]. The text of the Error has no credentials.
func describe(err error) error {
	var e *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &e):
		return &Error{Code: e.Code, err: err, text: e.Message + hints[e.Code]}
	case errors.As(err, &connect):
		return &Error{err: err, text: "cannot connect: " + reason(connect)}
	}
	return &Error{err: err, text: err.Error()}
}

// reason returns the text of the error that e wraps. The text of e itself must not be used, because it has the name of the user.
func reason(e *pgconn.ConnectError) string {
	if err := e.Unwrap(); err != nil {
		return err.Error()
	}
	return "unknown reason"
}

// hints has, for some error codes, a text that follows the text of the server and helps to find the cause.
var hints = map[string]string{
	"25006": ": the server takes no writes, as a replica does",
	"42P01": ": has somebody dropped the table? pgstore.New makes it again",
	"42883": ": has somebody dropped the function? pgstore.New makes it again",
	"55P03": ": somebody else has locked a row or the table for too long",
}

// An Error is an error of PostgreSQL, or of the connection to it.
type Error struct {
	Code string // the SQLSTATE of the server, such as "55P03"; empty if the server has not answered

	err  error
	text string
}

// Error returns the text of the error, with its code.
func (e *Error) Error() string {
	if e.Code != "" {
		return "pgstore: " + e.text + " (" + e.Code + ")"
	}
	return "pgstore: " + e.text
}

// Unwrap returns the error of package pgx, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() error { return e.err }
