package engine

// Binds compares the answers of two rules to one request, and reports whether the caller gets the answer a, and
// not the answer b. The parameter passes is true if the request passes. The parameter earlier is true if the
// rule with the answer a comes before the rule with the answer b.
//
// If the request is denied, the longer RetryAfter wins. One exception: if the field Ends of a Part is set, its
// units come back when running work ends, maybe sooner than RetryAfter says. So the denial of such a Part loses
// against the denial of a Part whose field Ends is not set. If the request passes, the answer with fewer units
// left wins. In a tie, the earlier rule wins.
func Binds(a, b *Part, passes, earlier bool) bool {
	switch {
	case !passes:
		return denialBinds(a, b, earlier)
	case a.Left != b.Left:
		return uint64(a.Left) < uint64(b.Left)
	}
	return earlier
}

// denialBinds does what Binds does, for a request that is denied.
func denialBinds(a, b *Part, earlier bool) bool {
	switch {
	case a.Ends != b.Ends && !a.Granted() && !b.Granted():
		return b.Ends
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	}
	return earlier
}
