package httplimit

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Headers says which header fields tell clients of their limits. Only the client's own rules
// are shown, unless [Config.ShowShared] is set, and at most 8, first those with the fewest
// units left. A denial has Retry-After in any case, unless no wait is long enough.
type Headers int

// The values of [Config.Headers].
const (
	// HeadersDraft11 are RateLimit-Policy, with all rules, and RateLimit, with
	// what each has left, or in a denial only with the rules that denied. They
	// are those of draft-ietf-httpapi-ratelimit-headers-11.
	HeadersDraft11 Headers = iota

	// HeadersDelta are X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset of one rule. Reset is in seconds from now.
	HeadersDelta

	// HeadersEpoch are the same, but Reset is in seconds since 1970 by the
	// clock of this machine, as GitHub has it.
	HeadersEpoch

	// HeadersNone are none but Retry-After.
	HeadersNone
)

// The names of the header fields as a Header has them.
const (
	fieldRateLimit = "Ratelimit"
	fieldPolicy    = "Ratelimit-Policy"
	fieldLimit     = "X-Ratelimit-Limit"
	fieldRemaining = "X-Ratelimit-Remaining"
	fieldReset     = "X-Ratelimit-Reset"
)

// ExposedHeaders returns the names of the header fields that a browser must be told to show to
// scripts of other origins, in Access-Control-Expose-Headers.
func ExposedHeaders(h Headers) []string {
	switch h {
	case HeadersDraft11:
		return []string{"RateLimit", "RateLimit-Policy", "Retry-After"}
	case HeadersDelta, HeadersEpoch:
		return []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"}
	}
	return []string{"Retry-After"}
}

const (
	maxShown   = 8                   // rules in the header fields
	maxInteger = 999_999_999_999_999 // of a structured field
)

// A shownRule is a rule in the header fields. It has a copy of what is shown of its Result: a pointer
// to it would take an allocation.
type shownRule struct {
	*policy
	*span

	Allowed                bool
	Limit, Remaining       int
	RetryAfter, ResetAfter time.Duration
}

// reset returns after how long at the latest there are more units than Remaining. ok is false
// if there can be no more.
func (s *shownRule) reset() (d time.Duration, ok bool) {
	switch {
	case !s.Allowed && s.RetryAfter != ratelimit.Never:
		return s.RetryAfter, true
	case s.Remaining >= s.Limit:
		return 0, false
	case s.unit > 0:
		return min(s.unit, s.ResetAfter), true
	}
	return s.ResetAfter, true
}

// pick returns the rules of v that are shown. Those with the fewest units left come first.
func (v *visit) pick(rules *policies, each []ratelimit.Result, memory *[maxShown]shownRule) []shownRule {
	shown := memory[:0]
	for i := range each {
		res := &each[i]
		if res.Limit < 0 || res.Degraded {
			continue
		}
		p := rules.of(res.Rule)
		if p == nil || p.hidden { // nil: the rule was added after the decision, or removed
			continue
		}
		at := len(shown)
		for at > 0 && res.Remaining < shown[at-1].Remaining {
			at--
		}
		if at == maxShown {
			continue
		}
		if len(shown) < maxShown {
			shown = shown[:len(shown)+1]
		}
		copy(shown[at+1:], shown[at:])
		shown[at] = shownRule{p, p.span(v.info.Request.Tier), res.Allowed, res.Limit, res.Remaining, res.RetryAfter, res.ResetAfter}
	}
	return shown
}

// mark tells the client of its limits in the header of the response. each are the answers of the
// rules.
func (m *Middleware) mark(v *visit, rules *policies, each []ratelimit.Result) {
	var memory [maxShown]shownRule
	shown := v.pick(rules, each, &memory)
	if !v.info.Result.Allowed {
		names := violated(shown)
		v.info.violated = &names
	}
	switch m.config.Headers {
	case HeadersDraft11:
		v.draft11(shown)
	case HeadersDelta, HeadersEpoch:
		v.legacy(shown, m.config.Headers == HeadersEpoch)
	case HeadersNone:
	}
}

