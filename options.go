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

// An Option sets something that a limiter works with, such as its clock, its store or its observer. It never sets the
// limit, which is a [Rate]. A constructor that gets an invalid Option returns an error that matches [ErrInvalidConfig].
type Option func(*settings)

// settings holds the values that the Options of one constructor call have set.
type settings struct {
	clock           Clock // nil if the limiter reads the machine's monotonic clock
	maxKeys         int
	maxWaiters      int
	store           Store // nil if the state is in this process
	name            string
	policy          FailurePolicy // the zero value until the method withDefaults replaces it
	observer        Observer      // nil without WithObserver
	observeRequests bool
	factory         *Factory      // nil if there are no custom algorithms
	required        []string      // names of rules that must exist
	requestIDs      time.Duration // how long the answer to a request with an ID is kept; 0 without WithRequestIDs
	overrides       bool          // whether the overrides are in the store
	single          bool          // true for the RateLimiter inside another limiter, such as a TokenBucket with a store

	problems []error
}

const defaultMaxKeys, defaultMaxWaiters = 1 << 20, 1 << 16

// option returns its last parameter. But if wrong is true, it returns an Option that makes the constructor return an
// error. The error says that the field has this invalid value, and gives the reason.
func option(wrong bool, field string, value any, reason string, set Option) Option {
	if !wrong {
		return set
	}
	return func(s *settings) { s.problems = append(s.problems, &ConfigError{field, value, reason}) }
}

// WithClock makes a limiter read the time from the clock c instead of the machine's monotonic clock. A test passes a
// [FakeClock]. A limiter with a [Store] decides by the store's clock.
func WithClock(c Clock) Option {
	return option(confmap.IsNil(c), "clock", c, "must not be nil", func(s *settings) { s.clock = c })
}

// WithMaxKeys makes a limiter keep the state of at most n keys, which bounds its memory; in a [RateLimiter], n applies
// to each rule. n is at least 1. The default is 1,048,576.
//
// To make room for a new key, a limiter forgets only keys whose state is as if they had never been used. If there is no
// such key in the same part of the table, new keys of this part share one budget, so that no key is ever granted more
// than its limit. The parts do not fill evenly: let n be a tenth more than the number of clients that are active at once.
func WithMaxKeys(n int) Option {
	return option(n < 1, "maxKeys", n, "must be at least 1", func(s *settings) { s.maxKeys = n })
}

// WithMaxWaiters lets at most n callers of Wait wait in line at the same time; in a [RateLimiter], n applies to all
// rules together. Wait refuses any further caller at once, with [ErrTooManyWaiters]. n is at least 1. The default is
// 65,536. A caller that only waits for the Delay of a [LeakyBucket] does not count.
//
// A caller that waits takes 4 to 6 KB, most of it for its goroutine: 65,536 callers take up to 410 MB.
func WithMaxWaiters(n int) Option {
	return option(n < 1, "maxWaiters", n, "must be at least 1", func(s *settings) { s.maxWaiters = n })
}

// WithStore makes a limiter keep its state in the store st, which other processes may share, and decide by the store's
// clock. Without this option, the state is in this process. A limiter with a store also needs [WithName], so that two
// services on one store share nothing by accident. [WithFailurePolicy] says how to answer while the store cannot be reached.
func WithStore(st Store) Option {
	return option(confmap.IsNil(st), "store", st, "must not be nil", func(s *settings) { s.store = st })
}

// WithName makes name a part of every key in the [Store]. Limiters with the same name share their state there, so that
// several processes share one limit. Limiters with different names share nothing. In the store, a rule of a
// [RateLimiter] has the name of the limiter, a colon and its own name, see [Ask]. name is not empty and has no colon.
func WithName(name string) Option {
	wrong := name == "" || strings.Contains(name, ":")
	return option(wrong, "name", strconv.Quote(name), `must not be empty or have a ":"`, func(s *settings) { s.name = name })
}

// WithFailurePolicy makes a limiter answer by the policy p while its [Store] cannot be reached. The default is
// [FailLocal](1). [Rule.OnStoreError] sets a policy for one rule.
func WithFailurePolicy(p FailurePolicy) Option {
	problem := p.is.Problem()
	return option(problem != "", "failurePolicy", p, problem, func(s *settings) { s.policy = cmp.Or(p, s.policy) })
}

// WithObserver makes a limiter call the [Observer] o for every decision.
func WithObserver(o Observer) Option {
	return option(confmap.IsNil(o), "observer", o, "must not be nil", func(s *settings) { s.observer = o })
}

