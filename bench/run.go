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
	Fill(subject, w.Keys)
	Serial(subject, NewKeys(w.Keys, 0), settle)
	return subject, nil
}

// Fill asks s once for each of the first count keys.
func Fill(s Subject, count int) {
	for i := range count {
		s.Allow(Key(i))
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

// NewRun starts s and returns it ready for w.
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
		r.keys = append(r.keys, NewKeys(w.Keys, uint64(i)+1))
	}
	return r, nil
}

// Time asks n times on each core and returns the time that passed from the
// first ask to the last. It fails if an ask had another outcome than the
// workload's, because the figure would then be one of something else.
func (r *Run) Time(n int) (time.Duration, error) {
	var allowed int
	start := time.Now()
	if r.work.Parallel {
		allowed = parallel(r.subject, r.keys, n)
	} else {
		allowed = Serial(r.subject, r.keys[0], n)
	}
	took := time.Since(start)
	return took, r.spec.check(r.work, allowed, n*len(r.keys))
}

// Asks returns how many asks Time(n) makes on all cores together.
func (r *Run) Asks(n int) int { return n * len(r.keys) }

// check reports whether asks of w, of which some were allowed, all had the
// outcome of w. The references allow everything.
func (s Spec) check(w Workload, allowed, asks int) error {
	want := asks
	if w.Outcome == Denied && s.Kind != Reference {
		want = 0
	}
	if allowed != want {
		return fmt.Errorf("bench: %s/%v: %d of %d asks were allowed, not %d", s.Name, w, allowed, asks, want)
	}
	return nil
}
