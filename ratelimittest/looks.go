package ratelimittest

// look returns a call of Take for 0 units, with the same key and instant as the call c.
func (c call) look() call { return call{at: c.at, verb: take, key: c.key} }

// probe plays the schedule again with a look (a Take of 0 units) before each call. It stores the
// answers to the looks in the field t.looks, and the answers to the calls in the field t.looked.
func (k *kit) probe(t *trace) {
	if t.looks != nil {
		return
	}
	t.looks = make([]answer, len(t.calls))
	t.looked = make([]answer, len(t.calls))
	k.rerun(t, func(i int) []call { return []call{t.calls[i].look(), t.calls[i]} },
		func(i int, now []answer) string {
			t.looks[i], t.looked[i] = now[0], now[1]
			return ""
		})
}

func lookIsFree(k *kit, t *trace) *breach {
	k.probe(t)
	unlike := k.unlike(t, "with a look before each call")
	for i := range t.calls {
		if text := unlike(i, t.looked[i:i+1]); text != "" {
			return &breach{i, text}
		}
	}
	return k.without(t, func(i int) bool { return t.calls[i].asks() && t.calls[i].looks() })
}

func lookAgrees(k *kit, t *trace) *breach {
	k.probe(t)
	for i, c := range t.calls {
		look := t.looks[i].res
		if !t.limited(i) || t.looks[i].err != nil {
			continue
		}
		if look.Allowed != (look.Remaining > 0) || t.looked[i].res.Allowed != (c.units() <= look.Remaining) {
			return breachf(i, "a look just before: %v", t.looks[i])
		}
	}
	return nil
}

func exactUse(k *kit, t *trace) *breach {
	k.probe(t)
	for i, c := range t.calls {
		if !t.limited(i) {
			continue
		}
		used := 0
		if t.admits(i) {
			used = c.units()
		}
		if before := t.looks[i].res.Remaining; t.looked[i].res.Remaining != before-used {
			return breachf(i, "a look just before finds %d remaining", before)
		}
	}
	return nil
}

func monotone(k *kit, t *trace) *breach {
	k.probe(t)
	before := make(map[string]int) // the index of each key's last call, if no units were taken since
	for i, c := range t.calls {
		if c.verb == setRate {
			clear(before)
			continue
		}
		if j, ok := before[c.key]; ok && t.limited(i) && t.moments[i].known {
			was, is := t.looks[j].res.Remaining, t.looks[i].res.Remaining
			past, now := t.moments[j].at, t.moments[i].at
			if now >= past && is < was || now <= past && is > was {
				return breachf(i, "%d remain at %v, and %d remained at %v (step %d), with nothing granted between", is, now, was, past, j)
			}
		}
		if c.verb == reset || t.admits(i) {
			delete(before, c.key)
		} else if t.limited(i) && t.moments[i].known {
			before[c.key] = i
		}
	}
	return nil
}