// WithObservedRequests makes a limiter show its [Observer] the request of each decision, in [Decision.Request]. Without
// this option, that field is empty, because the names and addresses of clients are often personal data.
func WithObservedRequests() Option { return func(s *settings) { s.observeRequests = true } }

// WithFactory lets configs name the custom algorithms that are registered with the Factory f: the configs of
// [NewFromConfig], [DecodeRules], [RateLimiter.Reload] and [RateLimiter.SetConfig].
//
// The limiter also has the options of f, such as its clock and its store, so that all its rules share them. If an
// option is given to the limiter and to f, its value must be the same in both.
func WithFactory(f *Factory) Option {
	return option(f == nil, "factory", f, "must not be nil", func(s *settings) { s.factory = f })
}

// WithOverrides makes a limiter keep its [Override] list in the [Store], for all limiters with the same name there, and
// obey that list. Each process that decides requests reads the list once a second, in the background, and then obeys its changes.
// If the Store cannot be reached, the last copy of the list holds. The option has no effect outside a [RateLimiter].
func WithOverrides() Option { return func(s *settings) { s.overrides = true } }

// named returns an error if the limiter has a store but no name, and nil otherwise.
func (s *settings) named() error {
	if s.store != nil && s.name == "" {
		return &ConfigError{"name", `""`, "must be set by WithName: it tells the limiters in a store apart"}
	}
	return nil
}

// WithRequiredRules names rules that a [RateLimiter] must have, such as those that code names in [Request.Rules]. If one is missing, [New]
// returns an error. A change that would remove such a rule, for example a Reload of a config without it, changes nothing and returns an
// error. The error names the rule and matches [ErrInvalidConfig]. The option has no effect on a limiter that is not a RateLimiter.
func WithRequiredRules(names ...string) Option {
	return func(s *settings) { s.required = append(slices.Clip(s.required), names...) }
}

// newSettings returns the settings that the options opts make. If one of them is WithFactory, the options of the
// Factory apply too. The error joins everything that is wrong with the options.
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

// with returns a copy of the settings s with the options opts applied.
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

// withDefaults returns a copy of the settings s with defaults filled in. The error joins all problems of the options.
func (s settings) withDefaults() (settings, error) {
	s.maxKeys = cmp.Or(s.maxKeys, defaultMaxKeys)
	s.maxWaiters = cmp.Or(s.maxWaiters, defaultMaxWaiters)
	s.policy = cmp.Or(s.policy, FailLocal(1))
	return s, errors.Join(s.problems...)
}

// conflicts returns an error for each option that a Factory and its limiter set to different values. s holds the
// options of the Factory, and own holds the options of the limiter.
func (s *settings) conflicts(own *settings) (problems []error) {
	none := []any{nil, 0, "", FailurePolicy{}, time.Duration(0)}
	for _, option := range []struct {
		field string
		f, l  any // the value in the Factory (f), and the value in the limiter (l)
	}{
		{"clock", s.clock, own.clock}, {"maxKeys", s.maxKeys, own.maxKeys}, {"maxWaiters", s.maxWaiters, own.maxWaiters},
		{"store", s.store, own.store}, {"name", s.name, own.name}, {"failurePolicy", s.policy, own.policy},
		{"observer", s.observer, own.observer}, {"requestIDs", s.requestIDs, own.requestIDs},
	} {
		if slices.Contains(none, option.f) || slices.Contains(none, option.l) || confmap.Same(option.f, option.l) {
			continue
		}
		reason := "must not differ from that of the limiter, which is " + describe(option.l)
		problems = append(problems, &ConfigError{"factory." + option.field, describe(option.f), reason})
	}
	return problems
}

// describe returns the text for the value of an option in an error. For a clock, a store or an observer, the text is
// the type, because other code may be changing the value.
func describe(v any) string {
	if p, ok := v.(FailurePolicy); ok {
		return p.String()
	}
	return confmap.Describe(v)
}

// An Env holds values that a [BuildFunc] gets in addition to the limiter's algoConfig. They come from the options of
// the [Factory] and, if the limiter belongs to a rule, from the options of the [RateLimiter].
type Env struct {
	// Clock is the clock that the limiter must read. It is never nil.
	Clock Clock

	// MaxKeys is the largest number of keys that the limiter may keep state for, see [WithMaxKeys].
	MaxKeys int
}

// env returns the Env that custom limiters get from these settings.
func (s *settings) env() Env { return Env{cmp.Or[Clock](s.clock, machineClock{}), s.maxKeys} }

// A machineClock is a Clock that reads the machine's clock.
type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }
