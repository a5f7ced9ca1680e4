package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ratelimit-go/ratelimit/dbstore"
)

// A Page is a part of a table with the states of limiters. [ReadPage] returns one.
type Page struct {
	States []dbstore.Stored // the states in the rows that have not expired, in the order of the keys of the rows
	Rows   int              // how many rows were read, including those that have expired or are no state of a limiter
	Next   []byte           // from where to read the next page, which may be empty; nil after the last page
	Time   time.Time        // the time of the server; zero if Rows is 0
}

// ReadPage reads n rows of the table with this name, see [WithTable]. The parameter from is nil for the first page, and the Next of the
// page before for the others. A row that exists from the first page to the last is on exactly one page. ReadPage writes nothing, so a
// replica or a role that may only SELECT is enough. It is for programs that show what a table has, such as the command ratelimit top.
func ReadPage(ctx context.Context, pool *pgxpool.Pool, table string, from []byte, n int) (p Page, err error) {
	set, err := newSettings([]Option{WithTable(table)})
	if pool == nil {
		err = errors.Join(err, configError("pool", nil, "must not be nil"))
	}
	if n < 1 {
		err = errors.Join(err, configError("n", n, "must be at least 1"))
	}
	if err != nil {
		return p, err
	}
	if from == nil {
		from = []byte{} // below all keys
	}
	rows, err := pool.Query(ctx, fmt.Sprintf(`select key, value, expires <= clock_timestamp(), clock_timestamp()
		from %s where key > $1 order by key limit $2`, set.table), mode, from, n)
	if err != nil {
		return p, describe(err)
	}
	var key, value []byte
	var old bool
	_, err = pgx.ForEachRow(rows, []any{&key, &value, &old, &p.Time}, func() error {
		if s, ok := dbstore.StoredIn(key, value); ok && !old {
			p.States = append(p.States, s)
		}
		p.Next, value = key, nil
		p.Rows++
		return nil
	})
	if err != nil {
		return Page{}, describe(err)
	}
	if p.Rows < n {
		p.Next = nil
	}
	p.Time = p.Time.UTC()
	return p, nil
}
