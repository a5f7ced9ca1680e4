package engine

import "github.com/ratelimit-go/ratelimit/internal/keytable"

// ConfirmAll calls Keys.Confirm for each part that granted the request: its charge stays, and the grant
// is counted.
func ConfirmAll(parts []Part, now keytable.Instant) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil && p.Granted() {
			p.Keys.Confirm(p.Hash, p.Receipt, p.N, now)
		}
	}
}

// RevokeAll calls Keys.Revoke for each part that granted the request: its charge is given back. The answer
// in the part becomes the one that the request would get at the instant now, after its charge was given
// back.
func RevokeAll(parts []Part, now keytable.Instant) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil && p.Granted() {
			p.Verdict, p.Delay = p.Keys.Revoke(p.Hash, p.Receipt, p.Want, now, p.Units())
		}
	}
}
