package httplimit

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/running"
)

// errHeldID is the error for a request that has an ID although a rule limits how many requests run at once. A retry
// with the same ID is granted without a new charge, so the retry would run without being counted by the rule.
var errHeldID = wrong("id", "set", "must be empty beside a rule with the algorithm InFlight: a retry would run without being counted")

// Some rules limit how many requests run at once. The method hold makes these rules count a request until it ends.
// Without hold, such a rule would count the request only for the time Rate.Per; the parameter per is the shortest Per of
// these rules. The parameter units is the reservation of the request. The caller must call end when the request has
// ended.
func (m *Middleware) hold(units *ratelimit.Reservation, per time.Duration) (end func()) {
	return running.Keep(units, m.config.HoldExtend, per, ratelimit.ErrSettled, m.settleFailed)
}

// settleFailed logs the error of a call that ends or extends the reservation of a request.
func (m *Middleware) settleFailed(err error) { m.logs.often(logSettle, err) }

// warnOfUnits logs, at most once a minute, how many requests a rule did not limit because they have no cost in the unit
// of this rule, such as "tokens". The reason may be that a handler forgot to set Request.Costs.
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
