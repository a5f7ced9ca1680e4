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

// A cell is one thing to time: a subject (a limiter) under a workload.
type cell struct {
	algo string // the name of a bench.Spec
	work bench.Workload
}

// A lab times cells and keeps the results. A cell is a subject under a workload.
//
// The machine's speed drifts while a report runs, because other programs run or the processor heats
// up. So the cells of one workload are timed in turns: each round times every cell for a moment,
// and each round begins with another cell. A ratio divides two times of the same round, which the
// drift changes in the same way. The report shows the median of these ratios over all rounds.
type lab struct {
	sizes
	progress io.Writer
	samples  map[cell][]float64 // nanoseconds per call, one for each round
	shares   map[cell][]float64 // the fraction of calls that was allowed, one for each round
	order    []cell             // the keys of samples, in the order in which they were timed
	servers  servers
	redis    redisLab
	postgres postgresLab
}

func newLab(s sizes, progress io.Writer) *lab {
	l := &lab{sizes: s, progress: progress, samples: make(map[cell][]float64), shares: make(map[cell][]float64)}
	l.redis.samples = make(map[bench.RedisWork]redisSamples)
	l.postgres.samples = make(map[bench.PostgresWork]postgresSamples)
	return l
}

// say writes a text to the progress output. The text says what the lab does next.
func (l *lab) say(what string) { fmt.Fprintln(l.progress, what) }

// sample times the cells (subjects under workloads), one workload after the other. A cell that is
// listed several times is timed only once.
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

// A timer times one subject (a limiter): in each round it makes a batch of calls.
type timer struct {
	spec bench.Spec
	run  *bench.Run
	n    int // number of calls on each core in a batch; 0 until the method calibrate has chosen it
}

// The constant named "brief" is the longest window that counts as short. If windows are short, a batch of
// calls to one subject lasts for at least two windows. If windows are longer, a whole round (a batch
// for each subject) must fit into one window: if too little time is left in the window, the lab waits
// for the next one.
const brief = 20 * time.Millisecond

// sampleWorkload times the given subjects under the workload w. The subjects take turns.
func (l *lab) sampleWorkload(w bench.Workload, specs []bench.Spec) error {
	l.say(w.String())
	timers := make([]*timer, len(specs))
	for i, s := range specs {
		timers[i] = &timer{spec: s}
		l.order = append(l.order, cell{s.Name, w})
		defer timers[i].close()
	}
	batch := l.batch
	if w.Window <= brief {
		batch = max(batch, 2*w.Window)
	}
	for round := range l.rounds {
		runtime.GC()
		// The variable named "enough" is more than the time that a round takes. If windows are long, the first
		// round waits for the next window. A later round waits only if less than this time is left in the
		// present window.
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

// turnAll makes a new subject for each timer, and calls the subject, so that it has used units in the
// present window. It returns when the next window begins.
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

// checkShares returns an error if a subject has allowed too many or too few calls. In each round a
// fraction of the subject's calls is allowed. The median of these fractions must be within the
// bounds of Spec.Claims. Quick reports are not checked, because their batches are too short.
func (l *lab) checkShares(w bench.Workload, specs []bench.Spec) error {
	for _, s := range specs {
		least, most := s.Claims(w)
		if share := median(l.shares[cell{s.Name, w}]); l.strict && (share < least || share > most) {
			return fmt.Errorf("%s/%v: %s of the asks were allowed, not %s to %s",
				s.Name, w, percent(share), percent(least), percent(most))
		}
	}
	return nil
}

// The constant named "cheap" is the largest number of keys for which the lab makes a new subject in each
// round. With a new subject, memory addresses and hash seeds vary. For more keys this would take too
// long, so all rounds use the same subject.
const cheap = 1000

// make replaces the timer's subject by a new one.
func (t *timer) make(w bench.Workload) (err error) {
	t.close()
	t.run, err = bench.NewRun(t.spec, w)
	return err
}

// close closes the subject, if the timer has one.
func (t *timer) close() {
	if t.run != nil {
		t.run.Close()
	}
}

// allocates reports whether each call to a subject of this kind allocates memory, for example for a
// response or a reservation. If it does, garbage collections run while the subject is timed, because
// their time is part of the cost of a call.
func allocates(k bench.Kind) bool {
	return slices.Contains([]bench.Kind{bench.HTTP, bench.PeerHTTP, bench.Server, bench.PeerServer, bench.GRPC, bench.Extras}, k)
}

// sample times one batch of calls, and chooses the number of calls so that the batch takes about the
// given duration.
func (t *timer) sample(w bench.Workload, batch time.Duration) (bench.Timing, error) {
	if t.run == nil || w.Keys <= cheap && w.Window <= brief {
		if err := t.make(w); err != nil {
			return bench.Timing{}, err
		}
	}
	if allocates(t.spec.Kind) {
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

// warmUp makes calls that are not timed, because other subjects have filled the processor's caches
// since the last batch. If the windows of the workload are short, warmUp first waits until a window
// begins. If the windows are long, and most calls are to be denied, warmUp first takes all units that
// are left in the current window.
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

// calibrate sets t.n to the number of calls that take about the given duration, but to at least one.
func (t *timer) calibrate(batch time.Duration) error {
	for n := 1000; ; n *= 2 {
		got, err := t.run.Time(n)
		if err != nil {
			return err
		}
		if got.Took >= batch/4 {
			t.n = max(int(float64(n)*float64(batch)/float64(got.Took)), 1)
			return nil
		}
	}
}

// median returns the median time of the cell c (a subject under a workload), in nanoseconds per call.
func (l *lab) median(c cell) float64 { return median(l.samples[c]) }

// best returns the smallest time of the cell c (a subject under a workload), in nanoseconds per call,
// or NaN if the cell was not timed.
func (l *lab) best(c cell) float64 {
	best := math.NaN()
	for i, ns := range l.samples[c] {
		if i == 0 || ns < best {
			best = ns
		}
	}
	return best
}

// share returns a text such as "; 5 % allowed" if some calls of the cell c (a subject under a
// workload) were allowed and others denied. Otherwise it returns an empty text.
func (l *lab) share(c cell) string {
	share := median(l.shares[c])
	if share > 0 && share < 1 { // false if the share is NaN, which means that no shares were recorded
		return "; " + percent(share) + " allowed"
	}
	return ""
}

// ratio divides, in each round, the time of the cell c (a subject under a workload) by the time of
// another cell, the base. It returns the median of these ratios over the rounds.
func (l *lab) ratio(c, base cell) float64 {
	mine, theirs := l.samples[c], l.samples[base]
	ratios := make([]float64, min(len(mine), len(theirs)))
	for i := range ratios {
		ratios[i] = mine[i] / theirs[i]
	}
	return median(ratios)
}

// fastest returns the cell (a subject under a workload) with the smallest median time. The slice must
// not be empty.
func (l *lab) fastest(cells []cell) cell {
	return slices.MinFunc(cells, func(a, b cell) int {
		if l.median(a) < l.median(b) {
			return -1
		}
		return 1
	})
}

// median returns the median of xs, or NaN if xs is empty.
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
