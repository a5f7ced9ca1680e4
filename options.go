package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// An Option says what surrounds a limiter, such as its clock, its store and its observer. It
// never says what the limit is; that is a [Rate]. An invalid Option is reported by the
// constructor that gets it, with an error that matches [ErrInvalidConfig].
type Option func(*settings)

// settings is what the Options of one constructor call say together.
type settings struct {
	clock           Clock // nil for the machine's monotonic clock
	maxKeys         int
	maxWaiters      int
	store           Store // nil for state in this process
	name            string
	policy          FailurePolicy // not the zero value once the defaults are filled in
	observer        Observer      // may be nil
	observeRequests bool
	factory         *Factory      // nil if there are no custom algorithms
	required        []string      // names of rules that must exist
	requestIDs      time.Duration // how long answers are kept; 0 if requests have no IDs
	solo            bool          // true for the RateLimiter in a solo

	problems []error
}

const (
	defaultMaxKeys    = 1 << 20
	defaultMaxWaiters = 1 << 16
)

// option returns the Option set. If the value of its field is wrong, it returns one that reports
// this instead.
func option(wrong bool, field string, value any, reason string, set Option) Option {
	if !wrong {
		return set
	}
	return func(s *settings) { s.problems = append(s.problems, &ConfigError{field, value, reason}) }
}

// WithClock makes a limiter read the time from c instead of the machine's monotonic clock.
// A test passes a [FakeClock]. A limiter with a [Store] decides by the store's clock.
func WithClock(c Clock) Option {
	return option(confmap.IsNil(c), "clock", c, "must not be nil", func(s *settings) { s.clock = c })
}

// WithMaxKeys makes a limiter keep the state of at most n keys, which bounds its memory; in a
// [RateLimiter], n is for each rule. n is at least 1, and without this option 1,048,576.
//
// To make room for a new key, a limiter forgets only keys whose state is as if they had
// never been used. While there is no such key, new keys share one budget between them, so
// that no key is ever granted more than its limit.
func WithMaxKeys(n int) Option {
	return option(n < 1, "maxKeys", n, "must be at least 1", func(s *settings) { s.maxKeys = n })
}

// WithMaxWaiters lets at most n callers of Wait wait in line at the same time; in a
// [RateLimiter], n is for all rules together. One more is refused at once, with
// [ErrTooManyWaiters]. n is at least 1, and without this option 65,536. A caller that only
// waits for the Delay of a [LeakyBucket] does not count.
//
// A caller that waits costs about 5.5 KB, nearly all of it for its goroutine: 65,536 of them
// take 360 MB.
func WithMaxWaiters(n int) Option {
	return option(n < 1, "maxWaiters", n, "must be at least 1", func(s *settings) { s.maxWaiters = n })
}

// WithStore makes a limiter keep its state in st, where other processes share it. The
// store's clock then decides. Without this option, the state is in this process. A limiter with
// a store needs [WithName] as well, so that two services on one store share nothing by
// accident. [WithFailurePolicy] says what happens while the store cannot be reached.
func WithStore(st Store) Option {
	return option(confmap.IsNil(st), "store", st, "must not be nil", func(s *settings) { s.store = st })
}

// WithName makes name a part of every key in the [Store]. Limiters with different names do
// not share state there. Limiters with the same name do, and so several processes share one
// limit. A rule of a [RateLimiter] has the name of the limiter, a colon and its own name there,
// see [Ask]. name must not be empty or contain a colon.
func WithName(name string) Option {
	wrong := name == "" || strings.Contains(name, ":")
	return option(wrong, "name", strconv.Quote(name), `must not be empty or have a ":"`, func(s *settings) { s.name = name })
}

// WithFailurePolicy makes a limiter answer by p while its [Store] cannot be reached. Without
// this option, it answers by [FailLocal](1). [Rule.OnStoreError] sets a policy for one rule.
func WithFailurePolicy(p FailurePolicy) Option {
	return func(s *settings) {
		if err := p.validate("failurePolicy"); err != nil {
			s.problems = append(s.problems, err)
			return
		}
		s.policy = p.or(s.policy)
	}
}

// WithObserver makes a limiter call o for every decision, see [Observer].
func WithObserver(o Observer) Option {
	return option(confmap.IsNil(o), "observer", o, "must not be nil", func(s *settings) { s.observer = o })
}

