package replay

import (
	"maps"
	"slices"
	"time"
)

// A Span is what happened in a part of the time.
type Span struct {
	Start    time.Time `json:"start"`    // when it begins
	Requests uint64    `json:"requests"` // requests in it
	Denied   uint64    `json:"denied"`   // those that were denied
}

// widths are the lengths that spans may have. Each is a multiple of the one before. After the last
// come its multiples by powers of two.
var widths = []time.Duration{time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour}

func widthAt(i int) time.Duration {
	if last := len(widths) - 1; i > last {
		return widths[last] << (i - last)
	}
	return widths[i]
}

// maxSpans is how many spans are kept. If there are more, they become wider.
const maxSpans = 2048

// spans counts by the time. The zero value is ready for use.
type spans struct {
	width int // an index for widthAt
	at    map[int64]*Span
	last  *Span // of the request before
	ends  int64 // when it ends
	begin int64
}

// span returns the span of a time in nanoseconds since the Unix epoch.
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

// wider returns the same in wider spans.
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

// Within returns the spans in order, at most n of them, and how long each is.
func (s *spans) within(n int) (list []Span, width time.Duration) {
	for len(s.at) > n {
		s = s.wider(s.width + 1)
	}
	for _, i := range slices.Sorted(maps.Keys(s.at)) {
		list = append(list, *s.at[i])
	}
	return list, widthAt(s.width)
}
