package engine

// Binds reports whether the answer of the part a is told to the caller rather than that of b. For a denied request, the
// answer with the longer RetryAfter wins, but one whose RetryAfter is only a bound loses against any other denial; for
// a granted one, the answer with fewer units left; in a tie, the earlier rule.
func Binds(a, b *Part, passes, earlier bool) bool {
	switch {
	case !passes && a.Ends != b.Ends && !a.Granted() && !b.Granted():
		return b.Ends
	case !passes && a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case passes && a.Left != b.Left:
		return uint64(a.Left) < uint64(b.Left)
	}
	return earlier
}
