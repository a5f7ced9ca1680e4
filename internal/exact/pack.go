package exact

import (
	"math"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// maxWhole is the largest number of whole tokens in a [Level].
const maxWhole = 1 << 51

// Pack writes the instant that last points to and then some levels to f, or reads them from f. Each level is given by two pointers:
// to its whole tokens, and to its fraction of a token, see [Level].
func (b *Bucket) Pack(f *packed.Form, last *keytable.Instant, levels ...*int64) {
	packed.Instant(f, last)
	for i, p := range levels {
		packed.Number(f, p, 0, []int64{maxWhole, b.Unit - 1}[i%2])
	}
}

// PackLevel writes the level l to f, or reads it from f.
func (b *Bucket) PackLevel(f *packed.Form, l *Level) {
	packed.Number(f, &l.Whole, 0, maxWhole)
	packed.Number(f, &l.Frac, 0, b.Unit-1)
}

// Pack writes the instant that clock points to and then the Log to f, or reads them from f. It leaves out entries whose units were
// all given back.
func (l *Log) Pack(f *packed.Form, clock *keytable.Instant) {
	packed.Instant(f, clock)
	if f.Reading() {
		l.unpack(f)
		return
	}
	units, before, count := make([]uint32, l.older+1), l.base, 0
	for i := range l.older {
		total := l.upTo(i)
		if units[i] = total - before; units[i] > 0 {
			count++
		}
		before = total
	}
	units[l.older] = l.total - before
	packed.Number(f, &count, 0, maxEntries)
	for i, n := range units {
		if at := l.entry(uint32(i)).at; n > 0 || i == int(l.older) {
			packed.Instant(f, &at)
			packed.Number(f, &n, 0, math.MaxUint32)
		}
	}
}

// unpack reads the Log from f. The Log is empty before.
func (l *Log) unpack(f *packed.Form) {
	count := 0
	packed.Number(f, &count, 0, maxEntries)
	for i := 0; i <= count && f.OK(); i++ {
		var at keytable.Instant
		var n uint32
		packed.Instant(f, &at)
		packed.Number(f, &n, 0, math.MaxUint32)
		switch {
		case i == 0 && count == 0: // the Log has only its newest entry; if the Log is empty, n is 0
			l.last, l.total = at, n
		case n == 0 || i > 0 && at <= l.last || n > math.MaxUint32-l.total:
			f.Fail()
		default:
			l.Add(at, int64(n))
		}
	}
}
