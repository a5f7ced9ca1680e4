package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Routes finds the route of a path. It replaces each segment that is a number or another identifier by a variable: the
// route of /users/45 is /users/{id}.
type Routes struct {
	kept    map[string]string
	grouped map[string]bool
}

// maxRoutesKept is the largest number of paths whose routes Routes keeps.
const maxRoutesKept = 1 << 16

// Of returns the route of a path. A text that is no path, and a path without identifiers, stays as it is.
func (r *Routes) Of(path string) string {
	if !strings.HasPrefix(path, "/") {
		return path
	}
	if route, ok := r.kept[path]; ok {
		return route
	}
	if len(r.kept) >= maxRoutesKept || r.kept == nil {
		r.kept = make(map[string]string)
	}
	if r.grouped == nil {
		r.grouped = make(map[string]bool)
	}
	segments := strings.Split(path, "/")
	ids := 0
	for i, segment := range segments {
		if isID(segment) {
			ids++
			segments[i] = variable("id", ids)
		}
	}
	route := path
	if ids > 0 {
		route = strings.Join(segments, "/")
		if len(r.grouped) < maxEndpoints {
			r.grouped[route] = true
		}
	}
	r.kept[strings.Clone(path)] = route
	return route
}

// Names returns the routes that have identifiers, in alphabetical order.
func (r *Routes) Names() []string { return slices.Sorted(maps.Keys(r.grouped)) }

// variable returns the variable of a route, such as {id}, or {id2} for the second one of the same route.
func variable(name string, n int) string {
	if n == 1 {
		return "{" + name + "}"
	}
	return fmt.Sprintf("{%s%d}", name, n)
}

// isID reports whether a segment of a path is a number, a UUID, or a long text of letters and digits that looks as if a program
// had made it.
func isID(segment string) bool {
	digits, hex, dashes, others := 0, 0, 0, 0
	for _, c := range segment {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'f', 'A' <= c && c <= 'F':
			hex++
		case c == '-' || c == '_':
			dashes++
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			others++
		default:
			return false
		}
	}
	switch n := len(segment); {
	case digits == 0:
		return false
	case digits == n:
		return true
	case others == 0 && digits+hex >= 12: // a UUID, a hash, or an identifier of MongoDB
		return true
	}
	return digits >= 4 && digits+hex+others >= 20 && dashes <= 2 // a ULID, or a key such as cus_NffrFeUfNV2Hib1234
}

// These constants say when GroupRare replaces the segments in one place of the paths, such as all segments after /articles/, by
// {name}. There must be at least manySegments different ones. None of them may have more than rareShare percent of their requests.
const (
	manySegments = 20
	rareShare    = 10
)

// A segment is a node in the tree of all paths: /a/b is the node b within the node a.
type segment struct {
	within    map[string]*segment
	requests  uint64   // requests to this path, and to those below it
	endpoints []uint32 // indexes of the endpoints that end here
}

// GroupRare joins endpoints that differ in one segment, if this segment has many values and none is frequent. For example,
// /articles/a, /articles/b and many more become /articles/{name}. It returns the names of the joined endpoints.
func (s *Sample) GroupRare() (made []string) {
	top := &segment{}
	for i, e := range s.endpoints[1:] {
		at := top
		if !strings.HasPrefix(e.name, "/") {
			continue
		}
		at.requests += e.requests
		for part := range strings.SplitSeq(e.name[1:], "/") {
			if at.within == nil {
				at.within = make(map[string]*segment)
			}
			if at.within[part] == nil {
				at.within[part] = &segment{}
			}
			at = at.within[part]
			at.requests += e.requests
		}
		at.endpoints = append(at.endpoints, uint32(i+1))
	}
	names := make(map[uint32]string)
	top.group("", 1, func(id uint32, name string) { names[id] = name })
	for _, name := range names {
		if !slices.Contains(made, name) {
			made = append(made, name)
		}
	}
	if len(names) > 0 {
		s.rename(names)
	}
	slices.Sort(made)
	return made
}

// group replaces rare segments below this segment by a variable such as {name}. It calls the function rename for each endpoint
// that gets another name by this. The parameter path is the path that leads to this segment. The parameter n is 1 if path has
// no such variable yet, 2 if it has {name}, 3 if it also has {name2}, and so on.
func (s *segment) group(path string, n int, rename func(id uint32, name string)) {
	var rare []string
	largest, total := uint64(0), uint64(0)
	for part, child := range s.within {
		if part != "" && part[0] != '{' && !strings.HasSuffix(part, "*") {
			rare = append(rare, part)
			largest, total = max(largest, child.requests), total+child.requests
		}
	}
	if len(rare) >= manySegments && largest*100 <= total*rareShare {
		joined := &segment{}
		slices.Sort(rare)
		for _, part := range rare {
			joined.join(s.within[part])
			delete(s.within, part)
		}
		s.within[variable("name", n)] = joined
		n++
	}
	for part, child := range s.within {
		name := path + "/" + part
		if n > 1 {
			for _, id := range child.endpoints {
				rename(id, name)
			}
		}
		child.group(name, n, rename)
	}
}

// join adds the other segment to this one.
func (s *segment) join(other *segment) {
	s.requests += other.requests
	s.endpoints = append(s.endpoints, other.endpoints...)
	for part, child := range other.within {
		if s.within == nil {
			s.within = make(map[string]*segment)
		}
		if s.within[part] == nil {
			s.within[part] = &segment{}
		}
		s.within[part].join(child)
	}
}

// rename gives endpoints the names in the map, and joins endpoints that have the same name afterwards.
func (s *Sample) rename(names map[uint32]string) {
	numbers, old := make([]uint32, len(s.endpoints)), s.endpoints
	s.endpoints = append(make([]endpoint, 0, len(old)), old[0])
	clear(s.ids)
	for i, e := range old {
		if i == 0 {
			continue
		}
		name := cmp.Or(names[uint32(i)], e.name)
		id, ok := s.ids[name]
		if !ok {
			id = uint32(len(s.endpoints))
			s.ids[name] = id
			s.endpoints = append(s.endpoints, endpoint{name: name})
		}
		s.endpoints[id].requests += e.requests
		numbers[i] = id
	}
	s.rewrite(func(e *event) bool {
		e.endpoint = numbers[e.endpoint]
		return true
	})
}
