package httplimit

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Headers selects the header fields that tell clients their limits. The fields show at most 8 rules,
// beginning with the rule that has the fewest units left. Rules with KeyGlobal or KeyEndpoint are shown
// only if [Config.ShowShared] is set. With every value of Headers, a denial has a Retry-After, unless
// the request would be denied after any wait.
type Headers int

// The values of [Config.Headers]. If the rules count different units, such as requests and tokens, their numbers
// cannot be compared. Then the rule that gave the answer is shown first, and the others follow in the order of
// the rules.
const (
	// HeadersDraft11 sends two header fields. RateLimit-Policy has the limit of each rule. RateLimit has the
	// units that each rule has left, and a time in seconds: a client that spreads these units over this time
	// stays within the rate. In a denial, RateLimit has only the rules that denied. While the failure policy of
	// a rule decides, because a store or a custom limiter has failed, neither field shows the rule. Both fields
	// are defined by draft-ietf-httpapi-ratelimit-headers-11; a later version of the draft will get a value of
	// its own.
	HeadersDraft11 Headers = iota

	// HeadersDelta sends X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset of the rule with the fewest units left or, in a denial, of a
	// rule that denied. Reset is the number of seconds from now.
	HeadersDelta

	// HeadersEpoch sends the same fields as HeadersDelta, but Reset is a Unix time in
	// seconds, by the clock of this machine, as in the API of GitHub.
	HeadersEpoch

	// HeadersNone sends no field but Retry-After.
	HeadersNone
)

// The canonical names of the header fields.
const (
	fieldRateLimit = "Ratelimit"
	fieldPolicy    = "Ratelimit-Policy"
	fieldLimit     = "X-Ratelimit-Limit"
	fieldRemaining = "X-Ratelimit-Remaining"
	fieldReset     = "X-Ratelimit-Reset"
)

// ExposedHeaders returns the names of the header fields that a Middleware with these Headers sends. List
// them in Access-Control-Expose-Headers to let browsers show them to scripts of other origins.
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
	maxShown   = 8                   // the largest number of rules that the header fields show
	maxInteger = 999_999_999_999_999 // the largest integer that a structured header field may contain
)

// A shownRule contains what the header fields show of one rule. It has copies of fields of the Result,
// because a pointer to the Result would cause an allocation.
type shownRule struct {
	*policy
	*span

	Allowed                bool
	Limit, Remaining       int
	RetryAfter, ResetAfter time.Duration
}

// next returns a time after which the rule has more units left than now, if no request comes. If the rule denied,
// next returns RetryAfter. The result ok is false if the rule has all its units left, or if the time is not known.
func (s *shownRule) next() (d time.Duration, ok bool) {
	switch {
	case s.holds: // the rule limits how many requests run at once, and nobody knows when a running request ends
		return 0, false
	case !s.Allowed && s.RetryAfter != ratelimit.Never:
		return s.RetryAfter, true
	case s.Remaining >= s.Limit:
		return 0, false
	case s.unit > 0:
		return min(s.unit, s.ResetAfter), true
	}
	return s.ResetAfter, true
}

// effectiveWindow returns the time that RateLimit shows for a rule. A client that spreads its remaining units evenly over
// this time stays within the rate. At the end of the time, the rule has at least one more unit. The result ok is false if
// RateLimit shows no time, for example because the rule has all its units left.
func (s *shownRule) effectiveWindow() (d time.Duration, ok bool) {
	if d, ok = s.next(); ok && s.unit > 0 && s.Remaining < s.Limit {
		d = max(d, s.pace())
	}
	return d, ok
}

// pace returns how long the rule needs to give back as many units as are left now, rounded up to seconds. For
// example, with 5 units left of 10 in a minute, this takes 30 s. The rule must be a token bucket or a leaky
// bucket.
func (s *shownRule) pace() time.Duration {
	hi, lo := bits.Mul64(uint64(s.Remaining), uint64(s.window))
	if limit := uint64(s.Limit); hi < limit {
		quotient, rest := bits.Div64(hi, lo, limit)
		if rest > 0 {
			quotient++
		}
		if quotient <= uint64(maxSeconds) {
			return time.Duration(quotient) * time.Second
		}
	}
	return ratelimit.Never
}

// comesBefore reports whether the header fields show the rule of res before the rule in shown, because the rule of res
// has fewer units left. If the rules count different units, these numbers cannot be compared. Then the rule that gave
// the answer to the request comes first, and all others keep their order.
func (p *policies) comesBefore(res, answer *ratelimit.Result, shown *shownRule) bool {
	if p.units {
		return res.Rule == answer.Rule && shown.name != answer.Rule
	}
	return res.Remaining < shown.Remaining
}

