package replay

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Uses says which requests have used the budget of one key of a rule, and how many the rule denied.
type Uses struct {
	Seen          // requests with this key that the rule denied, or that it granted and no other rule denied
	Granted int   // how many requests were charged
	Last    []Use // the last of the requests that were charged, in the order of their times

	key  uint64
	keep int
}

// A Use is one request that was granted.
type Use struct {
	Time     time.Time // time of the request
	Client   string    // name of the client
	Endpoint string    // endpoint of the request
	Cost     int       // what the request cost in requests
}

// Seen counts some of the requests in a log, and says since when they are denied.
type Seen struct {
	Requests    int       `json:"requests"`             // how many such requests there were
	Denied      int       `json:"denied"`               // how many of them were denied
	FirstDenied time.Time `json:"firstDenied,omitzero"` // time of the first denial
	LastDenied  time.Time `json:"lastDenied,omitzero"`  // time of the last denial
	DeniedSince time.Time `json:"deniedSince,omitzero"` // first denial after the last grant; zero if the last request was granted
}

func (s *Seen) note(allowed bool, at time.Time) {
	s.Requests++
	if allowed {
		s.DeniedSince = time.Time{}
		return
	}
	s.Denied++
	s.LastDenied = at
	if s.FirstDenied.IsZero() {
		s.FirstDenied = at
	}
	if s.DeniedSince.IsZero() {
		s.DeniedSince = at
	}
}

// Watched describes the requests of a log that came before the one request that the user asks about.
type Watched struct {
	Client Seen             // requests of the same client for the same endpoint
	Rules  map[string]*Uses // requests with the same key of a rule, by the name of the rule

	client, endpoint string
}

// Watch makes the Player record two kinds of requests that it plays after this call. The first kind has the same client and the
// same endpoint as the request req. The second kind has, for one of the rules, the same key as req. The Player adds them to the
// result while it plays them. For each rule, the result lists the last granted requests, at most as many as the parameter keep.
func (p *Player) Watch(req *ratelimit.Request, keep int) *Watched {
	p.watched = &Watched{Rules: make(map[string]*Uses), client: req.Client, endpoint: req.Endpoint}
	for _, r := range p.rules {
		p.watched.Rules[r.name] = &Uses{key: r.key(req).bits(), keep: keep}
	}
	return p.watched
}

// note records a request. The parameter res is the answer of the limiter, and the parameter each has the answers of the single
// rules.
func (w *Watched) note(p *Player, res *ratelimit.Result, each []ratelimit.Result, req *ratelimit.Request, at time.Time) {
	if req.Client == w.client && req.Endpoint == w.endpoint {
		w.Client.note(res.Allowed, at)
	}
	for i := range each {
		r := p.byName[each[i].Rule]
		u := w.Rules[r.name]
		if each[i].Limit < 0 || u.key != r.key(req).bits() {
			continue
		}
		if !each[i].Allowed || res.Allowed { // a grant by one rule changes nothing if another rule denies
			u.note(each[i].Allowed, at)
		}
		if !each[i].Allowed || !res.Allowed {
			continue
		}
		if u.Granted++; len(u.Last) == u.keep {
			u.Last = u.Last[:copy(u.Last, u.Last[1:])]
		}
		u.Last = append(u.Last, Use{at, req.Client, req.Endpoint, max(req.Cost, 1)})
	}
}
