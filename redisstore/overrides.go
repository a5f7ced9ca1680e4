package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// maxOverrides is the largest number of overrides that a limiter may have in the server.
const maxOverrides = 10_000

// maxInstant is the last microsecond after the Unix epoch that a double, the number type of Lua, holds exactly. An override
// that ends later is passed to the script as an override without an end, so the server never removes it.
const maxInstant = 1<<53 - 1

// overrideKeys returns the names of the four keys in the server that have the overrides of a limiter; see override.lua. No
// state has such a name: the text in braces begins with o here, but with c or k in the name of a state.
func (s *settings) overrideKeys(limiter string) []string {
	var b strings.Builder
	b.WriteString(s.prefix + ":{o")
	writeText(&b, limiter)
	b.WriteString("}:" + version + "o")
	list := b.String()
	return []string{list, list + ";v", list + ";l", list + ";u"}
}

// SetOverrides changes the list of overrides for the limiters with this name. All processes share this list; see
// [ratelimit.StoreOverrider]. SetOverrides fails with the same errors as [Store.Take]. If it returns an error of the
// server, it has made either all of the changes or none. The caller may then call SetOverrides again with the same
// overrides.
func (s *Store) SetOverrides(ctx context.Context, limiter string, o []ratelimit.Override) error {
	ctx, err := s.checkContext(ctx)
	if err != nil {
		return err
	}
	args := []any{s.env(), strconv.FormatUint(max(rand.Uint64(), 1), 10), maxOverrides}
	for i := range o {
		if args, err = appendOverride(args, fmt.Sprintf("overrides[%d].", i), o[i]); err != nil {
			return err
		}
	}
	if len(o) == 0 {
		return nil
	}
	reply, err := s.runAgain(ctx, overrideScript, s.overrideKeys(limiter), args)
	if err == nil && reply == int64(0) {
		err = &ratelimit.ConfigError{Field: "overrides", Value: len(o), Reason: fmt.Sprintf(
			"must make no list of more than %d overrides for limiter %q in the store", maxOverrides, limiter)}
	}
	return err
}

// OverridesSince returns what has changed in the list of overrides of the limiters with this name since the given
// version; see [ratelimit.StoreOverrider]. It fails with the same errors as [Store.Take].
func (s *Store) OverridesSince(
	ctx context.Context, limiter string, since ratelimit.OverrideVersion,
) (change ratelimit.OverrideChange, err error) {
	if ctx, err = s.checkContext(ctx); err != nil {
		return change, err
	}
	args := []any{s.env(), strconv.FormatUint(since.List, 10), strconv.FormatUint(since.Number, 10)}
	reply, err := s.runAgain(ctx, overridesScript, s.overrideKeys(limiter)[:3], args)
	if err != nil {
		return change, err
	}
	return readChange(reply)
}

// runAgain runs a script that does no harm if it runs twice. If the connection broke, runAgain runs the script once more.
func (s *Store) runAgain(ctx context.Context, script *script, keys []string, args []any) (any, error) {
	reply, err := s.conn.run(ctx, script, keys, args)
	var failed *Error
	if errors.As(err, &failed) && failed.Class == ClassConnection && ctx.Err() == nil {
		reply, err = s.conn.run(ctx, script, keys, args)
	}
	return reply, err
}

// readChange reads the reply of the script overrides.lua: what has changed in a list of overrides.
func readChange(reply any) (change ratelimit.OverrideChange, err error) {
	items, _ := reply.([]any)
	if len(items) != 7 {
		return change, newError(ClassOther, fmt.Errorf("the script replied %d items", len(items)))
	}
	r := reader{items: items}
	change.Now = time.Unix(r.number(), 1000*r.number())
	change.Version.List, err = strconv.ParseUint(r.text(), 10, 64)
	change.Version.Number = uint64(r.number())
	change.Whole = r.number() == 1
	if err = errors.Join(err, r.err); err != nil {
		return ratelimit.OverrideChange{}, newError(ClassOther, err)
	}
	set, _ := r.next().([]any)
	lifted, _ := r.next().([]any)
	for r.items = set; len(r.items) > 1 && err == nil; {
		var o ratelimit.Override
		o, err = overrideOf(r.text(), r.text())
		change.Set = append(change.Set, o)
	}
	for r.items = lifted; len(r.items) > 0 && err == nil; {
		var o ratelimit.Override
		o, err = whomOf(r.text())
		change.Lifted = append(change.Lifted, o)
	}
	if err != nil {
		return ratelimit.OverrideChange{}, newError(ClassCorrupt, err)
	}
	return change, nil
}

// effectLetters has, for each effect of an override, the letter by which the list in the server names it.
var effectLetters = map[string]string{ratelimit.EffectBlock: "b", ratelimit.EffectExempt: "e", ratelimit.EffectRate: "r"}