// pick returns the rules that the header fields show, in the order that comesBefore defines. It stores
// the rules in the array that the caller has passed, so that it allocates nothing.
func (v *visit) pick(rules *policies, each []ratelimit.Result, memory *[maxShown]shownRule) []shownRule {
	shown := memory[:0]
	for i := range each {
		res := &each[i]
		if res.Limit < 0 || res.Degraded {
			continue
		}
		p := rules.of(res.Rule)
		if p == nil || p.hidden { // p is nil if the rules have changed since the decision
			continue
		}
		at := len(shown)
		for at > 0 && rules.comesBefore(res, &v.info.Result, &shown[at-1]) {
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

// mark sets the header fields that tell the client its limits. The slice each has the Results of the rules.
func (m *Middleware) mark(v *visit, rules *policies, each []ratelimit.Result) {
	if m.config.Jitter > 0 {
		v.info.late = rand.Float64() * m.config.Jitter
	}
	var memory [maxShown]shownRule
	shown := v.pick(rules, each, &memory)
	v.own = rules.again(&v.info.Request, each)
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

// draft11 sets RateLimit and RateLimit-Policy. If another Middleware has already set them, draft11
// adds lines to them.
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
		if d, ok := s.effectiveWindow(); ok {
			text = appendParameter(text, ";t=", seconds(v.info.later(d)))
		}
	}
	if len(shown) == 1 && shown[0].Limit == shown[0].limit && shown[0].calendar == "" {
		v.add(fieldRateLimit, string(text))
		v.add(fieldPolicy, shown[0].span.item)
		return
	}
	limits := len(text)
	for i := range shown {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = shown[i].appendPolicy(text, shown[i].policy, shown[i].Limit)
	}
	both := string(text) // one string for the values of both fields, so that only one is allocated
	v.add(fieldRateLimit, both[:limits])
	v.add(fieldPolicy, both[limits:])
}

// add sets a header field. If another Middleware is serving the same response, the field may already have
// lines. The new value then becomes one more line. A handler may call Allow many times for one response. In
// a call of Allow, when v.inside is true, add therefore drops the old items for the rules that the new value
// names.
func (v *visit) add(name, value string) {
	if value == "" {
		return
	}
	if v.follows {
		before := v.header[name]
		if v.inside {
			before = without(before, value)
		}
		if len(before) > 0 {
			v.header[name] = append(before, value)
			return
		}
	}
	v.set(name, value)
}

// The function without returns the given lines of a header field. It drops each item that has the same name as
// an item in the parameter value.
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

// split splits text at each separator that is outside of a quoted string, and trims the space around the
// parts.
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

// legacy sets the X-RateLimit fields. For a denial, the fields show the first rule that denied. For a grant,
// they show the rule with the fewest units left. There is one exception for a grant: if another Middleware
// has already set X-RateLimit-Remaining, and its number is not higher, the fields stay as they are.
func (v *visit) legacy(shown []shownRule, epoch bool) {
	for i := range shown {
		s := &shown[i]
		if !v.info.Result.Allowed && s.Allowed {
			continue
		}
		if v.follows && v.info.Result.Allowed {
			before, err := strconv.Atoi(v.header.Get(fieldRemaining))
			if err == nil && before <= s.Remaining {
				return
			}
		}
		reset, _ := s.next()
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

// violated returns the names of the rules in the slice shown that denied the request, as JSON strings with
// commas between them.
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

// appendParameter appends a parameter of a structured field to text, such as ";r=5" for the name ";r=".
func appendParameter(text []byte, name string, n int64) []byte {
	text = append(text, name...)
	return strconv.AppendInt(text, min(n, maxInteger), 10)
}

// decimal returns n in decimal digits. It returns maxInteger for a larger n.
func decimal(n int64) string { return strconv.FormatInt(min(n, maxInteger), 10) }

// seconds returns a duration in seconds, rounded up, because a client that waits less would be denied.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// later returns the wait that the client is told if it must wait for d. This is d, or a random time longer if
// Config.Jitter is set.
func (i *Info) later(d time.Duration) time.Duration {
	if i.late == 0 || d <= 0 {
		return d
	}
	return d + min(time.Duration(float64(d)*i.late), ratelimit.Never-d)
}

// itemOf returns the name of a rule as a quoted string of a structured field. Such a string contains only
// printable ASCII, so every other byte, and "%", becomes "%" and two hexadecimal digits.
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