// draft11 writes RateLimit and RateLimit-Policy. If another Middleware has written them to the
// same header, it appends lines to them.
func (v *visit) draft11(shown []shownRule) {
	var memory [512]byte
	text := memory[:0]
	for i := range shown {
		s := &shown[i]
		if !v.info.Result.Allowed && s.Allowed {
			continue
		}
		if len(text) > 0 {
			text = append(text, ", "...)
		}
		text = append(text, s.policy.item...)
		text = appendParameter(text, ";r=", int64(s.Remaining))
		if d, ok := s.reset(); ok {
			text = appendParameter(text, ";t=", seconds(d))
		}
	}
	if len(shown) == 1 && shown[0].Limit == shown[0].limit {
		v.add(fieldRateLimit, string(text))
		v.add(fieldPolicy, shown[0].span.item)
		return
	}
	limits := len(text)
	for i := range shown {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = shown[i].appendPolicy(text, shown[i].policy.item, shown[i].Limit)
	}
	both := string(text) // one allocation for both
	v.add(fieldRateLimit, both[:limits])
	v.add(fieldPolicy, both[limits:])
}

// add sets a field, or adds a line to it if another Middleware has written it. Allow may be called
// many times for one response: what was said before of the same rules is removed then.
func (v *visit) add(name, value string) {
	if value == "" {
		return
	}
	if v.follows() {
		before := v.header[name]
		if v.inside() {
			before = without(before, value)
		}
		if len(before) > 0 {
			v.header[name] = append(before, value)
			return
		}
	}
	v.set(name, value)
}

// without returns lines without the items that have the name of an item in value.
func without(lines []string, value string) (kept []string) {
	names := make(map[string]bool)
	for _, item := range split(value, ',') {
		names[split(item, ';')[0]] = true
	}
	for _, line := range lines {
		items := slices.DeleteFunc(split(line, ','), func(item string) bool { return names[split(item, ';')[0]] })
		if len(items) > 0 {
			kept = append(kept, strings.Join(items, ", "))
		}
	}
	return kept
}

// split returns the parts of text between separators that are not in a string, without the space
// around them.
func split(text string, separator byte) (parts []string) {
	from, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == separator && !quoted:
			parts = append(parts, strings.Trim(text[from:i], " \t"))
			from = i + 1
		}
	}
	return append(parts, strings.Trim(text[from:], " \t"))
}

// legacy writes the X-RateLimit fields of the rule that has the fewest units left, or in a
// denial of the first that denied.
func (v *visit) legacy(shown []shownRule, epoch bool) {
	for i := range shown {
		s := &shown[i]
		if !v.info.Result.Allowed && s.Allowed {
			continue
		}
		if v.follows() && v.info.Result.Allowed {
			before, err := strconv.Atoi(v.header.Get(fieldRemaining))
			if err == nil && before <= s.Remaining {
				return
			}
		}
		reset, _ := s.reset()
		after := seconds(reset)
		if epoch {
			now := time.Now()
			after = now.Unix() + seconds(min(reset, ratelimit.Never-time.Second)+time.Duration(now.Nanosecond()))
		}
		v.set(fieldLimit, decimal(int64(s.Limit)))
		v.set(fieldRemaining, decimal(int64(s.Remaining)))
		v.set(fieldReset, decimal(after))
		return
	}
}

// violated returns the names of the rules that have denied, as the elements of a JSON array.
func violated(shown []shownRule) string {
	var b strings.Builder
	for i := range shown {
		if shown[i].Allowed {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(shown[i].json)
	}
	return b.String()
}

// appendParameter appends a parameter of an item to text.
func appendParameter(text []byte, name string, n int64) []byte {
	text = append(text, name...)
	return strconv.AppendInt(text, min(n, maxInteger), 10)
}

// decimal returns the text of n in a header field.
func decimal(n int64) string { return strconv.FormatInt(min(n, maxInteger), 10) }

// seconds returns d in seconds, rounded up: rounded down, a client would come too early.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// itemOf returns name as a string of a structured field, which has printable ASCII only. All
// other bytes, and "%", are written as "%" and two digits.
func itemOf(name string) string {
	const digits = "0123456789ABCDEF"
	text := []byte{'"'}
	for i := range len(name) {
		switch c := name[i]; {
		case c < ' ' || c > '~' || c == '%':
			text = append(text, '%', digits[c>>4], digits[c&15])
		case c == '"' || c == '\\':
			text = append(text, '\\', c)
		default:
			text = append(text, c)
		}
	}
	return string(append(text, '"'))
}
