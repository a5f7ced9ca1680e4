package waitline

import (
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Gather appends to spots those of the keys of parts.
func Gather(spots []engine.Spot, parts []engine.Part) []engine.Spot {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil {
			spots = append(spots, engine.Spot{Keys: p.Keys, Hash: p.Hash, Want: p.Want, Shadow: p.Shadow})
		}
	}
	return spots
}

// Learn copies the answers of spots, which Gather has made of parts, to parts.
func Learn(parts []engine.Part, spots []engine.Spot) {
	for i := range parts {
		if p := &parts[i]; p.Keys != nil {
			s := &spots[0]
			p.Verdict, p.Delay, p.Receipt, p.Err = s.Verdict, s.Delay, s.Receipt, s.Err
			spots = spots[1:]
		}
	}
}

// Freed decides again on those who wait for the keys of parts, which have got units back.
func (ls *Lines) Freed(parts []engine.Part) {
	for i := range parts {
		if p := &parts[i]; ls.Len() > 0 && p.Keys != nil && !p.Shadow {
			ls.freed(key{p.Keys, p.Hash})
		}
	}
}

// FreedKey decides again on those who wait for a key, which has got units back.
func (ls *Lines) FreedKey(keys engine.Lockable, h keytable.Hash) {
	if ls.Len() > 0 {
		ls.freed(key{keys, h})
	}
}
