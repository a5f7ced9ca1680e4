package redisstore

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// WithClock has a store decide by c. Its keys are kept for an hour longer, as their
// expiry is by the server's clock. Times far ahead are not read as now: the kit's
// clock goes back for years, and the models stand still.
func WithClock(c ratelimit.Clock) Option {
	return func(s *settings) { s.now, s.pad, s.heals = c.Now, time.Hour, false }
}

// WithHealing has times far ahead read as now.
func WithHealing() Option { return func(s *settings) { s.heals = true } }

// KeyOf returns the key of the state of a.
func (s *Store) KeyOf(a ratelimit.Ask) string { return s.keyOf(&a).text }

// Slot returns the slot that the state of a is in.
func (s *Store) Slot(a ratelimit.Ask) int { return slot(s.keyOf(&a).tag) }

// CallsUnderWay returns how many calls have not ended.
func (s *Store) CallsUnderWay() int { return len(s.conn.calls) }

// Exact is the arithmetic of the scripts.
func Exact() string { return exactLua }
