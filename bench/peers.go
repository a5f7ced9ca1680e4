package bench

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	uber "go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// Where a peer can be set up in more than one way, it is set up in the one
// that is faster for it. None of them sweeps while it is measured, and each
// holds as many keys as it likes.

// xtime is golang.org/x/time/rate, which has no keys, with one limiter for
// each key in a sync.Map, as people do.
type xtime struct {
	limit rate.Limit
	burst int
	keys  sync.Map // of *rate.Limiter
}

func newXTime(l Limit) (Subject, error) {
	perSecond := float64(l.Rate) / l.Per.Seconds()
	return &xtime{limit: rate.Limit(perSecond), burst: l.Burst}, nil
}

func (x *xtime) Allow(key string) bool {
	v, ok := x.keys.Load(key)
	if !ok {
		v, _ = x.keys.LoadOrStore(key, rate.NewLimiter(x.limit, x.burst))
	}
	return v.(*rate.Limiter).Allow()
}

// sethvargo is the memory store of github.com/sethvargo/go-limiter: a fixed
// window that opens with the key's first ask.
type sethvargo struct {
	store limiter.Store
	ctx   context.Context
}

func newSethvargo(l Limit) (Subject, error) {
	store, err := memorystore.New(&memorystore.Config{
		Tokens:       uint64(l.Rate),
		Interval:     l.Per,
		DisablePurge: true,
	})
	return &sethvargo{store, context.Background()}, err
}

func (s *sethvargo) Allow(key string) bool {
	_, _, _, ok, err := s.store.Take(s.ctx, key)
	return ok && err == nil
}

// gcra is GCRA of github.com/throttled/throttled on its memory store, without
// the bound on keys, which would put an LRU under one lock. It gives up with an
// error when it loses a race ten times; here it may lose as often as it takes.
type gcra struct {
	limiter *throttled.GCRARateLimiterCtx
	ctx     context.Context
}

func newThrottled(l Limit) (Subject, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	lim, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(l.Rate, l.Per),
		MaxBurst: l.Burst - 1, // it allows one more
	})
	if err != nil {
		return nil, err
	}
	lim.SetMaxCASAttemptsLimit(1 << 30)
	return &gcra{lim, context.Background()}, nil
}

func (g *gcra) Allow(key string) bool {
	limited, _, err := g.limiter.RateLimitCtx(g.ctx, key, 1)
	return !limited && err == nil
}

// ululeWindow is the memory store of github.com/ulule/limiter: a fixed window
// that opens with the key's first ask.
type ululeWindow struct {
	limiter *ulule.Limiter
	ctx     context.Context
}

func newUlule(l Limit) (Subject, error) {
	store := memory.NewStoreWithOptions(ulule.StoreOptions{Prefix: ulule.DefaultPrefix})
	quota := ulule.Rate{Period: l.Per, Limit: int64(l.Rate)}
	return &ululeWindow{ulule.New(store, quota), context.Background()}, nil
}

func (u *ululeWindow) Allow(key string) bool {
	res, err := u.limiter.Get(u.ctx, key)
	return err == nil && !res.Reached
}

// httpWindow is github.com/go-chi/httprate, a sliding window counter that can
// only be asked with a request in hand. It is asked through OnLimit, which
// counts and answers but does not respond, with all its response headers
// switched off, so that as little of HTTP as can be is measured.
type httpWindow struct {
	limiter *httprate.RateLimiter
	request *http.Request
}

func newHTTPRate(l Limit) (Subject, error) {
	lim := httprate.NewRateLimiter(l.Rate, l.Per, httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	return &httpWindow{lim, new(http.Request)}, nil
}

func (h *httpWindow) Allow(key string) bool {
	return !h.limiter.OnLimit(nil, h.request, key)
}

// spacer is go.uber.org/ratelimit, which has no keys and cannot deny: it
// sleeps. At one unit a nanosecond it has nothing to sleep for, and what is
// left is its clock and its bookkeeping. It is no peer to compare with, as it
// looks nothing up.
type spacer struct{ limiter uber.Limiter }

func newUber(Limit) (Subject, error) {
	return &spacer{uber.New(int(time.Second))}, nil
}

func (s *spacer) Allow(string) bool {
	s.limiter.Take()
	return true
}
