package main

import (
	"fmt"

	"github.com/ratelimit-go/ratelimit/bench"
)

// middlewareLines returns the lines of the report that measure allowed requests through the HTTP
// middleware and the gRPC interceptor. The HTTP middleware is measured in two ways: with direct
// calls of its handler, and in a server that is called over the network interface of this machine
// (loopback).
func middlewareLines() []line {
	return []line{
		extra("httplimit: a handler, over the bare one", "httplimit", "http-bare"),
		extra("httplimit: a ServeMux, over the bare one", "httplimit-mux", "http-bare-mux"),
		middleware("httplimit: a handler", "httplimit", "http-bare", bench.PeerHTTP).titled("HTTP middleware around an empty handler"),
		garbage("httplimit: garbage of a request, a handler", "httplimit", "http-bare", "http-throttled"),
		extra("httplimit: a server on the loopback, over the bare one", "server-httplimit", "server-bare"),
		middleware("httplimit: a server on the loopback", "server-httplimit", "server-bare", bench.PeerServer),
		garbage("httplimit: garbage of a request, a server on the loopback", "server-httplimit", "server-bare", "server-throttled"),
		extra("grpclimit: a unary call, over a bare interceptor", "grpclimit", "grpc-bare"),
	}
}

// extra returns a line of the report that shows how many nanoseconds longer a request takes with
// one subject than with another subject, the base. The parameters algo and base are the names of
// the two subjects.
func extra(work, algo, base string) line {
	mine, than := cell{algo, one}, cell{base, one}
	return line{work: work, cells: []cell{mine, than}, read: func(l *lab) (reading, error) {
		more := l.median(mine) - l.median(than)
		return reading{value: more, measured: fmt.Sprintf("%s more than %s", nanos(more), nanos(l.median(than)))}, nil
	}}
}

// middleware returns a line of the report that compares a middleware with the fastest subject of
// the given kind. The parameter algo is the name of the subject with the middleware. The parameter
// base is the name of a subject without a middleware: the line also shows how much longer a request
// takes than with this subject.
func middleware(work, algo, base string, peers bench.Kind) line {
	l := comparison{algo: algo, work: one, peers: []bench.Kind{peers}}.line(work)
	bare := cell{base, one}
	l.cells = append(l.cells, bare)
	compare := l.read
	l.read = func(l *lab) (reading, error) {
		got, err := compare(l)
		got.base = ratio{got.value - l.median(bare), nanos(got.value-l.median(bare)) + " more than bare"}
		return got, err
	}
	return l
}

// garbage returns a line of the report that shows how much more a request allocates with a
// middleware than without one. It shows this for two middlewares: for this module's, which is the
// subject named algo, and for another module's, which is the subject named peer. The subject named
// base has no middleware.
func garbage(work, algo, base, peer string) line {
	return line{work: work, read: func(l *lab) (reading, error) {
		var found [3]bench.Garbage
		for i, name := range []string{base, algo, peer} {
			s, err := bench.Find(name)
			if err != nil {
				return reading{}, err
			}
			if found[i], err = bench.GarbageOf(s, one, l.requests()); err != nil {
				return reading{}, err
			}
		}
		more := func(g bench.Garbage) string {
			return fmt.Sprintf("%.0f allocs, %.0f B", g.Allocs-found[0].Allocs, g.Bytes-found[0].Bytes)
		}
		return reading{
			value: found[1].Allocs - found[0].Allocs,
			measured: fmt.Sprintf("%s more than bare (%.0f allocs, %.0f B); %s %s more",
				more(found[1]), found[0].Allocs, found[0].Bytes, peer, more(found[2])),
		}, nil
	}}
}

// requests is the number of requests over which allocations are averaged.
func (s sizes) requests() int { return 100 * s.rounds }
