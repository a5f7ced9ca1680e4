package prove

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/replay"
)

// maxSearched is the largest bound for which a schedule is searched.
const maxSearched = 100_000

// base is an instant at which windows of most lengths begin.
var base = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// search looks for a schedule that reaches b.Most in one process. It tries intervals that begin with a window of a rule, or
// just before a window ends. In each interval, it sends requests to a limiter, each at the first instant at which the
// request is granted. If a schedule reaches b.Most, search stores the schedule in b, and changes b.How from Upper to
// Reached.
func (p *Prover) search(endpoint string, b *Bound, client bool) error {
	rules, err := p.Rules(endpoint)
	if err != nil || b.Most > maxSearched {
		return err
	}
	starts := []time.Time{base}
	for i := range rules {
		if per := rules[i].Rate.Per; rules[i].Algorithm.Windowed() && per > 0 {
			edge := base.Add(per - time.Duration(base.UnixNano()%int64(per)))
			starts = append(starts, edge.Add(-1), edge)
		}
	}
	for _, start := range starts {
		n, schedule, err := p.play(endpoint, start, b, client)
		if err != nil {
			return err
		}
		if n >= b.Most {
			b.Schedule, b.Start = schedule, start
			if b.How == Upper {
				b.How = Reached
			}
			return nil
		}
	}
	return nil
}

// play sends requests to a new limiter, in the interval that begins at start. It returns how many were granted, and when.
func (p *Prover) play(endpoint string, start time.Time, b *Bound, client bool) (n int, schedule []Grant, err error) {
	clock := ratelimit.NewFakeClock(start)
	l, err := p.setup.Make(ratelimit.WithClock(clock))
	if err != nil {
		return 0, nil, err
	}
	end := start.Add(b.Length)
	for i := 0; n < b.Most; i++ {
		req := p.request(endpoint, i, client)
		res, err := l.Check(context.Background(), req)
		if err != nil {
			return 0, nil, err
		}
		now := clock.Now()
		switch last := len(schedule) - 1; {
		case res.Allowed && last >= 0 && schedule[last].At.Equal(now):
			n++
			schedule[last].N++
		case res.Allowed:
			n++
			schedule = append(schedule, Grant{now, 1})
		case res.RetryAfter == ratelimit.Never || res.RetryAfter >= end.Sub(now):
			return n, schedule, nil
		default:
			clock.Advance(res.RetryAfter)
		}
	}
	return n, schedule, nil
}

// request returns the request with the given number. If client is true, all requests are of one client. Otherwise each
// number has its own client.
func (p *Prover) request(endpoint string, number int, client bool) ratelimit.Request {
	req := ratelimit.Request{Client: "client", IP: "192.0.2.1", Endpoint: endpoint}
	if !client {
		req.Client, req.IP = fmt.Sprint("client", number), fmt.Sprintf("2001:db8::%x:%x", number>>16, number&0xffff)
		req.Attrs = make(map[string]string)
		for _, r := range p.rules {
			for _, part := range attrsOf(r.Key) {
				req.Attrs[part] = fmt.Sprint(number)
			}
		}
	}
	if p.setup.Unit != "" {
		req.Costs = []ratelimit.Cost{{Unit: p.setup.Unit, N: 1}}
	}
	return req
}

// attrsOf returns the names of the attributes in a key type.
func attrsOf(key ratelimit.KeyType) (names []string) {
	for _, part := range replay.PartsOf(key) {
		if name, ok := strings.CutPrefix(part, "attr:"); ok {
			names = append(names, name)
		}
	}
	return names
}
