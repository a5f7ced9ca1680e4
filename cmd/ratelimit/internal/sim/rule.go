package sim

import (
	"container/heap"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/traffic"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// A Rule has the counts of one rule of the limiter.
type Rule struct {
	Name      string              `json:"name"`           // name of the rule
	Algorithm ratelimit.Algorithm `json:"algorithm"`      // algorithm of the rule
	Rate      ratelimit.Rate      `json:"rate"`           // limit of each key
	Mode      ratelimit.Mode      `json:"mode"`           // whether the rule denies requests; a rule in shadow or advise mode does not
	Unit      string              `json:"unit,omitempty"` // what the rule counts; empty for requests

	Asked  int `json:"asked"`  // requests to which the rule applied
	Denied int `json:"denied"` // how many of the Asked requests this rule denied; other rules may have denied the same requests
	Keys   int `json:"keys"`   // number of keys that had a granted request; 0 in shadow or advise mode

	// Window is the length of a window. The instant at the end of a window does not belong to the window. For a rule that
	// limits how many requests run at once, Window is 0: MaxGranted and Bound then say how many units run at once.
	Window     time.Duration `json:"windowNs"`
	MaxGranted int           `json:"most"`  // most units that one key was granted in any window; 0 in shadow or advise mode
	Bound      int           `json:"bound"` // most units that one key can be granted in any window; -1 if there is no bound

	// Peaks has, for each of the equal parts of the simulation, the most units that one key was granted in a window that ends in
	// this part. For a rule that limits how many requests run at once, only the requests that begin in this part count.
	Peaks [Bins]int `json:"peaks"`

	keys  []string // names of the parts of the rule's keys, such as "user"
	cost  int      // how many units of Unit a request takes; used only if Unit is not empty
	grant map[string]*sum
	peaks peaks
}

func (out *Outcome) addRule(r ratelimit.Rule, o Options) *Rule {
	rule := &Rule{
		Name: r.Name, Algorithm: r.Algorithm, Rate: r.Rate, Mode: r.Mode, Unit: r.Unit, Window: o.Window,
		keys: strings.Split(string(r.Key), "+"), grant: make(map[string]*sum),
		peaks: peaks{duration: o.Duration},
	}
	for _, c := range o.Costs {
		if c.Unit == r.Unit {
			rule.cost = c.N
		}
	}
	if rule.Window == 0 {
		rule.Window = calendar.LengthAt(string(r.Rate.Window), r.Rate.Per, o.Start)
	}
	if rule.Bound = r.Algorithm.MaxIn(r.Rate, rule.Window-1); rule.holds() {
		rule.Window, rule.Bound = 0, r.Rate.Requests
	}
	out.Rules = append(out.Rules, rule)
	return rule
}

// holds reports whether the rule limits how many requests run at the same time.
func (r *Rule) holds() bool { return r.Algorithm == ratelimit.AlgorithmInFlight }

// The method count counts a request to which the rule r applies. The argument res is the answer of this rule alone.
// The argument charged says whether all rules have granted the request. The argument bin is the index in r.Peaks of
// the part of the simulation in which the request was sent.
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
		r.peaks.add(s)
	}
	cost := request.Cost
	if r.Unit != "" {
		cost = r.cost
	}
	n := res.Limit - res.Remaining // how many units are running, including this request; wrong if r.holds() is false, see below
	if !r.holds() {
		r.pass(bin)
		n = s.add(request.At, cost, r.Window-1)
		heap.Fix(&r.peaks, s.place)
	}
	r.MaxGranted, r.Peaks[bin] = max(r.MaxGranted, n), max(r.Peaks[bin], n)
}

// key returns a text that is different for each key of the rule. Attributes are not in the text, because requests
// of simulated traffic have none.
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

// A sum adds up the units that a key was granted in an interval. The interval ends at the last grant, or at the later time
// to which the method advance has moved its end. Both ends belong to the interval.
type sum struct {
	grants []grant // all grants in order of time; the grants before the index first are outside the interval
	first  int     // index of the first grant in the interval
	units  int     // sum of the units in the interval
	place  int     // index in the heap of all sums of the rule
}

// A grant is the sum of all units that one key was granted at the same instant.
type grant struct {
	at    time.Duration
	units int
}

// add records that the given units were granted at the given time. This time must not be before the time of the
// previous grant. The result is the sum of all units in the interval of the given length that ends at this grant.
// The largest of all results is the largest sum for any interval of this length.
func (s *sum) add(at time.Duration, units int, length time.Duration) int {
	if last := len(s.grants) - 1; last >= s.first && s.grants[last].at == at {
		s.grants[last].units += units
	} else {
		s.grants = append(s.grants, grant{at, units})
	}
	s.units += units
	s.advance(at, length)
	return s.units
}

// advance moves the end of the interval to the time in the parameter at. It then removes the grants that are earlier than the
// beginning of the interval, which has the given length.
func (s *sum) advance(at, length time.Duration) {
	for s.first < len(s.grants) && at-s.grants[s.first].at > length {
		s.units -= s.grants[s.first].units
		s.first++
	}
	if s.first > len(s.grants)/2 {
		s.grants = s.grants[:copy(s.grants, s.grants[s.first:])]
		s.first = 0
	}
}
