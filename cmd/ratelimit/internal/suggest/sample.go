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

// A Request is one request in a log.
type Request struct {
	Time     int64  // nanoseconds since the Unix epoch
	Client   string // name of the client that sent the request
	Endpoint string // endpoint to which the request was sent
	Cost     int    // units that the request takes from the limit
}

// An event has what a Sample keeps of one request. It takes 24 bytes.
type event struct {
	time     int64
	client   uint64 // hash of the client's name or, for an event in a Group, the index of the client in Group.names
	endpoint uint32 // index of the endpoint in the field Sample.endpoints
	cost     uint32
}

const (
	chunk        = 1 << 15 // number of events that are allocated together
	maxEndpoints = 1 << 14 // largest number of endpoints that are counted one by one
	maxName      = 1024    // largest length of a counted endpoint in bytes
)

// A Sample keeps a bounded number of requests. If there are too many requests, it keeps only the requests of half
// of all clients, then of a quarter of all clients, and so on. The hash of a client's name decides whether the
// Sample keeps the client's requests. It keeps all requests of the client, or none.
type Sample struct {
	maxRequests int
	level       uint // only the requests of one client in 1<<level are kept
	events      [][]event
	n           int
	ids         map[string]uint32
	endpoints   []endpoint // counts by endpoint; the first entry counts the requests to all endpoints without an entry
	requests    uint64
}

type endpoint struct {
	name     string
	requests uint64
}

// NewSample returns a Sample that keeps at most maxRequests requests. This number must be at least 1.
func NewSample(maxRequests int) *Sample {
	return &Sample{maxRequests: maxRequests, ids: make(map[string]uint32), endpoints: make([]endpoint, 1)}
}

// Add counts a request. If the Sample keeps the requests of this client, Add also keeps this request.
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
	for s.n >= s.maxRequests && s.level < 63 {
		s.level++
		s.rewrite(func(e *event) bool { return e.client&(1<<s.level-1) == 0 })
	}
	if client&(1<<s.level-1) != 0 || s.n >= s.maxRequests {
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

// mix mixes the bits of a hash, so that each bit of the result depends on all bits of x.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// id returns the index in s.endpoints of the endpoint with this name. If the name is new, id first adds it. If the
// name is too long or cannot be the endpoint of a rule, the index is 0.
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

// prune removes the half of the endpoints that had the fewest requests. The requests of a removed endpoint are
// then counted in the first entry, together with the requests to all other endpoints without an entry.
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

// rewrite calls the given function with each event. It removes an event if the function returns false. The
// function may also change the event.
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
			if to == len(s.events) { // the slice old[to] can be overwritten, because all its events were read
				s.events = append(s.events, old[to][:0])
			}
			if s.events[to] = append(s.events[to], e); len(s.events[to]) == chunk {
				to++
			}
			s.n++
		}
	}
}

// Part says what part of the clients the Sample keeps: 1 means that it keeps the requests of all clients, 2 of one
// client in two, 4 of one client in four, and so on.
func (s *Sample) Part() uint64 { return 1 << s.level }

// A Group has the requests to one endpoint. One further Group may have the requests to all other endpoints.
type Group struct {
	Endpoint string // name of the endpoint; empty for the Group of all endpoints that do not have their own Group
	Requests uint64 // number of requests, including those that were not kept
	Clients  int    // number of clients whose requests were kept

	events   []event
	names    []string // for each client, the hash of its name as 8 bytes; event.client is the index in this slice
	maxUnits uint64   // largest number of units that the requests of one client cost in all
}

// Groups returns a Group for each of the endpoints with the most requests, but at most as many as the parameter
// top says. If there are other endpoints, one more Group has the requests to all of them. After the call, the
// Sample is empty.
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
		s.events[i] = nil // makes the memory of these events free, because they were copied
	}
	s.events = nil
	for _, g := range groups {
		g.number()
	}
	return groups
}

// number gives the clients the numbers 0, 1, 2 and so on. In each event, it replaces the hash of the client's name
// by the number of the client.
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
		g.maxUnits = max(g.maxUnits, total[id])
	}
	g.Clients = len(ids)
	names := string(all) // this allocates memory only once for the texts of all clients
	for i := range len(ids) {
		g.names = append(g.names, names[8*i:8*i+8])
	}
}
