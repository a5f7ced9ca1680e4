package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
)

// maxBuffered is the largest number of requests that a stream holds back to put them in order.
const maxBuffered = 1 << 16

// An entry is a request in a log.
type entry struct {
	accesslog.Entry
	number int // how many requests come before this one in its log
}

func (e *entry) before(other *entry) bool {
	return e.Time < other.Time || e.Time == other.Time && e.number < other.number
}

// A stream returns the requests of one log in the order of their times. Some lines of a log may be out of order, so the
// stream holds back each request until it has read another one that is later by at least s.window. If s.window is 10 s, a
// request of 12:00:00 is held back until a request of 12:00:10 or later was read. A request that is out of order by more
// than s.window may come after later requests. At most maxBuffered requests are held back.
type stream struct {
	path   string
	open   func() (*accesslog.Reader, io.Closer, error)
	window int64 // in nanoseconds

	reader *accesslog.Reader // nil until the method fill opens the log
	closer io.Closer
	ended  bool

	queue    []*entry // a ring of requests; its length is a power of two; requests that were read out of order are in the field late
	head, n  int      // index of the first request of the ring, and how many there are
	late     lateEntries
	free     []*entry
	returned *entry // the request that the method next has returned last
	newest   int64  // the latest time that was read
	numbered int

	key   int64 // time of the request that comes next, or a lower bound of this time
	index int   // index of the log on the command line
}

// The type lateEntries is a heap of requests. Each of them was read after a request that has a later time.
type lateEntries []*entry

func (l lateEntries) Len() int           { return len(l) }
func (l lateEntries) Less(i, j int) bool { return l[i].before(l[j]) }
func (l lateEntries) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }

// Push adds a request to the end of the heap.
func (l *lateEntries) Push(x any) {
	e, _ := x.(*entry)
	*l = append(*l, e)
}

// Pop removes the last request.
func (l *lateEntries) Pop() any {
	last := len(*l) - 1
	e := (*l)[last]
	*l = (*l)[:last]
	return e
}

// fill reads requests until it is certain which of them comes first. It is certain if no unread request is earlier, except
// requests that are out of order by more than s.window. If maxBuffered requests are held back, fill stops in any case.
func (s *stream) fill() (err error) {
	if s.reader == nil {
		if s.reader, s.closer, err = s.open(); err != nil {
			return err
		}
		s.newest = math.MinInt64
	}
	for !s.ended && s.n+len(s.late) < maxBuffered {
		if first := s.first(); first != nil && s.newest-first.Time >= s.window {
			break
		}
		if err := s.readOne(); err != nil {
			return err
		}
	}
	if first := s.first(); first != nil {
		s.key = first.Time
	}
	return nil
}

// readOne reads one request.
func (s *stream) readOne() error {
	var e *entry
	if last := len(s.free) - 1; last >= 0 {
		e, s.free = s.free[last], s.free[:last]
	} else {
		e = new(entry)
	}
	switch err := s.reader.Next(&e.Entry); {
	case errors.Is(err, io.EOF):
		s.ended = true
		return s.closer.Close()
	case err != nil:
		return fmt.Errorf("%s: %s", plain(s.path), plain(err.Error()))
	}
	e.number = s.numbered
	s.numbered++
	if e.Time < s.newest && s.window > 0 {
		heap.Push(&s.late, e)
		return nil
	}
	s.newest = max(s.newest, e.Time)
	if s.n == len(s.queue) {
		larger := make([]*entry, max(64, 2*s.n))
		for i := range s.n {
			larger[i] = s.queue[(s.head+i)&(s.n-1)]
		}
		s.queue, s.head = larger, 0
	}
	s.queue[(s.head+s.n)&(len(s.queue)-1)] = e
	s.n++
	return nil
}

// first() is the request that comes next, or nil if no request is held back.
func (s *stream) first() *entry {
	var e *entry
	if s.n > 0 {
		e = s.queue[s.head]
	}
	if len(s.late) > 0 && (e == nil || s.late[0].before(e)) {
		return s.late[0]
	}
	return e
}

// next returns the next request, or nil at the end of the log. The request is valid until the next call.
func (s *stream) next() (*entry, error) {
	if s.returned != nil {
		s.free = append(s.free, s.returned)
		s.returned = nil
	}
	if err := s.fill(); err != nil {
		return nil, err
	}
	e := s.first()
	switch {
	case e == nil:
		return nil, nil
	case len(s.late) > 0 && e == s.late[0]:
		heap.Pop(&s.late)
	default:
		s.head = (s.head + 1) & (len(s.queue) - 1)
		s.n--
	}
	s.returned = e
	return e, nil
}

// The method close closes the log if it is open.
func (s *stream) close() {
	if s.reader != nil && !s.ended {
		_ = s.closer.Close()
		s.ended = true
	}
}

// peek reads the first request of the log, and sets s.key to a lower bound of the times in the log. It then closes the log.
// The method fill opens the log again when its requests are the next ones. So only a few logs are open at the same time, even
// if the command merges many.
func (s *stream) peek() error {
	r, closer, err := s.open()
	if err != nil {
		return err
	}
	defer func() { _ = closer.Close() }()
	var e accesslog.Entry
	s.key = math.MinInt64
	if err := r.Next(&e); err == nil && e.Time > s.window {
		s.key = e.Time - s.window
	}
	return nil
}

// The type merged is a heap of streams. The first one has the request that comes next.
type merged []*stream

// down moves the first stream to its place in the heap.
func (m merged) down() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m); child++ {
			if a, b := m[child], m[least]; a.key < b.key || a.key == b.key && a.index < b.index {
				least = child
			}
		}
		if least == i {
			return
		}
		m[i], m[least] = m[least], m[i]
		i = least
	}
}

// openLog opens the log at path, or the standard input if path is "-". If counted is true, the bytes that are read from it
// count for the progress p.
func (f *logFlags) openLog(
	ctx context.Context, p *progress, path string, o accesslog.Options, counted bool,
) (*accesslog.Reader, io.Closer, error) {
	var in io.Reader
	closer := io.Closer(io.NopCloser(nil))
	if path == "-" {
		in = newLiveReader(ctx, p.terminal.in, redrawEvery, f.onTick)
	} else {
		file, err := os.Open(path)
		if err != nil {
			return nil, nil, errors.New(plain(strings.TrimPrefix(err.Error(), "open ")))
		}
		in, closer = file, file
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
			in = newLiveReader(ctx, file, redrawEvery, nil)
		}
	}
	if counted {
		in = p.reader(in)
	}
	r, err := accesslog.NewReader(in, o)
	if err != nil {
		_ = closer.Close()
		return nil, nil, fmt.Errorf("%s: %s", plain(path), plain(err.Error()))
	}
	return r, closer, nil
}
