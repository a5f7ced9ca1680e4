package pgstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
)

// A Store is a [ratelimit.Store] that keeps its states in a table of PostgreSQL. Make one with [New], give it to a limiter with
// [ratelimit.WithStore], and call Close when no limiter needs it any more.
type Store struct {
	*dbstore.Store
	backend *backend
	sweeper *sweeper
}

// New returns a Store that uses the connections of pool. New makes the table and the SQL functions of the Store if they are missing, see
// [Schema]; many processes may do so at once. New starts a goroutine that deletes rows which have expired, until Close is called.
//
// Give the Store a pool of its own; 4 connections are enough. If the program also used this pool, a goroutine could hold the last
// connection while it waits for a decision, which needs a connection, too.
//
// If an option is wrong, the error of New matches [ratelimit.ErrInvalidConfig]. New also fails if the server does not answer, is a
// replica or is read-only, if this package has not made the table, or if the role lacks a right.
func New(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	set, err := newSettings(opts)
	if pool == nil {
		err = errors.Join(err, configError("pool", nil, "must not be nil"))
	}
	if err != nil {
		return nil, err
	}
	b := newBackend(pool, &set)
	store, err := dbstore.New(b, set.store...)
	if err != nil {
		return nil, err
	}
	s := &Store{Store: store, backend: b}
	if set.guest {
		if err := b.complete(ctx); err != nil {
			return nil, err
		}
		return s, nil
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	s.sweeper = newSweeper(b)
	go s.sweeper.run()
	return s, nil
}

// Close stops the deletion of old rows. Afterwards the Store still decides. Close does not close the pool. A second Close does nothing.
func (s *Store) Close() {
	if s != nil && s.sweeper != nil {
		s.sweeper.stop()
	}
}

// Ping returns nil if the Store can work, and otherwise an error that says why not: the server does not answer, it is a replica or
// read-only, the table or a function is missing, or the role lacks a right. It writes a row, and deletes it again.
func (s *Store) Ping(ctx context.Context) error {
	if s == nil || s.backend == nil {
		return configError("store", "the zero value", "must be made by New")
	}
	if err := s.backend.complete(ctx); err != nil {
		return err
	}
	return s.backend.probe(ctx)
}

// An Option changes a setting of a [Store]; [New] takes any number of Options.
type Option func(*settings)

type settings struct {
	table   string
	durable bool
	guest   bool // see WithoutUpkeep
	store   []dbstore.Option
	invalid error
}

// WithTable sets the name of the table, with or without a schema, such as "limits.ratelimit". The default is "ratelimit". Each part of
// the name has at most 51 letters in lower case, digits and underscores. Two services may share a table if their limiters have
// different names.
func WithTable(name string) Option { return func(s *settings) { s.table = name } }

// WithDurableCommits makes each decision wait until the server has written it to disk. Without this Option, a server that crashes may
// forget what was granted shortly before: within up to three times its wal_writer_delay, which is 200 ms by default. A crash of a
// process that uses the Store loses nothing.
func WithDurableCommits() Option { return func(s *settings) { s.durable = true } }

// WithoutUpkeep makes [New] leave the database as it is. If the table or a function is missing, New fails. The Store never deletes rows
// that have expired, so another process must do so. This Option is for programs that only look after the limits of a service, such as the
// command ratelimit reset.
func WithoutUpkeep() Option { return func(s *settings) { s.guest = true } }

// WithStoreOptions passes options to the Store of package dbstore, such as [dbstore.WithTimeout].
func WithStoreOptions(opts ...dbstore.Option) Option {
	return func(s *settings) { s.store = append(s.store, opts...) }
}

func newSettings(opts []Option) (settings, error) {
	set := settings{table: defaultTable}
	for i, o := range opts {
		if o == nil {
			set.invalid = errors.Join(set.invalid, configError(fmt.Sprintf("options[%d]", i), nil, "must not be nil"))
			continue
		}
		o(&set)
	}
	if !identifier.MatchString(set.table) {
		reason := "must be a name in lower case with at most 51 letters, digits and underscores, or a schema, a dot and such a name"
		set.invalid = errors.Join(set.invalid, configError("table", fmt.Sprintf("%q", set.table), reason))
	}
	return set, set.invalid
}

func configError(field string, value any, reason string) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
}

