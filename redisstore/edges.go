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

// frameOf returns the word with which a stored state begins if its rate has the Window w; see window.lua. For the
// zero Window, it returns an empty text. The argument per is the length of the windows in microseconds; it is not
// used if w is a calendar.
func frameOf(w calendar.Window, per int64) string {
	switch w {
	case calendar.Window{}:
		return ""
	case calendar.First:
		return "first:" + strconv.FormatInt(per, 10)
	}
	return strings.ReplaceAll(w.String(), " ", "_")
}

// length returns an argument of a script. If the rate has no Window, the argument is the field unit of the plan, which
// for windows is their length. If the rate has a Window, the argument is the text that calendar.lua describes. For the
// windows of a calendar, this text is not complete yet. The method place adds the edges of these windows, which are the
// instants at which the windows begin and end.
func (p *cachedPlan) length() any {
	if p.frame == "" {
		return p.unit
	}
	return p.frame
}

// An edged is one ask of a call (a request for units of one key) that counts in the windows of a calendar. One argument
// of the call lists the edges of these windows: the instants at which they begin and end.
type edged struct {
	ask int // the number of the ask in its call; the first ask has the number 1
	arg int // the index of the argument in call.args
	*cachedPlan
}

// addEdges adds the argument with the index arg to the list edges if the item counts in the windows of a calendar.
// For any other item, it returns the list unchanged. The parameter ask is the number of the item in its call.
func addEdges(edges []edged, it *item, ask, arg int) []edged {
	if it.window.Calendar() == nil {
		return edges
	}
	return append(edges, edged{ask, arg, it.cachedPlan})
}

// maxEdge is the latest edge of a window that scripts get, in seconds since the Unix epoch. Scripts compute in
// microseconds, and a double, the number type of Lua, holds all of them exactly up to this edge.
const maxEdge = 9_000_000_000

// place writes edges of calendar windows into the arguments of the call. For each ask (a request for units of one
// key), it first chooses an instant: the value at[i] for the ask with the number i, or now if the map has no such
// number. Then it writes three times: the begin and the end of the window that contains this instant, and the end
// of the next window. The instants in now and at are in microseconds since the Unix epoch.
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

// inSeconds converts an edge of a window from nanoseconds to seconds since the Unix epoch. It returns at most
// maxEdge. Each edge is a whole second, except the smallest and the largest int64, which stand for edges that an
// int64 cannot hold.
func inSeconds(edge int64) int64 { return min(edge/int64(time.Second), maxEdge) }

// serverTime returns the time of the server in microseconds since the Unix epoch, as far as this process knows it.
func (c *conn) serverTime() int64 { return c.set.wall().UnixMicro() + c.ahead.Load() }

// replace is called after a call has ended. If the script has failed because the server's time, or the time of a
// state, is outside of the windows in the arguments of the call, replace writes the edges of other windows into the
// arguments, and returns true: the call must then be sent again. It also records in c.ahead how far the server's
// clock is ahead of this process's clock.
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

// wantedEdges reads the error with which a script asks for the edges of other windows; see calendar.lua. It returns
// the time of the server, and a map with an entry for each ask that needs other windows. The entry leads from the number
// of the ask to an instant, and the windows for the ask must contain this instant. The time and the instants are in
// microseconds since the Unix epoch. For any other error, the result ok is false.
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
