package bench

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// settle is how many asks Fill makes beyond one for each key, so that what
// grows with use, such as a sliding window log, has grown.
const settle = 20_000

// Start returns a subject of s that is ready for w: it holds every key of w,
// and asks have the outcome of w from now on.
func (s Spec) Start(w Workload) (Subject, error) {
	subject, err := s.New(s.Limit(w))
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", s.Name, err)
	}
	Fill(subject, w.Names, w.Keys)
	Serial(subject, w.keys(0), settle)
	return subject, nil
}

// keys returns what draws from the keys of w.
func (w Workload) keys(seed uint64) *Keys { return NewKeys(w.Names, w.Keys, seed) }

// Fill asks s once for each of the first count keys of names.
func Fill(s Subject, names Names, count int) {
	for i := range count {
		s.Allow(names.Key(i))
	}
}

// Serial asks s n times and returns how many asks were allowed.
func Serial(s Subject, k *Keys, n int) (allowed int) {
	for range n {
		if s.Allow(k.Next()) {
			allowed++
		}
	}
	return allowed
}

// parallel asks s n times with each of ks at once.
func parallel(s Subject, ks []*Keys, n int) (allowed int) {
	var (
		ready, done sync.WaitGroup
		begin       = make(chan struct{})
		counts      = make([]int, len(ks))
	)
	for i, k := range ks {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-begin
			counts[i] = Serial(s, k, n)
		})
	}
	ready.Wait()
	close(begin)
	done.Wait()
	for _, c := range counts {
		allowed += c
	}
	return allowed
}

// A Run is a subject under a workload, ready to be timed.
type Run struct {
	spec    Spec
	work    Workload
	subject Subject
	keys    []*Keys // one for each core that asks
}

// NewRun starts s and returns it ready for w. Where windows turn, [Turn] makes it
// ready.
func NewRun(s Spec, w Workload) (*Run, error) {
	subject, err := s.Start(w)
	if err != nil {
		return nil, err
	}
	cores := 1
	if w.Parallel {
		cores = runtime.GOMAXPROCS(0)
	}
	r := &Run{spec: s, work: w, subject: subject}
	for i := range cores {
		r.keys = append(r.keys, w.keys(uint64(i)+1))
	}
	return r, nil
}

// A Timing is what a batch of asks has shown.
type Timing struct {
	Took    time.Duration // from the first ask to the last
	Asks    int           // on all cores together
	Allowed int           // how many of them were allowed
}

// Each returns nanoseconds per ask: the time that passed over the asks of all cores
// together.
func (t Timing) Each() float64 { return float64(t.Took.Nanoseconds()) / float64(t.Asks) }

// Share returns which share of the asks was allowed.
func (t Timing) Share() float64 { return float64(t.Allowed) / float64(t.Asks) }

// Time asks n times on each core. It fails if an ask had another outcome than the
// workload's, because the figure would then be one of something else. Where the
// workload has both outcomes, [Spec.Claims] says how many there are to be of each.
func (r *Run) Time(n int) (Timing, error) {
	var allowed int
	start := time.Now()
	if r.work.Parallel {
		allowed = parallel(r.subject, r.keys, n)
	} else {
		allowed = Serial(r.subject, r.keys[0], n)
	}
	t := Timing{time.Since(start), n * len(r.keys), allowed}
	return t, r.spec.check(r.work, t.Allowed, t.Asks)
}

// Claims returns the least and the largest share of asks of w that the subject is
// to allow. The references allow everything.
func (s Spec) Claims(w Workload) (least, most float64) {
	switch {
	case s.Kind == Reference || w.Outcome == Allowed:
		return 1, 1
	case w.Outcome == Mixed:
		return 0.02, 0.98
	case w.Window > 0:
		return 0, 0.5
	}
	return 0, 0
}

// check reports whether asks of w, of which some were allowed, all had the
// outcome of w, if that is one. Where it is two, a batch may be too short to say.
func (s Spec) check(w Workload, allowed, asks int) error {
	if least, most := s.Claims(w); least != most || float64(allowed) == least*float64(asks) {
		return nil
	}
	least, _ := s.Claims(w)
	return fmt.Errorf("bench: %s/%v: %d of %d asks were allowed, not %.0f", s.Name, w, allowed, asks, least*float64(asks))
}
