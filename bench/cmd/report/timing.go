package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/bench"
)

// A cell is a subject under a workload: what is timed.
type cell struct {
	algo string
	work bench.Workload
}

// A lab times cells and keeps what it found.
//
// The machine's speed drifts while a report runs: others use it, it heats up.
// So the cells of one workload take turns: in each round every cell is timed
// for a moment, each round begins with another cell, and a ratio is the median
// of the ratios within the rounds, which the drift between rounds does not
// touch.
type lab struct {
	sizes
	progress io.Writer
	samples  map[cell][]float64 // nanoseconds per ask, by round
	shares   map[cell][]float64 // the share of asks that was allowed, by round
	order    []cell             // the keys of samples, as they were timed
	redis    redisLab
}

func newLab(s sizes, progress io.Writer) *lab {
	l := &lab{sizes: s, progress: progress, samples: make(map[cell][]float64), shares: make(map[cell][]float64)}
	l.redis.samples = make(map[bench.RedisWork]map[string][]bench.RedisSample)
	return l
}

// say writes what the lab is about to do.
func (l *lab) say(what string) { fmt.Fprintln(l.progress, what) }

// sample times cells, each once however often it is listed.
func (l *lab) sample(cells []cell) error {
	var works []bench.Workload
	for _, c := range cells {
		if !slices.Contains(works, c.work) {
			works = append(works, c.work)
		}
	}
	for _, w := range works {
		var specs []bench.Spec
		for _, c := range cells {
			s, err := bench.Find(c.algo)
			if err != nil {
				return err
			}
			if c.work == w && !slices.ContainsFunc(specs, func(t bench.Spec) bool { return t.Name == s.Name }) {
				specs = append(specs, s)
			}
		}
		if err := l.sampleWorkload(w, specs); err != nil {
			return err
		}
	}
	return nil
}

// A timer is one subject that takes part in the rounds of a workload.
type timer struct {
	spec bench.Spec
	run  *bench.Run
	n    int // asks on each core in a batch; 0 until calibrated
}

// brief is the longest window of which several turn while a batch is timed. Longer
// ones turn between the rounds.
const brief = 20 * time.Millisecond

// sampleWorkload times specs under w, in turns.
func (l *lab) sampleWorkload(w bench.Workload, specs []bench.Spec) error {
	l.say(w.String())
	timers := make([]*timer, len(specs))
	for i, s := range specs {
		timers[i] = &timer{spec: s}
		l.order = append(l.order, cell{s.Name, w})
	}
	batch := l.batch
	if w.Window <= brief {
		batch = max(batch, 2*w.Window)
	}
	for round := range l.rounds {
		runtime.GC()
		// A round takes less than this, and must not outlast the window.
		enough := 2 * batch * time.Duration(len(timers))
		if w.Window > brief && (round == 0 || w.UntilTurn() < enough) {
			if err := turnAll(timers, w); err != nil {
				return err
			}
		}
		for i := range timers {
			t := timers[(i+round)%len(timers)]
			got, err := t.sample(w, batch)
			if err != nil {
				return err
			}
			c := cell{t.spec.Name, w}
			l.samples[c] = append(l.samples[c], got.Each())
			l.shares[c] = append(l.shares[c], got.Share())
		}
	}
	return l.checkShares(w, specs)
}

// turnAll makes all timers anew and brings them to the beginning of a window, with a
// count in the window before.
func turnAll(timers []*timer, w bench.Workload) error {
	var runs []*bench.Run
	for _, t := range timers {
		if err := t.make(w); err != nil {
			return err
		}
		runs = append(runs, t.run)
	}
	return bench.Turn(runs...)
}

// checkShares reports whether each of specs was allowed what w claims, in most rounds.
// What is not judged may be too short to show it.
func (l *lab) checkShares(w bench.Workload, specs []bench.Spec) error {
	for _, s := range specs {
		least, most := s.Claims(w)
		if share := median(l.shares[cell{s.Name, w}]); l.strict && (share < least || share > most) {
			return fmt.Errorf("%s/%v: %s of the asks were allowed, not %s to %s", s.Name, w, percent(share), percent(least), percent(most))
		}
	}
	return nil
}

// cheap is how many keys a subject may have to be made anew in each round. Where
// its memory comes to lie and how its hash is seeded then vary as well.
const cheap = 1000

// make makes the subject anew.
func (t *timer) make(w bench.Workload) (err error) {
	t.run, err = bench.NewRun(t.spec, w)
	return err
}

// sample times one batch. A handler's response is garbage, and so are what a middleware makes
// for it and a reservation: collecting that is a part of what it costs, for ours and for the peers.
func (t *timer) sample(w bench.Workload, batch time.Duration) (bench.Timing, error) {
	if t.run == nil || w.Keys <= cheap && w.Window <= brief {
		if err := t.make(w); err != nil {
			return bench.Timing{}, err
		}
	}
	if k := t.spec.Kind; k == bench.HTTP || k == bench.PeerHTTP || k == bench.GRPC || k == bench.Extras {
		defer debug.SetGCPercent(debug.SetGCPercent(100))
	}
	if t.n == 0 {
		if err := t.calibrate(batch); err != nil {
			return bench.Timing{}, err
		}
	}
	if err := t.warmUp(w); err != nil {
		return bench.Timing{}, err
	}
	return t.run.Time(t.n)
}

// warmUp asks without timing, as the others have used the caches since. In a long
// window it takes what is left first, where most asks are to be denied; a short one
// it brings to its beginning.
func (t *timer) warmUp(w bench.Workload) error {
	switch {
	case w.Window > brief:
		t.run.Spend()
	case w.Window > 0:
		if err := bench.Turn(t.run); err != nil {
			return err
		}
	}
	_, err := t.run.Time(t.n/4 + 1)
	return err
}

// calibrate finds how many asks take as long as batch.
func (t *timer) calibrate(batch time.Duration) error {
	for n := 1000; ; n *= 2 {
		got, err := t.run.Time(n)
		if err != nil {
			return err
		}
		if got.Took >= batch/4 {
			t.n = int(float64(n) * float64(batch) / float64(got.Took))
			return nil
		}
	}
}

// median returns the median of c in nanoseconds per ask.
func (l *lab) median(c cell) float64 { return median(l.samples[c]) }

// share says what share of the asks of c was allowed, where that is neither none nor
// all: "; 5 % allowed".
func (l *lab) share(c cell) string {
	share := median(l.shares[c])
	if share > 0 && share < 1 { // not so if there is none
		return "; " + percent(share) + " allowed"
	}
	return ""
}

// ratio returns the median over the rounds of what c cost against what base
// cost in the same round.
func (l *lab) ratio(c, base cell) float64 {
	mine, theirs := l.samples[c], l.samples[base]
	ratios := make([]float64, min(len(mine), len(theirs)))
	for i := range ratios {
		ratios[i] = mine[i] / theirs[i]
	}
	return median(ratios)
}

// fastest returns the cell of the smallest median. There is at least one.
func (l *lab) fastest(cells []cell) cell {
	return slices.MinFunc(cells, func(a, b cell) int {
		if l.median(a) < l.median(b) {
			return -1
		}
		return 1
	})
}

// median returns the middle of xs, or NaN if there is none.
func median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	xs = slices.Sorted(slices.Values(xs))
	mid := len(xs) / 2
	if len(xs)%2 == 1 {
		return xs[mid]
	}
	return (xs[mid-1] + xs[mid]) / 2
}
