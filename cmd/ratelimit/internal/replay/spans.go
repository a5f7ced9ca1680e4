package replay

import (
	"maps"
	"slices"
	"time"
)

// A Span counts the requests in a span of time.
type Span struct {
	Start    time.Time `json:"start"`    // time at which the span begins
	Requests uint64    `json:"requests"` // number of requests
	Denied   uint64    `json:"denied"`   // how many of the requests were denied
}

// The variable widths has the lengths that spans of time may have, the shortest first. Each length is a multiple
// of the length before it. There are also longer spans: 2, 4, 8 and so on times the last length.
var widths = []time.Duration{
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour,
}

func widthAt(i int) time.Duration {
	if last := len(widths) - 1; i > last {
		return widths[last] << (i - last)
	}
	return widths[i]
}

// maxSpans is the largest number of spans of time. If there would be more spans, all of them are made longer
// instead.
const maxSpans = 2048

// The type spans counts requests by time. Its zero value is ready for use.
type spans struct {
	width int // says how long each span is: widthAt(width)
	at    map[int64]*Span
	last  *Span // span of time of the previous request
	ends  int64 // end of the span s.last, in nanoseconds since the Unix epoch
	begin int64
}

// The method span returns the Span to which a time belongs. The parameter ns is this time, in nanoseconds since
// the Unix epoch.
func (s *spans) span(ns int64) *Span {
	if s.last != nil && s.begin <= ns && ns < s.ends {
		return s.last
	}
	if s.at == nil {
		s.at = make(map[int64]*Span)
	}
	if len(s.at) >= maxSpans {
		*s = *s.wider(s.width + 1)
	}
	w := int64(widthAt(s.width))
	i := ns / w
	if s.at[i] == nil {
		s.at[i] = &Span{Start: time.Unix(0, i*w).UTC()}
	}
	s.last, s.begin, s.ends = s.at[i], i*w, (i+1)*w
	return s.last
}

// wider returns a copy with longer spans of time. Each new span has the sum of the counts of the spans that it replaces. The
// length of each new span is widthAt(width).
func (s *spans) wider(width int) *spans {
	out := &spans{width: width, at: make(map[int64]*Span)}
	for _, i := range slices.Sorted(maps.Keys(s.at)) {
		from := s.at[i]
		to := out.span(from.Start.UnixNano())
		to.Requests += from.Requests
		to.Denied += from.Denied
	}
	return out
}

// The method within returns at most n spans of time, in order, and the length of each span. If there are more than n spans,
// it first joins spans into longer ones.
func (s *spans) within(n int) (list []Span, width time.Duration) {
	for len(s.at) > n {
		s = s.wider(s.width + 1)
	}
	for _, i := range slices.Sorted(maps.Keys(s.at)) {
		list = append(list, *s.at[i])
	}
	return list, widthAt(s.width)
}
