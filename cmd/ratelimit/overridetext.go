package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An overrideJSON is an override, such as the block of a client, as commands print it with the flag -json.
type overrideJSON struct {
	Client string        `json:"client,omitempty"`
	IP     string        `json:"ip,omitempty"`
	Effect string        `json:"effect"`
	Rules  []string      `json:"rules"` // empty for all rules
	Rate   string        `json:"rate,omitempty"`
	Until  *time.Time    `json:"until"`  // null if the override has no end
	Rest   time.Duration `json:"restNs"` // nanoseconds from now to Until; 0 if the override has no end
	Note   string        `json:"note"`
}

func jsonOf(now time.Time, o ratelimit.Override) overrideJSON {
	j := overrideJSON{Client: o.Client, IP: o.IP, Effect: o.Effect, Rules: append([]string{}, o.Rules...), Note: o.Note}
	if o.Effect == ratelimit.EffectRate {
		j.Rate = o.Rate.String()
	}
	if !o.Until.IsZero() {
		until := o.Until.UTC()
		j.Until, j.Rest = &until, until.Sub(now)
	}
	return j
}

// pasted returns the name that a user means by a text. The user may have copied the text from the output of another command,
// which prints the unprintable characters of a name as escapes, or from a log, which also puts the name in quotation marks.
func pasted(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		var name string
		if name, err := strconv.Unquote(text); err == nil {
			return name
		}
		if json.Unmarshal([]byte(text), &name) == nil {
			return name
		}
	}
	if name, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`); err == nil && plain(name) == text {
		return name
	}
	return text
}

// The function who returns a text for the note of an override. The text says which user runs this program, and on which machine.
func who() string {
	by := os.Getenv("SUDO_USER")
	if u, err := user.Current(); by == "" && err == nil {
		by = u.Username
	}
	host, _ := os.Hostname()
	text := "by " + cmp.Or(by, os.Getenv("USER"), "somebody") + "@" + cmp.Or(host, "somewhere")
	return strings.ToValidUTF8(text[:min(len(text), 256)], "")
}

// noteOf returns the note of an override: the text of the flag -note, and who runs this program.
func noteOf(text string) (string, error) {
	by := who()
	if text == "" {
		return by, nil
	}
	by = ", " + by
	if most := max(256-len(by), 0); len(text) > most {
		return "", usageError(fmt.Sprintf("-note is %d bytes: must have at most %d bytes, because %q is added", len(text), most, by))
	}
	return text + by, nil
}

// clockTimes and dates are the forms that the value of the flag -until may have. A time without a time zone is in UTC.
var (
	clockTimes = []string{"15:04", "15:04:05"}
	dates      = []string{time.RFC3339, "2006-01-02", "2006-01-02 15:04", "2006-01-02 15:04:05"}
)

// parseAny reads a time that has one of the forms.
func parseAny(forms []string, text string) (at time.Time, ok bool) {
	for _, form := range forms {
		if at, err := time.Parse(form, text); err == nil {
			return at, true
		}
	}
	return at, false
}

// untilOf reads the value of the flag -until. It returns a function that takes the current time, and returns the time that the
// flag means. A time of the day without a date means the next time at which a clock shows it.
func untilOf(text string) (ends func(now time.Time) time.Time, ok bool) {
	if at, ok := parseAny(dates, text); ok && !at.IsZero() {
		return func(time.Time) time.Time { return at }, true
	}
	word, clock, spaced := strings.Cut(text, " ")
	days := map[string]int{"today": 0, "tomorrow": 1}
	add, named := days[word]
	if !named {
		clock = text
	}
	at, ok := parseAny(clockTimes, clock)
	if !ok && (word != "tomorrow" || spaced) {
		return nil, false
	}
	return func(now time.Time) time.Time {
		now = now.UTC()
		day := time.Date(now.Year(), now.Month(), now.Day()+add, at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
		if !named && !day.After(now) {
			day = day.AddDate(0, 0, 1)
		}
		return day
	}, true
}

// lastingAs reads the values of the flags -note, -for and -until, see noteOf and endOf.
func lastingAs(note, lasts, until string) (text string, ends func(now time.Time) time.Time, err error) {
	if text, err = noteOf(note); err == nil {
		ends, err = endOf(lasts, until)
	}
	return text, ends, err
}

// endOf reads the values of the flags -for and -until. It returns a function that takes the time of the server, and returns
// the time at which the override ends. If both flags are empty, the function returns a zero time: the override then has no
// end.
func endOf(lasts, until string) (func(now time.Time) time.Time, error) {
	switch {
	case lasts != "" && until != "":
		return nil, usageError("-for and -until are given: one of them says when it ends")
	case until != "":
		ends, ok := untilOf(until)
		if !ok {
			return nil, usageError(fmt.Sprintf("-until is %q: must be a time in UTC such as 18:00, tomorrow, 2026-12-01 or 2026-12-01T00:00:00Z; "+
				"-for says how long it lasts", shortened(until)))
		}
		return ends, nil
	case lasts != "":
		rate, err := ratelimit.ParseRate("1/" + lasts) // ParseRate is used because it can also read days
		if err != nil || rate.Burst > 0 || rate.Requests != 1 || rate.Per < time.Microsecond {
			return nil, usageError(fmt.Sprintf("-for is %q: must be a time with its unit, such as 90m, 2h or 7d", shortened(lasts)))
		}
		return func(now time.Time) time.Time { return now.Add(rate.Per) }, nil
	}
	return func(time.Time) time.Time { return time.Time{} }, nil
}

// shortened returns the beginning of a long text, so that an error with it is not too long.
func shortened(text string) string {
	if len(text) <= 60 {
		return text
	}
	return strings.ToValidUTF8(text[:57], "") + "..."
}

// isMistake reports whether the error means that an override is wrong. If it returns false, the error has another reason, for
// example that the server has failed.
func isMistake(err error) bool {
	return errors.Is(err, ratelimit.ErrInvalidConfig) || errors.Is(err, ratelimit.ErrUnknownRule)
}

// asFlag returns the text of an error about a field of an override. In this text, it replaces the name of the field by the
// name of the flag. For example, overrides[0].until becomes -until.
func asFlag(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line = plain(strings.TrimPrefix(line, "ratelimit: ")); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "; ")
	for _, field := range []string{"client", "ip", "rules", "until", "note"} {
		text = strings.ReplaceAll(text, "overrides[0]."+field, "-"+field)
	}
	text = strings.ReplaceAll(text, "overrides[0].rate.per", "the window of the rate")
	return strings.ReplaceAll(strings.ReplaceAll(text, "overrides[0].rate", "the rate"), "ratelimit: ", "")
}

func pastOf(o *ratelimit.Override) string {
	switch o.Effect {
	case ratelimit.EffectBlock:
		return "blocked"
	case ratelimit.EffectExempt:
		return "exempted"
	}
	return "rate " + o.Rate.String() + " for"
}

func whomText(o *ratelimit.Override) string {
	if o.IP != "" {
		return "ip " + name(o.IP)
	}
	return "client " + name(o.Client)
}

func rulesText(o *ratelimit.Override) string {
	if len(o.Rules) == 0 {
		return "all"
	}
	names := make([]string, len(o.Rules))
	for i, rule := range o.Rules {
		names[i] = name(rule)
	}
	return strings.Join(names, ", ")
}

func untilText(o *ratelimit.Override, now time.Time) string {
	if o.Until.IsZero() {
		return "lifted"
	}
	return o.Until.UTC().Format(timeFormat) + " UTC, in " + rest(o.Until.Sub(now))
}

// rest returns the time d as a text. A time of an hour or more is rounded up to whole minutes.
func rest(d time.Duration) string {
	if d < time.Hour {
		return wait(rounded(d))
	}
	return span((d + time.Minute - 1).Truncate(time.Minute))
}

// hints returns notes about the override o that the user may not expect. For example, a note may say that the override is for
// all addresses.
func (t *target) hints(ctx context.Context, o *ratelimit.Override) (hints []string) {
	prefix, isPrefix := netip.ParsePrefix(o.IP)
	addr, _ := netip.ParseAddr(o.IP)
	switch {
	case isPrefix == nil && prefix.Bits() == 0:
		hints = append(hints, "this is for all addresses")
	case o.Effect == ratelimit.EffectBlock && addr.Is6() && !addr.Is4In6():
		network, _ := addr.WithZone("").Prefix(64)
		hints = append(hints, "a client can change its address within its network, "+network.String())
	case o.Effect == ratelimit.EffectExempt && o.Until.IsZero():
		hints = append(hints, "this exemption has no end, see -for and -until")
	}
	if len(t.list) == 0 {
		if here, all := t.limiters(ctx); all && !slices.Contains(here, t.name) {
			hint := "no limiter " + quote(t.name) + " has keys in this server"
			if len(here) > 0 {
				hint += "; those that have: " + strings.Join(escaped(here[:min(len(here), 10)]), ", ")
			}
			hints = append(hints, hint)
		}
	}
	return hints
}

func escaped(names []string) (all []string) {
	for _, text := range names {
		all = append(all, name(text))
	}
	return all
}

// limiters returns the sorted names of limiters that have keys in the server. It stops when it finds the limiter of t. It also
// stops after about ten thousand keys. If it stops after ten thousand keys or because of an error, it returns false, because
// other keys may belong to further limiters. Otherwise it returns true.
func (t *target) limiters(ctx context.Context) (names []string, all bool) {
	for from, steps := "", 0; steps < 20; steps++ {
		states, next, err := t.step(ctx, from, 500)
		if err != nil {
			return nil, false
		}
		for i := range states {
			limiter := states[i].limiter()
			if !slices.Contains(names, limiter) && (len(names) < 100 || limiter == t.name) {
				names = append(names, limiter)
			}
		}
		if from = next; from == "" || slices.Contains(names, t.name) {
			all = true
			break
		}
	}
	slices.Sort(names)
	return names, all
}
