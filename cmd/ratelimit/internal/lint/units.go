package lint

import (
	"fmt"
	"slices"

	"github.com/ratelimit-go/ratelimit"
)

// maxReceipts is the number of reservations of one key whose units can be given back. If a key has more open reservations,
// only the last ones can be given back.
const maxReceipts = 1024

// knownUnits lists the units that the documents of the library use. Such a unit is never reported as misspelt.
var knownUnits = []string{"tokens", "bytes"}

// The variable requests lists names that a rule should not have as its unit, because a rule without a unit already counts
// requests.
var requests = []string{"requests", "request"}

// holds reports whether the rule r limits how many requests run at the same time.
func holds(r indexed) bool { return r.Algorithm == ratelimit.AlgorithmInFlight && r.Limiter == nil }

// The method unit adds a finding if the unit of the rule r is named nowhere else: not by another rule, and not by the flag
// -cost. The unit is then probably misspelt: no request has a cost in this unit, and the rule limits nothing.
func (c *checker) unit(r indexed) {
	if r.Unit == "" {
		return
	}
	if slices.Contains(requests, r.Unit) {
		c.add(r, "RL011", "unit", "leave the unit out: a rule without one counts requests",
			"%s limits only requests whose Costs name the unit %q", r, r.Unit)
		return
	}
	named := slices.Clone(knownUnits)
	for _, other := range c.rules {
		if other.Name != r.Name && other.Unit != "" {
			named = append(named, other.Unit)
		}
	}
	for _, costs := range c.options.Costs {
		for _, cost := range costs {
			if cost.Unit != "" {
				named = append(named, cost.Unit)
			}
		}
	}
	if slices.Contains(named, r.Unit) {
		return
	}
	slices.Sort(named)
	advice := "if the name is right, pass a cost in this unit by -cost"
	if near := nearest(r.Unit, append(named, requests...)); slices.Contains(requests, near) {
		advice = "leave the unit out if it is meant to count requests"
	} else if near != "" {
		advice = fmt.Sprintf("is %q meant? %s", near, advice)
	}
	c.add(r, "RL011", "unit", advice, "nothing else names the unit %q: %s limits only requests whose Costs name it", r.Unit, r)
}

// nearest returns the name that differs from the given name by the fewest letters. They may differ by one letter, or by up
// to a third of the letters of the given name. If no name is that similar, nearest returns an empty text.
func nearest(name string, names []string) (best string) {
	fewest := max(1, len(name)/3) + 1
	for _, other := range names {
		if n := distance(name, other); n < fewest {
			best, fewest = other, n
		}
	}
	return best
}

// distance returns how many letters must be added, removed or replaced to turn the text a into the text b.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance from the letters of a that were read so far to the first j letters of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// The method receipts adds a finding if the rule r lets more than maxReceipts requests of a key run at once, and another
// rule also counts these requests. The other rule can give back only the units of the last maxReceipts requests, so an older
// request that ends stays charged there. If r counts another unit than requests, the number of requests is not known, and
// there is no finding. The argument probes lists endpoints to which r applies.
func (c *checker) receipts(r indexed, probes []string) {
	most := r.Rate.Requests
	for _, rate := range r.Tiers {
		if rate != ratelimit.Unlimited {
			most = max(most, rate.Requests)
		}
	}
	if !holds(r) || r.Unit != "" || most <= maxReceipts {
		return
	}
	for _, other := range c.rules {
		together := func(endpoint string) bool { return slices.Contains(c.asked[endpoint], other.Name) }
		if other.Name != r.Name && !holds(other) && coarser(other.Key, r.Key) && slices.ContainsFunc(probes, together) {
			c.add(r, "RL012", "rate", fmt.Sprintf("lower it to %d, or expect that of the oldest requests all units stay charged", maxReceipts),
				"%s lets %d requests of a key run at once, but %s can give units back for only %d of them", r, most, other, maxReceipts)
			return
		}
	}
}
