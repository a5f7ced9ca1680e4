// Package backlog keeps messages to a store that could not be sent, so that they can be sent again later. A message
// is dropped when it is of no use any more.
package backlog

import (
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// maxMessages is the largest number of messages in a Backlog. If there are more, the oldest ones are dropped.
const maxMessages = 1 << 16

// A Backlog is a queue of messages that could not be sent, oldest first. Each message is dropped at an instant that
// the caller of Add gives. The zero Backlog is empty. A Backlog is safe for concurrent use by multiple goroutines.
type Backlog[M any] struct {
	size atomic.Int32 // the number of messages in the Backlog, for readers that do not hold mu

	mu   sync.Mutex
	list []entry[M] // guarded by mu
}

type entry[M any] struct {
	message M
	until   keytable.Instant // when the message is of no use any more
}

// Add adds a message, which is of use until the given instant.
func (b *Backlog[M]) Add(message M, until keytable.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == maxMessages {
		b.list = b.list[1:]
	}
	b.list = append(b.list, entry[M]{message, until})
	b.size.Store(int32(len(b.list)))
}

// Send calls the function send with the oldest messages, at most n of them. It does not call send if there are none.
// If send fails, the messages go back into the Backlog. Messages that are of no use any more are dropped. The
// parameter now is a function that reads the clock.
func (b *Backlog[M]) Send(now func() keytable.Instant, n int, send func(messages []M) error) {
	if b.size.Load() == 0 {
		return
	}
	some := b.take(now(), n)
	if len(some) == 0 {
		return
	}
	messages := make([]M, len(some))
	for i := range some {
		messages[i] = some[i].message
	}
	if send(messages) == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(some, b.list...)
	b.list = b.list[len(b.list)-min(len(b.list), maxMessages):]
	b.size.Store(int32(len(b.list)))
}

// take removes the oldest messages until it has n messages that are still of use at the instant now, or
// until none is left. It returns the messages that are still of use.
func (b *Backlog[M]) take(now keytable.Instant, n int) (some []entry[M]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.list) > 0 && len(some) < n {
		if b.list[0].until > now {
			some = append(some, b.list[0])
		}
		b.list = b.list[1:]
	}
	if len(b.list) == 0 {
		b.list = nil
	}
	b.size.Store(int32(len(b.list)))
	return some
}