// appendOverride appends to args the arguments with which the script override.lua makes the change o. If o is invalid, the
// Field of the error is path, followed by the name of the invalid field.
func appendOverride(args []any, path string, o ratelimit.Override) ([]any, error) {
	whom := "c" + withLength(o.Client)
	switch {
	case (o.Client == "") == (o.IP == ""):
		return nil, &ratelimit.ConfigError{Field: path + "client", Value: o.Client, Reason: "must be set, or ip, and not both"}
	case o.IP != "":
		ip, ok := prefixOf(o.IP)
		if !ok {
			return nil, &ratelimit.ConfigError{Field: path + "ip", Value: o.IP, Reason: "must be an address or a prefix"}
		}
		whom = "i" + withLength(ip)
	}
	rules := slices.Clone(o.Rules)
	slices.Sort(rules)
	var names strings.Builder
	for _, name := range slices.Compact(rules) {
		names.WriteString(withLength(name))
	}
	letter, known := effectLetters[o.Effect]
	switch {
	case known:
		value, err := json.Marshal(valueOf(o))
		return append(args, "set", whom+letter+names.String(), value, endOf(o.Until)), err
	case o.Effect != "":
		return nil, &ratelimit.ConfigError{Field: path + "effect", Value: o.Effect, Reason: "must be block, exempt, rate or empty in a store"}
	case len(rules) == 0:
		return append(args, "lift", whom, "", ""), nil
	}
	for _, letter := range effectLetters {
		args = append(args, "drop", whom+letter+names.String(), "", "")
	}
	return args, nil
}

// withLength returns s with its length in bytes and a colon before it. Several such texts can be joined and taken apart again.
func withLength(s string) string { return strconv.Itoa(len(s)) + ":" + s }

// prefixOf returns the normal form of a text that is an address or a prefix: the same result for all texts that mean the
// same addresses. For any other text, the result ok is false.
func prefixOf(text string) (prefix string, ok bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap().WithZone("").String(), true
	}
	p, err := netip.ParsePrefix(text)
	if addr := p.Addr(); addr.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(addr.Unmap(), p.Bits()-96)
	}
	if p = p.Masked(); p.IsSingleIP() {
		return p.Addr().String(), err == nil
	}
	return p.String(), err == nil
}

// endOf returns when an override with this Until has ended, in microseconds since the Unix epoch. It returns "" for an
// override that does not end, or ends so late that a script cannot compute with the time.
func endOf(until time.Time) string {
	if until.IsZero() || until.Unix() >= maxInstant/1_000_000 {
		return ""
	}
	us := until.UnixMicro()
	if until.Nanosecond()%1000 > 0 {
		us++
	}
	return strconv.FormatInt(us, 10)
}

// An overrideValue has the fields of an override that the server stores in JSON. The other fields, which say which override
// it is (Client or IP, Effect and Rules), are in the name of the override. The note may have any bytes, so JSON has it in base64.
type overrideValue struct {
	Rate  *overrideRate `json:"rate,omitempty"`
	Until *[2]int64     `json:"until,omitempty"` // seconds and nanoseconds
	Note  []byte        `json:"note,omitempty"`
}

// An overrideRate is the [ratelimit.Rate] of an override, with names for JSON.
type overrideRate struct {
	Requests int           `json:"requests"`
	Per      time.Duration `json:"per"` // in nanoseconds
	Burst    int           `json:"burst,omitempty"`

	Window ratelimit.Window `json:"window,omitempty"`
}

func valueOf(o ratelimit.Override) (v overrideValue) {
	if o.Rate != (ratelimit.Rate{}) {
		v.Rate = &overrideRate{o.Rate.Requests, o.Rate.Per, o.Rate.Burst, o.Rate.Window}
	}
	if !o.Until.IsZero() {
		v.Until = &[2]int64{o.Until.Unix(), int64(o.Until.Nanosecond())}
	}
	v.Note = []byte(o.Note)
	return v
}

// overrideOf returns the override that is stored in a field of the server's list. The name of the field and its value,
// which is JSON, together describe the override.
func overrideOf(field, value string) (ratelimit.Override, error) {
	o, err := whomOf(field)
	if err != nil {
		return o, err
	}
	var v overrideValue
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		return o, fmt.Errorf("the value of the override %q: %w", field, err)
	}
	if v.Rate != nil {
		o.Rate = ratelimit.Rate{Requests: v.Rate.Requests, Per: v.Rate.Per, Burst: v.Rate.Burst, Window: v.Rate.Window}
	}
	if v.Until != nil {
		o.Until = time.Unix(v.Until[0], v.Until[1])
	}
	o.Note = string(v.Note)
	return o, nil
}

// whomOf reads the name of a field in the server's list of overrides. It returns an override with only the values
// that are in the name: its Client or IP, its Effect and its Rules.
func whomOf(field string) (o ratelimit.Override, err error) {
	fail := func() (ratelimit.Override, error) {
		return ratelimit.Override{}, fmt.Errorf("no override has the name %q", field)
	}
	if field == "" {
		return fail()
	}
	whom, rest, ok := cutText(field[1:])
	if !ok || rest == "" || whom == "" {
		return fail()
	}
	switch field[0] {
	case 'c':
		o.Client = whom
	case 'i':
		o.IP = whom
	default:
		return fail()
	}
	for effect, letter := range effectLetters {
		if rest[:1] == letter {
			o.Effect = effect
		}
	}
	if o.Effect == "" {
		return fail()
	}
	for rest = rest[1:]; rest != ""; {
		var rule string
		if rule, rest, ok = cutText(rest); !ok {
			return fail()
		}
		o.Rules = append(o.Rules, rule)
	}
	return o, nil
}

// cutText is the reverse of withLength: s begins with the length of a text, a colon and the text. cutText returns this text,
// and the rest of s.
func cutText(s string) (text, rest string, ok bool) {
	size, rest, ok := strings.Cut(s, ":")
	n, err := strconv.Atoi(size)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
