package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/redis/go-redis/v9"
)

// frameOf returns the first word of the states that are stored with this Window, see window.lua. It is empty for the zero
// Window. The argument per is the length of the windows in microseconds.
func frameOf(w calendar.Window, per int64) string {
	switch w {
	case calendar.Window{}:
		return ""
	case calendar.First:
		return "first:" + strconv.FormatInt(per, 10)
	}
	return strings.ReplaceAll(w.String(), " ", "_")
}

// length returns the argument of a script that says how long the windows of the plan are. For a plan with a Window, it is
// the text that calendar.lua describes. For a calendar, the method place adds the edges.
func (p *cachedPlan) length() any {
	if p.frame == "" {
		return p.unit
	}
	return p.frame
}

// An edged is an argument of a call that has the edges of the windows of an ask.
type edged struct {
	ask int // the number of the ask among those of the call, from 1
	arg int // the index of the argument
	*cachedPlan
}

// addEdges appends to the list edges the argument with this index, if the item needs edges. ask is the number of the
// item in its call.
func addEdges(edges []edged, it *item, ask, arg int) []edged {
	if it.window.Calendar() == nil {
		return edges
	}
	return append(edges, edged{ask, arg, it.cachedPlan})
}

// maxEdge is the last second that a script can compute with.
const maxEdge = 9_000_000_000

// place sets the edges in the arguments of the call: those of the window that contains an instant and of the next one.
// The instant is now or, for the asks in at, another one; both are microseconds since the Unix epoch.
func (c *call) place(now int64, at map[int]int64) {
	for _, e := range c.edges {
		t, ok := at[e.ask]
		if !ok {
			t = now
		}
		calendar := e.window.Calendar()
		begin, ends := calendar.Edges(time.UnixMicro(t).UnixNano())
		_, next := calendar.Edges(ends)
		c.args[e.arg] = fmt.Sprintf("%s %d %d %d", e.frame, inSeconds(begin), inSeconds(ends), inSeconds(next))
	}
}

// inSeconds returns an edge, in nanoseconds since the Unix epoch, in seconds. Edges are whole seconds, except those at the
// ends of what an int64 holds.
func inSeconds(edge int64) int64 { return min(edge/int64(time.Second), maxEdge) }

// serverTime returns the time of the server in microseconds since the Unix epoch, as far as this process knows it.
func (c *conn) serverTime() int64 { return c.set.wall().UnixMicro() + c.ahead.Load() }

// replace sets the edges in the arguments of the call once more, if its script has answered that the server's time, or
// that of a state, is outside of them. It then returns true, and the call is to be sent again. The conn remembers the
// difference of the clocks.
func (c *conn) replace(call *call) bool {
	if len(call.edges) == 0 || call.err == nil {
		return false
	}
	now, at, ok := wantedEdges(call.err)
	if ok {
		c.ahead.Store(now - c.set.wall().UnixMicro())
		call.place(now, at)
	}
	return ok
}

// wantedEdges reads the error with which a script asks for other edges; see calendar.lua. It returns the time of the
// server, and for the asks by their numbers the instants that their edges must surround.
func wantedEdges(err error) (now int64, at map[int]int64, ok bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || strings.Contains(reply.Error(), "CORRUPT ") {
		return 0, nil, false
	}
	_, text, _ := strings.Cut(reply.Error(), "EDGES ")
	text, _, _ = strings.Cut(text, ";")
	var numbers []int64
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, nil, false
		}
		numbers = append(numbers, n)
	}
	if len(numbers) < 3 || len(numbers)%2 == 0 {
		return 0, nil, false
	}
	at = make(map[int]int64)
	for i := 1; i < len(numbers); i += 2 {
		at[int(numbers[i])] = numbers[i+1]
	}
	return numbers[0], at, true
}
