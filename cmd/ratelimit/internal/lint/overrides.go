package lint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Overrides returns the findings in the overrides of a file, in the order of the overrides. If an override has ended before the
// given time, it gets one finding that says this, and no other. The names of the rules in the file are in the parameter names.
// In each Finding, the field Rule is the index of an override, not of a rule.
func Overrides(all []ratelimit.Override, names []string, now time.Time) (found []Finding) {
	add := func(i int, code, field, advice, format string, args ...any) {
		at := slices.IndexFunc(Codes(), func(known Code) bool { return known.Code == code })
		found = append(found, Finding{code, Codes()[at].Severity, i, field, fmt.Sprintf(format, args...), advice})
	}
	byWhom := make(map[string][]int)
	for i := range all {
		byWhom[whom(&all[i])] = append(byWhom[whom(&all[i])], i)
	}
	for i := range all {
		o := &all[i]
		if ended(o, now) {
			add(i, "RL016", "until", "remove it", "the %s of %s has ended, and is left out", noun(o), whom(o))
			continue
		}
		if prefix, err := netip.ParsePrefix(o.IP); err == nil && prefix.Bits() == 0 && o.Effect != ratelimit.EffectRate {
			add(i, "RL014", "ip", "give a longer prefix, or change the rules", "the %s of %s is for everybody", noun(o), o.IP)
		}
		if o.Effect == ratelimit.EffectExempt && o.Until.IsZero() {
			add(i, "RL013", "effect", `say by "until" when it ends, if it does`, "the exemption of %s has no end", whom(o))
		}
		same := slices.DeleteFunc(slices.Clone(byWhom[whom(o)]), func(j int) bool { return j == i || ended(&all[j], now) })
		if by := decidedBy(all, same, i, names); by >= 0 {
			add(i, "RL015", "effect", "remove one of the two", "the %s of %s never applies: overrides[%d] decides in its place",
				noun(o), whom(o), by)
		}
	}
	return found
}

// The function whom returns a text that says for whom the override o is, such as the client "alice" or the address 10.0.0.1.
func whom(o *ratelimit.Override) string {
	if o.IP == "" {
		return fmt.Sprintf("the client %q", o.Client)
	}
	if prefix, err := netip.ParsePrefix(o.IP); err == nil && !prefix.IsSingleIP() {
		return prefix.String()
	} else if err == nil {
		return prefix.Addr().Unmap().String()
	}
	if addr, err := netip.ParseAddr(o.IP); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	return o.IP
}

// noun returns the effect of the override o as a noun, such as "exemption" or "block".
func noun(o *ratelimit.Override) string {
	if o.Effect == ratelimit.EffectExempt {
		return "exemption"
	}
	return o.Effect
}

func ended(o *ratelimit.Override, now time.Time) bool {
	return !o.Until.IsZero() && !now.Before(o.Until)
}

// outlasts reports whether the override a lasts at least as long as the override b. If the field Until of an override is zero,
// the override never ends.
func outlasts(a, b *ratelimit.Override) bool {
	return a.Until.IsZero() || !b.Until.IsZero() && !a.Until.Before(b.Until)
}

// decidedBy reports whether the override with the index i never applies, because other overrides decide in its place. If so, it
// returns the index of such an override. If there is a rule for which the override i applies, it returns -1. The indexes of the
// other overrides for the same client or prefix are in the parameter same. The names of all rules are in the parameter names.
func decidedBy(all []ratelimit.Override, same []int, i int, names []string) (by int) {
	o := &all[i]
	for _, j := range same {
		if j > i && all[j].Effect == o.Effect && slices.Equal(sorted(all[j].Rules), sorted(o.Rules)) {
			return j // the later of two equal overrides replaces the earlier one when the file is read
		}
	}
	rules := o.Rules
	if len(rules) == 0 {
		if rules = names; o.Effect == ratelimit.EffectBlock {
			return -1 // such a block also denies requests to which no rule applies, and no other override decides on these requests
		}
	}
	by = -1
	for _, rule := range rules {
		first := slices.IndexFunc(same, func(j int) bool { return before(&all[j], o, rule) })
		if first < 0 {
			return -1
		}
		by = same[first]
	}
	return by
}

// before compares two overrides for the same client or address, on requests to which the given rule applies. It reports whether
// the override a decides on these requests in place of the override b, until b ends.
func before(a, b *ratelimit.Override, rule string) bool {
	rank := func(o *ratelimit.Override) int {
		return slices.Index([]string{ratelimit.EffectBlock, ratelimit.EffectExempt, ratelimit.EffectRate}, o.Effect)
	}
	switch {
	case !outlasts(a, b) || len(a.Rules) > 0 && !slices.Contains(a.Rules, rule):
		return false
	case (len(a.Rules) > 0) != (len(b.Rules) > 0):
		return len(a.Rules) > 0
	}
	return cmp.Less(rank(a), rank(b))
}

func sorted(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
