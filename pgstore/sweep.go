package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	sweepPages = 64          // how many pages of the table one statement looks at
	sweepEvery = time.Second // the usual time between two statements, if few rows have expired
	sweepShare = 4           // after a statement, the sweeper rests for at least 4 times as long as the statement took
	sweepLimit = 5 * time.Second
)

// A sweeper deletes the rows that have expired. It needs no index: it looks at a few pages of the table at a time, in order, from a
// random page on, and leaves rows alone that somebody has locked.
type sweeper struct {
	backend *backend
	ctx     context.Context
	cancel  context.CancelFunc
	done    sync.WaitGroup

	page  int64 // the page at which the next statement begins; -1 before the first statement
	query string
}

func newSweeper(b *backend) *sweeper {
	s := &sweeper{backend: b, page: -1}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Add(1)
	s.query = fmt.Sprintf(`with
		quick as materialized (select set_config('synchronous_commit', 'off', true)),
		seen as (select count(*) as n, count(*) filter (where t.expires < clock_timestamp()) as old
			from quick, %[1]s t where t.ctid >= $1::text::tid and t.ctid < $2::text::tid),
		gone as (delete from %[1]s t where t.ctid = any(array(select o.ctid from %[1]s o
			where o.ctid >= $1::text::tid and o.ctid < $2::text::tid and o.expires < clock_timestamp() for update skip locked)) returning 1)
		select n, old, (select count(*) from gone), pg_relation_size($3::text::regclass) / current_setting('block_size')::bigint
			from seen`, b.table)
	return s
}

// stop ends the goroutine of s, and waits for it.
func (s *sweeper) stop() {
	s.cancel()
	s.done.Wait()
}

// run sweeps until stop is called.
func (s *sweeper) run() {
	defer s.done.Done()
	timer := time.NewTimer(rand.N(sweepEvery))
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		many, err := s.sweep(s.ctx)
		if rest := sweepShare * time.Since(began); many && err == nil {
			timer.Reset(rest)
		} else {
			timer.Reset(max(rest, sweepEvery/2+rand.N(sweepEvery)))
		}
	}
}

// sweep looks at the next pages. It reports whether at least half of their rows had expired.
func (s *sweeper) sweep(ctx context.Context) (many bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	first := max(s.page, 0)
	var rows, old, gone, pages int64
	err = s.backend.pool.QueryRow(ctx, s.query, mode, tid(first), tid(first+sweepPages), s.backend.table).Scan(&rows, &old, &gone, &pages)
	if err != nil {
		return false, err
	}
	switch {
	case s.page < 0 && pages > sweepPages:
		s.page = rand.Int64N(pages)
	case first+sweepPages < pages:
		s.page = first + sweepPages
	default:
		s.page = 0
	}
	return gone > 0 && 2*old >= rows, nil
}

// tid returns the text of the PostgreSQL type tid (the place of a row in the table) for the begin of a page.
func tid(page int64) string { return fmt.Sprintf("(%d,0)", page) }
