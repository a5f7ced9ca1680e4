package override

import (
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// Check looks for a fault in o at the time now. It returns the field, its value, and what the value must be. If it finds no
// fault, field is "". It does not check what depends on the rules of the limiter.
func (o *Override) Check(now time.Time) (field string, value any, reason string) {
	const short = "must be zero, unless the effect is "
	switch {
	case o.Client == "" && o.IP == "" || o.Client != "" && o.IP != "":
		return "client", confmap.Describe(o.Client) + " and ip is " + confmap.Describe(o.IP), "must be set, or ip, and not both"
	case len(o.Client) > maxClient:
		return "client", strconv.Itoa(len(o.Client)) + " bytes", "must have at most 4096 bytes"
	case rank(o.Effect) < 0 && o.Effect != Lift && o.Effect != Pardon:
		return "effect", confmap.Describe(o.Effect), `must be one of "block", "exempt", "rate", "pardon", or "" to lift`
	case len(o.Note) > maxNote:
		return "note", strconv.Itoa(len(o.Note)) + " bytes", "must have at most 256 bytes"
	case rank(o.Effect) < 0 && !o.Until.IsZero():
		return "until", o.Until, short + `"block", "exempt" or "rate"`
	case !o.Until.IsZero() && !now.Before(o.Until):
		return "until", o.Until, "must be in the future: it is " + now.UTC().Format(time.RFC3339) + " now"
	case o.Effect != Rate && o.Rate != ratetext.Rate{}:
		return "rate", o.Rate, short + `"rate"`
	}
	if o.IP != "" {
		if _, problem := ParsePrefix(o.IP); problem != "" {
			return "ip", confmap.Describe(o.IP), problem
		}
	}
	return "", nil, ""
}

const maxClient, maxNote = 4096, 256 // in bytes

// CheckList looks for a reason why one call cannot set all these overrides together in the layer l. It returns the field
// that is wrong, the value of the field, and what the value must be. If CheckList finds nothing wrong, field is "". It
// does not check the overrides one by one; the method Check does that.
func CheckList(all []Override, l Layer) (field string, value any, reason string) {
	if l == File && len(all) > MaxOwn {
		return "overrides", len(all), "must be at most " + strconv.Itoa(MaxOwn)
	}
	for i := range all {
		effect := all[i].Effect
		switch {
		case l == File && (effect == Lift || effect == Pardon):
			reason = `must be one of "block", "exempt", "rate"`
		case (effect == Pardon) != (all[0].Effect == Pardon):
			reason = "must not be given together with a pardon, which is done at once"
		default:
			continue
		}
		return "overrides[" + strconv.Itoa(i) + "].effect", strconv.Quote(effect), reason
	}
	return "", nil, ""
}
