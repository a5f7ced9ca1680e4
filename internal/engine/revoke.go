package engine

import "github.com/ratelimit-go/ratelimit/internal/keytable"

// ConfirmAll calls Keys.Confirm for each part that was granted at the instant now: its charge is final.
func ConfirmAll(parts []Part, now keytable.Instant) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil && p.Granted() {
			p.Keys.Confirm(p.Hash, p.Receipt, p.N, now)
		}
	}
}

// RevokeAll gives back the charge of each part that was granted at the instant now. The answer of the part
// is then the one that it has without the charge.
func RevokeAll(parts []Part, now keytable.Instant) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil && p.Granted() {
			p.Verdict, p.Delay = p.Keys.Revoke(p.Hash, p.Receipt, p.Want, now, p.Units())
		}
	}
}
