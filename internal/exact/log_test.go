package exact

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A plainLog is the model of a Log: a list with the instant of each unit.
type plainLog []keytable.Instant

// recent returns the units of l that are less than per old at now.
func (l plainLog) recent(now keytable.Instant, per uint64) plainLog {
	for i, at := range l {
		if now.Since(at) < per {
			return l[i:]
		}
	}
	return nil
}

// without returns l without n units of the instant at, or l if it has fewer.
func (l plainLog) without(at keytable.Instant, n int) plainLog {
	i := slices.Index(l, at)
	if i < 0 || i+n > len(l) || l[i+n-1] != at {
		return l
	}
	return slices.Concat(l[:i], l[i+n:])
}

// TestLog compares a Log with a list of units, while time passes and units are granted, given
// back and forgotten.
func TestLog(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var log Log
		var model plainLog
		var charged plainLog // instants at which units were granted at some time
		now, per := keytable.Start, 1+r.Uint64N(100)
		for range 300 {
			now = now.Add(time.Duration(r.IntN(1 + int(per)/(1+r.IntN(20)))))
			recent, units := log.Recent(now, per), model.recent(now, per)
			require.EqualValues(t, len(units), recent.Units, "seed %d", seed)
			for n, at := range units {
				require.Equal(t, time.Duration(per-now.Since(at)), log.TimeToLeave(recent, int64(n)+1, now, per), "seed %d", seed)
			}
			if len(units) > 0 {
				require.Equal(t, units[len(units)-1], log.Last(), "seed %d", seed)
			}
			switch n := 1 + r.IntN(3); {
			case r.IntN(3) > 0:
				before := log.Clone()
				log.Trim(recent)
				log.Add(now, int64(n))
				require.Equal(t, recent, before.Recent(now, per), "seed %d: a clone stays as it is", seed)
				model = slices.Clone(units)
				for range n {
					model = append(model, now)
				}
				charged = append(charged, now)
			case len(charged) > 0:
				at := charged[r.IntN(len(charged))]
				log.GiveBack(at, int64(n))
				model = model.without(at, n)
			}
		}
	}
}

// TestLogInherits proves that a Log of one entry has its units until they are per old.
func TestLogInherits(t *testing.T) {
	log := LogOf(keytable.Start, 5)
	require.EqualValues(t, 5, log.Recent(keytable.Start.Add(99), 100).Units)
	require.Zero(t, log.Recent(keytable.Start.Add(100), 100).Units)
	log = Log{}
	require.Zero(t, log.Recent(keytable.Start, 1<<62).Units, "the zero Log is empty")
}

// TestLogGivesBackAnywhere gives back a unit of a log with thousands of older and of later entries.
func TestLogGivesBackAnywhere(t *testing.T) {
	const entries = 20_001
	for _, place := range []int{0, 1, entries / 2, entries - 2, entries - 1} {
		var log Log
		for i := range entries {
			log.Add(keytable.Start.Add(time.Duration(i)), 1)
		}
		log.GiveBack(keytable.Start.Add(time.Duration(place)), 1)
		log.GiveBack(keytable.Start.Add(time.Duration(place)), 1) // it has no unit any more
		now, per := keytable.Start.Add(entries), uint64(1<<40)
		recent := log.Recent(now, per)
		require.EqualValues(t, entries-1, recent.Units)
		for _, n := range []int{1, place, place + 1, entries - 1} {
			at := n - 1 // the instant of the n-th unit
			if at >= place {
				at++
			}
			if n > 0 && n < entries {
				require.Equal(t, time.Duration(per)-time.Duration(entries-at), log.TimeToLeave(recent, int64(n), now, per), "unit %d", n)
			}
		}
	}
}

// TestLogWithHolesIsBounded gives nearly all entries back, in the middle of a log, and checks that they do
// not stay in memory.
func TestLogWithHolesIsBounded(t *testing.T) {
	var log Log
	at := func(i int) keytable.Instant { return keytable.Start.Add(time.Duration(i)) }
	for i := range 100_000 {
		log.Add(at(i), 1)
		if i > 100 {
			log.GiveBack(at(i-50), 1)
		}
	}
	require.EqualValues(t, 101, log.Recent(at(100_000), 1<<40).Units)
	require.LessOrEqual(t, len(log.ring), 512)
}

// TestLogExceeds adds units past the limit to a log with maxEntries entries, and to one whose total
// is as large as it can be.
func TestLogExceeds(t *testing.T) {
	const per = uint64(1e9)
	at := func(ns int) keytable.Instant { return keytable.Start.Add(time.Duration(ns)) }
	var log Log
	for i := range maxEntries + 1 {
		log.Add(at(i), 1)
	}
	require.EqualValues(t, maxEntries, log.older)
	log.Exceed(at(1<<20), 3)
	require.EqualValues(t, maxEntries, log.older, "the units join the newest entry")
	require.Equal(t, at(1<<20), log.Last())
	require.EqualValues(t, maxEntries+4, log.Recent(at(1<<20), per).Units)
	require.EqualValues(t, 4, log.Recent(at(1e9+1<<19), per).Units, "which counts from then on")

	log.GiveBack(at(1000), 1)
	log.Exceed(at(1<<20+1), 1)
	require.EqualValues(t, maxEntries, log.older, "an entry without units does not count")
	require.Equal(t, at(1<<20+1), log.Last())
	log.Exceed(at(1<<20+2), 1)
	require.EqualValues(t, maxEntries, log.older, "the units join the newest entry")
	require.EqualValues(t, maxEntries+5, log.Recent(at(1<<20+2), per).Units)

	log = LogOf(at(0), 1)
	log.Exceed(at(1), 1<<31-1)
	log.Exceed(at(2), 1<<31-1)
	require.EqualValues(t, 2, log.older)
	require.Equal(t, int64(math.MaxUint32), log.Recent(at(2), per).Units)
	log.Exceed(at(3), 1)
	require.Zero(t, log.older, "all units count from then on")
	require.Equal(t, int64(math.MaxUint32), log.Recent(at(1e9+2), per).Units)
	require.Zero(t, log.Recent(at(1e9+3), per).Units)
}