// WithObservedRequests makes a limiter show its [Observer] the request of each decision, in
// [Decision.Request]. Without this option, that field is empty, because the names and
// addresses of clients are often personal data.
func WithObservedRequests() Option {
	return func(s *settings) { s.observeRequests = true }
}

// WithFactory lets the configs of [NewFromConfig], [DecodeRules], [RateLimiter.Reload] and
// [RateLimiter.SetConfig] name the custom algorithms that are registered with f.
//
// The limiter also takes the options of f, such as its clock and its store, so that all rules
// run in what f was made for. An option that the limiter is given itself must not differ from
// that of f.
func WithFactory(f *Factory) Option {
	return option(f == nil, "factory", f, "must not be nil", func(s *settings) { s.factory = f })
}

// named returns the error for a limiter that has a store but no name, or nil.
func (s *settings) named() error {
	if s.store != nil && s.name == "" {
		return &ConfigError{"name", `""`, "must be set by WithName: it tells the limiters in a store apart"}
	}
	return nil
}

// WithRequiredRules names rules that must exist in a [RateLimiter], such as those that code
// names in [Request.Rules]. [New] without one of them is an error, and so is a change that would
// drop one, such as a Reload of a config that lacks it. The error matches [ErrInvalidConfig]
// and names the rule; nothing changes. The option has no effect on a limiter by itself.
func WithRequiredRules(names ...string) Option {
	return func(s *settings) { s.required = append(slices.Clip(s.required), names...) }
}

// requires returns an error that names the rules that must exist and are not in set.
func (s *settings) requires(set *ruleSet) error {
	var problems []error
	for _, name := range s.required {
		if set.named(name) == nil {
			problems = append(problems, &ConfigError{"rules[" + strconv.Quote(name) + "]", "missing", "must exist: WithRequiredRules names it"})
		}
	}
	return errors.Join(problems...)
}

// newSettings applies opts, and those of the Factory among them, to the defaults. The error
// is everything that is wrong with the options, joined.
func newSettings(opts []Option) (settings, error) {
	s := settings{}.with(opts)
	if s.factory != nil {
		own := s
		s = s.factory.settings()
		problems := slices.Concat(own.problems, atPath("factory", errors.Join(s.problems...)), s.conflicts(&own))
		s = s.with(opts)
		s.problems = problems
	}
	return s.withDefaults()
}

// with returns s after the opts have been applied.
func (s settings) with(opts []Option) settings {
	for i, opt := range opts {
		if opt == nil {
			s.problems = append(s.problems, &ConfigError{fmt.Sprintf("options[%d]", i), nil, "must not be nil"})
			continue
		}
		opt(&s)
	}
	return s
}

// withDefaults returns s with its defaults filled in, and everything that is wrong, joined.
func (s settings) withDefaults() (settings, error) {
	s.maxKeys = cmp.Or(s.maxKeys, defaultMaxKeys)
	s.maxWaiters = cmp.Or(s.maxWaiters, defaultMaxWaiters)
	s.policy = s.policy.or(FailLocal(1))
	return s, errors.Join(s.problems...)
}

// conflicts returns an error for each option of a Factory, in s, that a limiter was given
// another one of. own are the limiter's own options.
func (s *settings) conflicts(own *settings) (problems []error) {
	none := []any{nil, 0, "", FailurePolicy{}, time.Duration(0)}
	for _, option := range []struct {
		field string
		f, l  any // of the Factory and of the limiter
	}{
		{"clock", s.clock, own.clock},
		{"maxKeys", s.maxKeys, own.maxKeys},
		{"maxWaiters", s.maxWaiters, own.maxWaiters},
		{"store", s.store, own.store},
		{"name", s.name, own.name},
		{"failurePolicy", s.policy, own.policy},
		{"observer", s.observer, own.observer},
		{"requestIDs", s.requestIDs, own.requestIDs},
	} {
		if slices.Contains(none, option.f) || slices.Contains(none, option.l) || confmap.Same(option.f, option.l) {
			continue
		}
		problems = append(problems, &ConfigError{"factory." + option.field, shown(option.f), "must not differ from that of the limiter, which is " + shown(option.l)})
	}
	return problems
}

// shown returns the text that shows the value of an option in an error. Of a clock, a store
// or an observer, it is the type, because others may be changing the value.
func shown(v any) string {
	if p, ok := v.(FailurePolicy); ok {
		return p.String()
	}
	return confmap.Describe(v)
}