// columns are the columns of the table, with their types.
var columns = map[string]string{"key": "bytea", "value": "bytea", "expires": "timestamp with time zone"}

// inspect checks the server, the table and its functions. It returns the names of the table and the functions that are missing. It
// returns an error if the Store could not work even after the missing ones were made.
func (b *backend) inspect(ctx context.Context) (missing []string, err error) {
	var replica, readOnly, table, put, swap bool
	err = b.pool.QueryRow(ctx, `select pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', to_regclass($1) is not null,
		to_regproc($2) is not null, to_regproc($3) is not null`, mode, b.table, b.table+"_put_1", b.table+"_swap_1").
		Scan(&replica, &readOnly, &table, &put, &swap)
	switch {
	case err != nil:
		return nil, describe(err)
	case replica:
		return nil, errors.New("pgstore: the server is a replica, which takes no writes: connect to the primary server")
	case readOnly:
		return nil, errors.New("pgstore: the transactions of this role or database are read-only")
	}
	for _, part := range []struct {
		there bool
		what  string
	}{{table, "table " + b.table}, {put, "function " + b.table + "_put_1"}, {swap, "function " + b.table + "_swap_1"}} {
		if !part.there {
			missing = append(missing, part.what)
		}
	}
	if !table {
		return missing, nil
	}
	found := make(map[string]string)
	rows, err := b.pool.Query(ctx, `select attname, format_type(atttypid, atttypmod) from pg_attribute
		where attrelid = to_regclass($1) and attnum > 0 and not attisdropped`, mode, b.table)
	if err != nil {
		return nil, describe(err)
	}
	var name, kind string
	if _, err := pgx.ForEachRow(rows, []any{&name, &kind}, func() error { found[name] = kind; return nil }); err != nil {
		return nil, describe(err)
	}
	if !reflect.DeepEqual(found, columns) {
		return nil, fmt.Errorf("pgstore: the table %s was not made by this version of pgstore: it has the columns %v, and not %v",
			b.table, found, columns)
	}
	var allowed bool
	if err := b.pool.QueryRow(ctx, `select bool_and(has_table_privilege(to_regclass($1), p)) from unnest($2::text[]) p`,
		mode, b.table, []string{"select", "insert", "update", "delete"}).Scan(&allowed); err != nil {
		return nil, describe(err)
	}
	if !allowed {
		return nil, fmt.Errorf("pgstore: the role may not select, insert, update and delete in the table %s", b.table)
	}
	return missing, nil
}

// complete returns an error if the Store cannot work, for example because the table or one of its functions is missing.
func (b *backend) complete(ctx context.Context) error {
	missing, err := b.inspect(ctx)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("pgstore: the database has no %s", strings.Join(missing, " and no "))
	}
	return err
}

// prepare makes the table and its functions if any of them is missing. If many processes do so at once, they run the SQL one after the
// other, and each run after the first changes nothing.
func (b *backend) prepare(ctx context.Context) error {
	missing, err := b.inspect(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return describe(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// The lock ends with the transaction. While it is held, no other process makes the table or its functions.
	if _, err = tx.Exec(ctx, `select pg_advisory_xact_lock(hashtextextended($1, 25))`, pgx.QueryExecModeExec, b.table); err == nil {
		_, err = tx.Exec(ctx, Schema(b.table), pgx.QueryExecModeSimpleProtocol)
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return fmt.Errorf("pgstore: cannot make the %s: run the SQL of pgstore.Schema yourself, or give the role the right: %w",
			strings.Join(missing, " and the "), describe(err))
	}
	return nil
}
