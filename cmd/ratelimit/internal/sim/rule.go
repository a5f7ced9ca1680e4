package sim

import (
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
)

// A Rule is what came of the traffic for one rule.
type Rule struct {
	Name      string              `json:"name"`      // that of ratelimit.Rule, as the next three
	Algorithm ratelimit.Algorithm `json:"algorithm"` // that decides
	Rate      ratelimit.Rate      `json:"rate"`      // the limit of each key
	Mode      ratelimit.Mode      `json:"mode"`      // whether it denies

	Asked  int `json:"asked"`  // requests that it applied to
	Denied int `json:"denied"` // of these, those that it alone would have denied
	Keys   int `json:"keys"`   // that were granted something; 0 for a rule in shadow

	// Window is the length of a window, whose begin counts and whose end does not.
	Window time.Duration `json:"windowNanoseconds"`
	Most   int           `json:"most"`  // units that one key was granted in any window; 0 for a rule in shadow
	Bound  int           `json:"bound"` // the most that it can be granted in any window, or -1 if there is no bound

	Peaks [Bins]int `json:"peaks"` // Most of the windows whose last grant is in each part of the time

	keys  []string // the parts of a key
	grant map[string]*sum
}

func (out *Outcome) addRule(r ratelimit.Rule, o Options) *Rule {
	rule := &Rule{
		Name: r.Name, Algorithm: r.Algorithm, Rate: r.Rate, Mode: r.Mode, Window: o.Window,
		keys: strings.Split(string(r.Key), "+"), grant: make(map[string]*sum),
	}
	if rule.Window == 0 {
		rule.Window = r.Rate.Per
	}
	rule.Bound = r.Algorithm.MaxIn(r.Rate, rule.Window-1)
	out.Rules = append(out.Rules, rule)
	return rule
}

// count counts a request that r applies to. res is the answer of r alone, and charged is whether the
// request was granted by all rules.
func (r *Rule) count(request *traffic.Request, res *ratelimit.Result, charged bool, bin int) {
	r.Asked++
	if !res.Allowed {
		r.Denied++
	}
	if !charged {
		return
	}
	key := r.key(request)
	s := r.grant[key]
	if s == nil {
		s = new(sum)
		r.grant[key] = s
		r.Keys++
	}
	n := s.add(request.At, request.Cost, r.Window-1)
	r.Most, r.Peaks[bin] = max(r.Most, n), max(r.Peaks[bin], n)
}

// key returns what tells the key of a request from others of the rule. Traffic has no attributes, so
// all its requests have the same ones.
func (r *Rule) key(request *traffic.Request) string {
	if len(r.keys) == 1 && r.keys[0] == string(ratelimit.KeyUser) {
		return request.Client
	}
	var b strings.Builder
	for _, part := range r.keys {
		switch ratelimit.KeyType(part) {
		case ratelimit.KeyUser:
			b.WriteString(request.Client)
		case ratelimit.KeyEndpoint:
			b.WriteString(request.Endpoint)
		case ratelimit.KeyUserEndpoint:
			b.WriteString(request.Client + "\x00" + request.Endpoint)
		case ratelimit.KeyIP:
			b.WriteString(request.IP)
		}
		b.WriteByte(0)
	}
	return b.String()
}

// A sum adds up the grants of a key that are in a closed interval, whose end is the last grant.
type sum struct {
	grants []grant // in the order of their instants, from first on
	first  int     // the index of the first one in the interval
	units  int     // of those in the interval
}

// A grant is all that was granted at one instant.
type grant struct {
	at    time.Duration
	units int
}

// add adds units at an instant, which is not before that of the last call. It returns the units in the
// interval of this length that ends at it. The most in any such interval is the largest of all results:
// an interval with the most units can be moved so that it ends at a grant.
func (s *sum) add(at time.Duration, units int, length time.Duration) int {
	if last := len(s.grants) - 1; last >= s.first && s.grants[last].at == at {
		s.grants[last].units += units
	} else {
		s.grants = append(s.grants, grant{at, units})
	}
	s.units += units
	for at-s.grants[s.first].at > length {
		s.units -= s.grants[s.first].units
		s.first++
	}
	if s.first > len(s.grants)/2 {
		s.grants = s.grants[:copy(s.grants, s.grants[s.first:])]
		s.first = 0
	}
	return s.units
}
