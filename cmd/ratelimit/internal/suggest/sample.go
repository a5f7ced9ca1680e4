// Package suggest finds limits that would have denied few of the requests in a log.
package suggest

import (
	"cmp"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Request is what is needed of one request.
type Request struct {
	Time     int64  // nanoseconds since the Unix epoch
	Client   string // whose limit it counts against
	Endpoint string // what it was for
	Cost     int    // how many units it took
}

// An event is a request that is kept: 24 bytes.
type event struct {
	time     int64
	client   uint64 // a hash
	endpoint uint32 // an index of Sample.endpoints
	cost     uint32
}

const (
	chunk        = 1 << 15 // events that are allocated together
	maxEndpoints = 1 << 14 // endpoints that are counted at once
	maxName      = 1024    // length of the longest endpoint that is counted, in bytes
)

// A Sample keeps requests, up to a number. If there are more, it keeps those of a half of all
// clients, then of a quarter, and so on: of these clients, it keeps all. Which clients these are
// depends on a hash of their names alone.
type Sample struct {
	most      int
	level     uint // one in 1<<level clients is kept
	events    [][]event
	n         int
	ids       map[string]uint32
	endpoints []endpoint // the first is all that have no number
	requests  uint64
}

type endpoint struct {
	name     string
	requests uint64
}

// NewSample returns a Sample that keeps up to most requests, at least 1.
func NewSample(most int) *Sample {
	return &Sample{most: most, ids: make(map[string]uint32), endpoints: make([]endpoint, 1)}
}

// Add adds a request.
func (s *Sample) Add(r *Request) {
	s.requests++
	id := s.id(r.Endpoint)
	s.endpoints[id].requests++
	h := fnv.New64a()
	_, _ = io.WriteString(h, r.Client)
	client := mix(h.Sum64())
	if client&(1<<s.level-1) != 0 {
		return
	}
	for s.n >= s.most && s.level < 63 {
		s.level++
		s.rewrite(func(e *event) bool { return e.client&(1<<s.level-1) == 0 })
	}
	if client&(1<<s.level-1) != 0 || s.n >= s.most {
		return
	}
	last := len(s.events) - 1
	if last < 0 || len(s.events[last]) == chunk {
		s.events = append(s.events, make([]event, 0, chunk))
		last++
	}
	s.events[last] = append(s.events[last], event{r.Time, client, id, uint32(r.Cost)})
	s.n++
}

// mix mixes the bits of a hash, so that each of them depends on all.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// id returns the number of an endpoint, which is 0 if it cannot be that of a rule.
func (s *Sample) id(name string) uint32 {
	if id, ok := s.ids[name]; ok {
		return id
	}
	if name == "" || name == "default" || strings.HasSuffix(name, "*") || len(name) > maxName || !utf8.ValidString(name) {
		return 0
	}
	if len(s.endpoints) > maxEndpoints {
		s.prune()
	}
	id, name := uint32(len(s.endpoints)), strings.Clone(name)
	s.ids[name] = id
	s.endpoints = append(s.endpoints, endpoint{name: name})
	return id
}

// prune forgets the half of the endpoints that came least often. Their requests stay, with the
// number 0.
func (s *Sample) prune() {
	order := make([]int, len(s.endpoints)-1)
	for i := range order {
		order[i] = i + 1
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(s.endpoints[b].requests, s.endpoints[a].requests) })
	numbers, old := make([]uint32, len(s.endpoints)), s.endpoints
	s.endpoints = append(make([]endpoint, 0, len(old)), old[0])
	clear(s.ids)
	for i, at := range order {
		if i >= maxEndpoints/2 {
			s.endpoints[0].requests += old[at].requests
			continue
		}
		numbers[at] = uint32(len(s.endpoints))
		s.ids[old[at].name] = numbers[at]
		s.endpoints = append(s.endpoints, old[at])
	}
	s.rewrite(func(e *event) bool {
		e.endpoint = numbers[e.endpoint]
		return true
	})
}

// rewrite keeps the events for which keep returns true, in their order.
func (s *Sample) rewrite(keep func(e *event) bool) {
	old := s.events
	s.events, s.n = nil, 0
	to := 0
	for _, from := range old {
		for i := range from {
			e := from[i]
			if !keep(&e) {
				continue
			}
			if to == len(s.events) { // the chunk was read already
				s.events = append(s.events, old[to][:0])
			}
			if s.events[to] = append(s.events[to], e); len(s.events[to]) == chunk {
				to++
			}
			s.n++
		}
	}
}

// Part returns one in how many clients was kept.
func (s *Sample) Part() uint64 { return 1 << s.level }

// A Group is the requests for one endpoint, or for all that have no Group of their own.
type Group struct {
	Endpoint string // empty for the rest
	Requests uint64 // of all clients
	Clients  int    // of those that were kept

	events []event
	names  []string // of the clients, by their numbers, which are the clients of events
	most   uint64   // the units that one client wants in all
}

// Groups returns the groups of the top endpoints that came most often, and then that of the rest, if
// that has a request. After that, the Sample is empty.
func (s *Sample) Groups(top int) []*Group {
	order := make([]int, len(s.endpoints)-1)
	for i := range order {
		order[i] = i + 1
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.endpoints[b].requests, s.endpoints[a].requests), strings.Compare(s.endpoints[a].name, s.endpoints[b].name))
	})
	order = order[:min(top, len(order))]
	groups := make([]*Group, 0, len(order)+1)
	rest := &Group{Requests: s.requests}
	of := make([]*Group, len(s.endpoints))
	for i := range of {
		of[i] = rest
	}
	for _, at := range order {
		of[at] = &Group{Endpoint: s.endpoints[at].name, Requests: s.endpoints[at].requests}
		rest.Requests -= s.endpoints[at].requests
		groups = append(groups, of[at])
	}
	if rest.Requests > 0 {
		groups = append(groups, rest)
	}
	sizes := make(map[*Group]int)
	for _, part := range s.events {
		for i := range part {
			sizes[of[part[i].endpoint]]++
		}
	}
	for g, n := range sizes {
		g.events = make([]event, 0, n)
	}
	for i, part := range s.events {
		for _, e := range part {
			g := of[e.endpoint]
			g.events = append(g.events, e)
		}
		s.events[i] = nil // it is kept once
	}
	s.events = nil
	for _, g := range groups {
		g.number()
	}
	return groups
}

// number gives the clients numbers, in place of their hashes.
func (g *Group) number() {
	ids, total := make(map[uint64]uint64), []uint64{}
	var all []byte
	for i := range g.events {
		e := &g.events[i]
		id, ok := ids[e.client]
		if !ok {
			id = uint64(len(ids))
			ids[e.client] = id
			total = append(total, 0)
			for shift := range 8 {
				all = append(all, byte(e.client>>(8*shift)))
			}
		}
		e.client = id
		total[id] += uint64(e.cost)
		g.most = max(g.most, total[id])
	}
	g.Clients = len(ids)
	names := string(all) // one text for all names
	for i := range len(ids) {
		g.names = append(g.names, names[8*i:8*i+8])
	}
}
