package replay

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Uses has the requests that have used the budget of one key of a rule.
type Uses struct {
	Requests int   // how many such requests there were
	Last     []Use // the last of these requests, in the order of their times

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

// Watch lets the Player record, for each rule, the granted requests that have the same key of this rule as the request req.
// The result has the rules by name, and is filled in by the requests that come later. Of each rule, it keeps the last
// requests, up to the given number.
func (p *Player) Watch(req *ratelimit.Request, keep int) map[string]*Uses {
	p.watched = make(map[string]*Uses)
	for _, r := range p.rules {
		p.watched[r.name] = &Uses{key: r.key(req).bits(), keep: keep}
	}
	return p.watched
}

// The method watch records a granted request for the rules that it was charged by.
func (p *Player) watch(each []ratelimit.Result, req *ratelimit.Request, at time.Time) {
	for i := range each {
		r := p.byName[each[i].Rule]
		u := p.watched[r.name]
		if each[i].Limit < 0 || u.key != r.key(req).bits() {
			continue
		}
		u.Requests++
		if len(u.Last) == u.keep {
			u.Last = u.Last[:copy(u.Last, u.Last[1:])]
		}
		u.Last = append(u.Last, Use{at, req.Client, req.Endpoint, max(req.Cost, 1)})
	}
}
