package bench

import (
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
)

// The constant named "settle" is the number of calls that Start makes after it has called each key once.
// After these calls, state that grows with use, such as a sliding window log, has its full size.
const settle = 20_000

// settleServer is the number of calls that Start makes to an HTTP server after it has called each
// key once. It is smaller than the constant settle, because calls of a server take longer. It is
// large enough, because only the server's pools of buffers grow with the calls.
const settleServer = 200

// Start makes the subject that the Spec s describes and prepares it for the workload w: it calls
// the subject once with every key, and then many times with random keys. The calls that follow are
// allowed or denied as w.Outcome says.
func (s Spec) Start(w Workload) (Subject, error) {
	subject, err := s.New(s.Limit(w))
	if err != nil {
		return nil, fmt.Errorf("bench: %s: %w", s.Name, err)
	}
	Fill(subject, w.Names, w.Keys)
	calls := settle
	if s.Kind == Server || s.Kind == PeerServer {
		calls = settleServer
	}
	Serial(subject, w.keys(0), calls)
	return subject, nil
}

// keys returns a generator that chooses keys of the workload at random.
func (w Workload) keys(seed uint64) *Keys { return NewKeys(w.Names, w.Keys, seed) }

// Fill calls the subject s once for each of the first count keys.
func Fill(s Subject, names Names, count int) {
	for i := range count {
		s.Allow(names.Key(i))
	}
}

// Serial calls the subject n times, with keys from the generator k, and returns the number of calls
// that were allowed.
func Serial(s Subject, k *Keys, n int) (allowed int) {
	for range n {
		if s.Allow(k.Next()) {
			allowed++
		}
	}
	return allowed
}

// parallel starts a goroutine for each of the given key generators. Each goroutine calls the
// subject n times. The result is the number of calls that were allowed, in all goroutines together.
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

// A Run is a subject (a limiter) that is ready to be timed with the calls of a workload.
type Run struct {
	spec    Spec
	work    Workload
	subject Subject
	keys    []*Keys // one generator for each core that makes calls
}

// NewRun makes the subject that s describes, and returns a Run that times it with the calls of the
// workload w. If windows of w end during the run, the caller must call [Turn] too.
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

// Close closes the subject if the subject has a method Close. A server, for example, has this method.
func (r *Run) Close() {
	if c, ok := r.subject.(io.Closer); ok {
		_ = c.Close()
	}
}

// A Timing holds the figures of one batch of calls.
type Timing struct {
	Took    time.Duration // time from the beginning of the first call to the end of the last call
	Asks    int           // the number of calls on all cores together
	Allowed int           // the number of calls that were allowed
}

// Each returns nanoseconds per call: Took divided by the number of calls on all cores together.
func (t Timing) Each() float64 { return float64(t.Took.Nanoseconds()) / float64(t.Asks) }

// Share returns the fraction of the calls that were allowed, from 0 to 1.
func (t Timing) Share() float64 { return float64(t.Allowed) / float64(t.Asks) }

// Time makes n calls on each core. [Spec.Claims] says what fraction of the calls should be allowed.
// If all calls should be allowed, or none, and a call had the other outcome, Time returns an error.
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

// Claims returns the smallest and the largest fraction, from 0 to 1, of the calls of w that the
// subject should allow. A subject of the kind [Reference] allows everything.
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

// check returns an error if the subject should have allowed all calls, or none, but did not. If the
// subject should allow a fraction of the calls, check accepts every number of allowed calls: in a
// short batch, the fraction may be far from the expected one.
func (s Spec) check(w Workload, allowed, asks int) error {
	if least, most := s.Claims(w); least != most || float64(allowed) == least*float64(asks) {
		return nil
	}
	least, _ := s.Claims(w)
	return fmt.Errorf("bench: %s/%v: %d of %d asks were allowed, not %.0f", s.Name, w, allowed, asks, least*float64(asks))
}
