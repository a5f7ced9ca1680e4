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

// Peers (limiters of other modules) that can be configured in several ways get their fastest
// configuration. During a measurement no peer removes keys. No peer has a maximum number of keys.

// The type xtime runs golang.org/x/time/rate. Its limiters have no keys, so a sync.Map holds one
// limiter for each key, as is common practice.
type xtime struct {
	limit rate.Limit
	burst int
	keys  sync.Map // maps each key to its *rate.Limiter
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

// The type sethvargo runs the memory store of github.com/sethvargo/go-limiter. The store counts in fixed
// windows, and the window of a key begins with the first request of the key.
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

// The type gcra runs the GCRA limiter of github.com/throttled/throttled on its memory store. The
// store has no maximum number of keys, because a maximum would add an LRU list under one lock. If
// another caller changes the state of a key at the same time, the limiter tries again. By default
// the limiter returns an error after ten attempts. Here it tries until it succeeds.
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
		MaxBurst: l.Burst - 1, // MaxBurst does not count the first unit of a burst
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

// The type ululeWindow runs the memory store of github.com/ulule/limiter. It counts in fixed
// windows, and the window of a key begins with the first request of the key.
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

// The type httpWindow runs github.com/go-chi/httprate, a sliding window counter that needs an HTTP
// request. The method OnLimit is called, which counts and decides but writes no response. All
// response headers are switched off, so that little of HTTP is measured.
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

// The type spacer runs go.uber.org/ratelimit. It has no keys, and sleeps instead of denying. At one
// unit a nanosecond it never sleeps, so its figure is the time for reading its clock and for
// counting. It is not compared with limiters that look up a key.
type spacer struct{ limiter uber.Limiter }

func newUber(Limit) (Subject, error) {
	return &spacer{uber.New(int(time.Second))}, nil
}

func (s *spacer) Allow(string) bool {
	s.limiter.Take()
	return true
}
