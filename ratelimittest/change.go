package ratelimittest

import (
	"fmt"
	"slices"
)

func resets(k *kit, t *trace) *breach {
	return k.rerun(t, func(i int) []call {
		c := t.calls[i]
		if c.verb == reset {
			return []call{c, c.look()}
		}
		return []call{c}
	}, func(i int, now []answer) string {
		switch {
		case t.calls[i].verb != reset:
			return ""
		case now[0].err != nil:
			return "Reset fails"
		case now[1].res.Remaining != now[1].res.Limit:
			return "a look after it: " + now[1].String()
		}
		return ""
	})
}

func sameRate(k *kit, t *trace) *breach {
	if !k.mayChange(t) {
		return nil
	}
	rate := t.rate
	return k.rerun(t, func(i int) []call {
		c := t.calls[i]
		again := call{at: c.at, verb: setRate, rate: rate}
		if t.changes(i) {
			rate = c.rate
		}
		return []call{again, c}
	}, k.unlike(t, "with the rate set to the same rate before each call"))
}

// mayChange reports whether the limiter has the method SetRate and the Config permits calls of it.
func (k *kit) mayChange(t *trace) bool {
	s, err := k.open(t.start, t.rate)
	if err != nil || k.KeepRate {
		return false
	}
	_, ok := s.limiter.(rateSetter)
	return ok
}

func rateChange(k *kit, t *trace) *breach {
	refused := func(i int) bool { return t.calls[i].verb == setRate && t.answers[i].err != nil }
	if b := k.without(t, refused); b != nil {
		return b
	}
	rate := t.rate
	return k.rerun(t, func(i int) []call {
		c := t.calls[i]
		if c.verb != setRate {
			return []call{c}
		}
		var looks []call
		for _, key := range keys {
			looks = append(looks, call{at: c.at, key: key})
		}
		return slices.Concat(looks, []call{c}, looks)
	}, func(i int, now []answer) string {
		c := t.calls[i]
		if c.verb != setRate {
			return ""
		}
		err := now[len(keys)].err
		switch valid := c.rate.Validate() == nil; {
		case valid && err != nil:
			return "SetRate refuses a valid rate"
		case !valid && err == nil:
			return "SetRate accepts an invalid rate"
		case !valid:
			return ""
		}
		from := rate
		rate = c.rate
		if rate.Per < from.Per {
			return "" // no breach: with a shorter Per, units granted long ago stop counting, so a key may gain units
		}
		return gains(now[:len(keys)], now[len(keys)+1:])
	})
}

// gains compares what each key had remaining before and after a change of the rate. It returns a
// text that names a key that has gained units, or "" if no key has.
func gains(before, after []answer) string {
	for i, key := range keys {
		was, is := before[i].res, after[i].res
		left := max(is.Limit-(was.Limit-was.Remaining), min(was.Remaining, is.Limit))
		if is.Limit >= 0 && was.Limit >= 0 && is.Remaining > left {
			return fmt.Sprintf("%q has %d of %d remaining before and %d of %d after", key, was.Remaining, was.Limit, is.Remaining, is.Limit)
		}
	}
	return ""
}
