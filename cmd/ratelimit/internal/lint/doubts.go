package lint

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/ratelimit-go/ratelimit"
)

// attempts lists words of endpoints that check a secret. An attacker may try to guess this secret with many requests.
var attempts = [][]string{{"login"}, {"log", "in"}, {"signin"}, {"sign", "in"}, {"password"}, {"passwd"}, {"otp"}, {"mfa"}, {"2fa"},
	{"token"}, {"verify"}, {"reset"}, {"auth"}, {"oauth"}, {"oauth2"}}

// isAttempt reports whether an endpoint contains one of the attempts as whole words. It is true for "/log-in", which has
// the words "log" and "in", and false for "/blog-in".
func isAttempt(endpoint string) bool {
	words := wordsOf(endpoint)
	return slices.ContainsFunc(attempts, func(attempt []string) bool {
		for i := range len(words) - len(attempt) + 1 {
			if slices.Equal(words[i:i+len(attempt)], attempt) {
				return true
			}
		}
		return false
	})
}

// wordsOf returns the words of a text in lower case. A word ends before a character that is no letter and no digit, and before
// a capital letter that follows a small one, as in resetPassword.
func wordsOf(text string) (words []string) {
	var b strings.Builder
	end := func() {
		if b.Len() > 0 {
			words = append(words, strings.ToLower(b.String()))
			b.Reset()
		}
	}
	small := false
	for _, r := range text {
		switch isWord := unicode.IsLetter(r) || unicode.IsDigit(r); {
		case !isWord:
			end()
		case small && unicode.IsUpper(r):
			end()
			fallthrough
		default:
			b.WriteRune(r)
		}
		small = unicode.IsLower(r)
	}
	end()
	return words
}

// The method doubts adds findings about the endpoint, the key and the tiers of the rule r.
func (c *checker) doubts(r indexed) {
	if strings.Contains(r.Endpoint, "?") {
		c.add(r, "RL019", "endpoint", "leave the query out; add a part to the key if the budget depends on it",
			"the endpoint of %s has a query, but the endpoint of a request is usually its path", r)
	}
	if r.Key == ratelimit.KeyUser && r.Unit == "" && isAttempt(r.Endpoint) {
		c.add(r, "RL020", "key", `use the key "ip", perhaps beside this rule`,
			"%s limits by user, but who logs in may name any user", r)
	}
	c.tiers(r)
}

// The words in the names of tiers for which clients pay, and of tiers for which they do not pay.
var (
	paying = []string{"paid", "pro", "premium", "plus", "gold", "business", "enterprise"}
	free   = []string{"free", "basic", "trial", "anonymous", "guest"}
)

// The method tiers adds a finding if a paid tier of the rule r grants less than a free tier, or less than r grants to
// clients without a tier.
func (c *checker) tiers(r indexed) {
	isOf := func(tier string, words []string) bool {
		return slices.ContainsFunc(wordsOf(tier), func(word string) bool { return slices.Contains(words, word) })
	}
	less := func(a, b ratelimit.Rate) bool {
		switch {
		case a == ratelimit.Unlimited || a.Per == 0 || b != ratelimit.Unlimited && b.Per == 0:
			return false
		case b == ratelimit.Unlimited:
			return true
		}
		return slower(a, b) && !slower(b, a)
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if !isOf(tier, paying) {
			continue
		}
		rate, than := r.Tiers[tier], "those without a tier"
		found := less(rate, r.Rate)
		for _, other := range slices.Sorted(maps.Keys(r.Tiers)) {
			if isOf(other, free) && less(rate, r.Tiers[other]) {
				found, than = true, "the tier "+other
			}
		}
		if found {
			c.add(r, "RL021", "tiers", "swap the rates, or give the tier another name", "%s grants the tier %s less than %s", r, tier, than)
		}
	}
}

// unlimited adds a finding if an endpoint that no rule names has no limit. Rules in shadow or advise mode do not count.
func (c *checker) unlimited() {
	names := c.asked["\x00"]
	if len(c.rules) == 0 || slices.ContainsFunc(c.rules, func(r indexed) bool { return slices.Contains(names, r.Name) && r.Mode.Denies() }) {
		return
	}
	c.add(indexed{index: -1}, "RL018", "", `add a "default" rule, or ignore this note`,
		"there is no default rule: all other endpoints have no limit")
}
