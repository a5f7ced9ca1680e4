package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// inUse returns the bytes of the heap that are in use, and those of the stacks of goroutines.
func inUse() (heap, stack uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// BenchmarkGrantMemory grants as many requests with an ID as a limiter keeps. The metric is the memory
// that a kept grant takes, by one rule and by several.
func BenchmarkGrantMemory(b *testing.B) {
	const grants = 1 << 20 // the default of WithMaxKeys
	for _, rules := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			for b.Loop() {
				var all []ratelimit.Rule
				for i := range rules {
					all = append(all, ratelimit.Rule{Name: strconv.Itoa(i), Endpoint: "*", Additional: i > 0,
						Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(grants)})
				}
				l, err := ratelimit.New(all, nil, ratelimit.WithRequestIDs(time.Hour))
				check(b, err)
				before, _ := inUse()
				for i := range grants {
					_, err := l.Check(context.Background(), ratelimit.Request{Client: "client", ID: strconv.Itoa(i)})
					check(b, err)
				}
				after, _ := inUse()
				b.ReportMetric(float64(after-before)/grants, "B/grant")
				runtime.KeepAlive(l)
			}
		})
	}
}

// BenchmarkWaiterMemory has as many callers wait as a limiter lets wait: two for each client, by a rule
// of the client's own and by a full log that all share. The metrics are the memory that a waiting caller
// takes on the heap, and on the stack of its goroutine.
func BenchmarkWaiterMemory(b *testing.B) {
	const callers, perHour = 65_536, 65_536
	for b.Loop() {
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(1)},
			{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal,
				Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerHour(perHour)},
		}, nil)
		check(b, err)
		for i := range perHour {
			l.Allow("before "+strconv.Itoa(i), "/")
		}
		ctx, cancel := context.WithCancel(context.Background())
		heap, stack := inUse()
		ended := make(chan error)
		for i := range callers + 1 {
			go func() {
				_, err := l.Wait(ctx, ratelimit.Request{Client: strconv.Itoa(i / 2), Endpoint: "/"})
				ended <- err
			}()
		}
		if err := <-ended; !errors.Is(err, ratelimit.ErrTooManyWaiters) { // one is refused when the others wait
			b.Fatal(err)
		}
		heapThen, stackThen := inUse()
		b.ReportMetric(float64(heapThen-heap)/callers, "heap-B/caller")
		b.ReportMetric(float64(stackThen-stack)/callers, "stack-B/caller")
		cancel()
		for range callers {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				b.Fatal(err)
			}
		}
	}
}
