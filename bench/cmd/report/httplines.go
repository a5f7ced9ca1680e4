package main

import (
	"fmt"

	"github.com/ratelimit-go/ratelimit/bench"
)

// httpLines are about the middleware on a request that is granted.
func httpLines() []line {
	return []line{
		beside("httplimit: a handler, over the bare one", "httplimit", "http-bare", one, 1000),
		beside("httplimit: a ServeMux, over the bare one", "httplimit-mux", "http-bare-mux", one, 1000),
		overMiddlewares("httplimit: a handler", one, 1/1.5),
	}
}

// beside promises at most bound more nanoseconds than base.
func beside(work, algo, base string, w bench.Workload, bound float64) line {
	mine, than := cell{algo, w}, cell{base, w}
	return line{work: work, target: fmt.Sprintf("≤ %.4g ns more", bound), bound: bound, cells: []cell{mine, than},
		read: func(l *lab) (reading, error) {
			more := l.median(mine) - l.median(than)
			return reading{value: more, measured: fmt.Sprintf("%s more than %s", nanos(more), nanos(l.median(than)))}, nil
		}}
}

// overMiddlewares promises at most bound times what the fastest of the peers' middlewares costs.
func overMiddlewares(work string, w bench.Workload, bound float64) line {
	mine := cell{"httplimit", w}
	timed := []cell{mine}
	for _, s := range bench.Specs() {
		if s.Kind == bench.PeerHTTP {
			timed = append(timed, cell{s.Name, w})
		}
	}
	return line{work: work, target: fmt.Sprintf("≤ %.3f × fastest peer", bound), bound: bound, cells: timed,
		read: func(l *lab) (reading, error) {
			best := l.fastest(timed[1:])
			r := l.ratio(mine, best)
			return reading{
				value:    r,
				measured: fmt.Sprintf("%s; %s %s", nanos(l.median(mine)), best.algo, nanos(l.median(best))),
				ratio:    fmt.Sprintf("%.2f", r),
			}, nil
		}}
}
