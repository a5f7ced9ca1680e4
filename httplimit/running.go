package httplimit

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/running"
)

// errHeldID is the error for a request that has an ID although a rule limits the requests in flight. A retry with
// the same ID is granted without a new charge, so it would run without being counted by the rule.
var errHeldID = wrong("id", "set", "must be empty beside a rule with the algorithm InFlight: a retry would run without being counted")

// hold makes the rules that limit requests in flight count a request for as long as it runs. Without hold, they would
// count it only for their Per; the parameter per is the shortest of these times. units is the reservation of the
// request. The caller must call end when the request has ended.
func (m *Middleware) hold(units *ratelimit.Reservation, per time.Duration) (end func()) {
	return running.Keep(units, m.config.HoldExtend, per, ratelimit.ErrSettled, m.settleFailed)
}

// settleFailed logs the error of a call that ends or extends the reservation of a request.
func (m *Middleware) settleFailed(err error) { m.logs.often(logSettle, err) }

// warnOfUnits logs, at most once a minute, how many requests rules did not limit because the requests do not have
// the unit of the rule, such as "tokens". The reason may be that a handler forgot to set Request.Costs.
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
