package httplimit

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/running"
)

// errHeldID is the error for a request with an ID that a rule would count as running: a replay of it would run too,
// but hold nothing.
var errHeldID = wrong("id", "set", "must be empty beside a rule with the algorithm InFlight: a retry would run without being counted")

// hold extends what the request of units has in flight, for as long as it runs. The parameter per is the shortest time
// after which a part of it is over. The caller must call the result when the request has ended.
func (m *Middleware) hold(units *ratelimit.Reservation, per time.Duration) (end func()) {
	return running.Keep(units, m.config.HoldExtend, per, ratelimit.ErrSettled, m.settleFailed)
}

// settleFailed logs the error of a call that ends or extends what a request has reserved.
func (m *Middleware) settleFailed(err error) { m.logs.often(logSettle, err) }

// warnOfUnits logs, at most once a minute, how many requests lacked the unit of rules that cover them: some code may
// have forgotten to give the costs.
func (m *Middleware) warnOfUnits() {
	if int64(time.Since(m.logs.began)) < m.logs.due[logUnits].Load() {
		return
	}
	var rules []string
	sum := uint64(0)
	for _, s := range m.limiter.Stats() {
		if s.NotAsked > 0 {
			sum += s.NotAsked
			rules = append(rules, fmt.Sprintf("%q", s.Rule))
		}
	}
	if before := m.unasked.Swap(sum); sum > before {
		m.logs.often(logUnits, fmt.Errorf("%d requests lacked the unit of %s", sum-before, strings.Join(rules, ", ")))
		return
	}
	m.logs.due[logUnits].Store(int64(time.Since(m.logs.began) + time.Minute))
}
