package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A PostgresWork describes the calls to a limiter that keeps its state in PostgreSQL. Either the
// limit is so high that all of the calls are allowed, or all units are used and all are denied.
type PostgresWork struct {
	Keys      int           // number of different keys; each call chooses a key at random
	Callers   int           // number of goroutines of each process that call at once
	Processes int           // number of limiters that share the keys; each has connections of its own, like one of several processes
	Trip      time.Duration // how much longer than on this machine each round trip to the server takes
	Denied    bool          // whether all calls are denied
}

// String returns the PostgresWork as it appears in the name of a benchmark.
func (w PostgresWork) String() string {
	text := fmt.Sprintf("keys=%s/callers=%d/processes=%d", Count(w.Keys), w.Callers, w.Processes)
	if w.Trip > 0 {
		text += "/trip=" + w.Trip.String()
	}
	if w.Denied {
		text += "/denied"
	}
	return text
}

// A PostgresSample holds the figures of one batch of calls.
type PostgresSample struct {
	PerSecond float64       // decisions a second, of all processes together
	Latency   time.Duration // the median time of a call
	P99       time.Duration // the time that one call in a hundred exceeds
	Share     float64       // how many decisions the luckiest process got for each decision of the unluckiest one
	Log       float64       // bytes that the server wrote to its write-ahead log (WAL) for each decision
}

// A PostgresRun is a limiter with its state in PostgreSQL that is ready to be timed, once for each
// process of a PostgresWork. It also has this work.
type PostgresRun struct {
	server *PostgresServer
	spec   PostgresSpec
	work   PostgresWork
	asks   []StoreAsk        // one for each process
	ends   []func()          // end what the processes have started
	keys   []*Keys           // a generator of keys for each caller of each process
	times  [][]time.Duration // how long the calls of each caller took in the last batch
	size   int64             // bytes of the table before the first batch, when each key has been written once
}

// NewPostgresRun makes the limiter that s describes in a new table, and returns it as a PostgresRun,
// ready to be timed with the calls that w describes. It makes a call for every key of w, so that the
// table already has a row for each key.
func NewPostgresRun(ctx context.Context, server *PostgresServer, s PostgresSpec, w PostgresWork) (*PostgresRun, error) {
	r := &PostgresRun{server: server, spec: s, work: w, times: make([][]time.Duration, w.Processes*w.Callers)}
	for i := range r.times {
		r.keys = append(r.keys, NewKeys(Varied, w.Keys, uint64(i)+1))
	}
	err := server.execute(ctx, "drop table if exists "+s.table+"; "+s.schema)
	for range w.Processes {
		if err == nil {
			err = r.start(ctx)
		}
	}
	if err == nil {
		err = r.fill(ctx)
	}
	if err == nil {
		r.size, err = server.size(ctx, s.table)
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("bench: %s: %w", s.Name, err)
	}
	return r, nil
}

// limit returns the limit of each key.
func (r *PostgresRun) limit() Limit {
	outcome := Allowed
	if r.work.Denied {
		outcome = Denied
	}
	return bucketLimit(Workload{Keys: r.work.Keys, Outcome: outcome})
}

// start starts the limiter of one more process.
func (r *PostgresRun) start(ctx context.Context) error {
	pool, err := r.server.pool(ctx, r.spec.Name, r.spec.connections, r.work.Trip)
	if err != nil {
		return err
	}
	r.ends = append(r.ends, pool.Close)
	ask, end, err := r.spec.start(ctx, pool, r.limit(), r.work)
	if err != nil {
		return err
	}
	r.asks, r.ends = append(r.asks, ask), append(r.ends, end)
	return nil
}

// Close ends what the processes have started, the last first. The table stays until the next run of
// the same limiter. A second Close does nothing.
func (r *PostgresRun) Close() {
	for _, end := range slices.Backward(r.ends) {
		end()
	}
	r.asks, r.ends = nil, nil
}

// fill makes one call for each key, one after the other. With several callers at once, PostgreSQL
// adds many pages to the table at a time, of which some stay empty.
func (r *PostgresRun) fill(ctx context.Context) error {
	for i := range r.work.Keys {
		if err := r.asks[0].granted(ctx, Varied.Key(i)); err != nil {
			return err
		}
	}
	return nil
}

// Time lets all callers make calls until the given duration is over. If a call fails, or has another
// outcome than the work says, Time returns an error.
func (r *PostgresRun) Time(ctx context.Context, batch time.Duration) (PostgresSample, error) {
	before, err := r.server.written(ctx)
	if err != nil {
		return PostgresSample{}, err
	}
	start := time.Now()
	err = atOnce(len(r.keys), func(i int) (err error) {
		ask := func(key string) error { return r.call(ctx, r.asks[i/r.work.Callers], key) }
		r.times[i], err = repeat(ask, r.keys[i], r.times[i][:0], start.Add(batch))
		return err
	})
	took := time.Since(start)
	if err != nil {
		return PostgresSample{}, fmt.Errorf("bench: %s: %w", r.spec.Name, err)
	}
	after, err := r.server.written(ctx)
	return r.sample(took, after-before), err
}

// The method call calls the function ask for the key, and checks the outcome.
func (r *PostgresRun) call(ctx context.Context, ask StoreAsk, key string) error {
	switch err := ask.granted(ctx, key); {
	case !r.work.Denied:
		return err
	case err == nil:
		return errAllowed
	case errors.Is(err, errDenied):
		return nil
	default:
		return err
	}
}

// sample returns the figures of a batch of calls. The batch took the given duration, and the server
// has written the given number of bytes.
func (r *PostgresRun) sample(took time.Duration, written int64) PostgresSample {
	shares := make([]int, r.work.Processes)
	for i, times := range r.times {
		shares[i/r.work.Callers] += len(times)
	}
	all := slices.Concat(r.times...)
	slices.Sort(all)
	return PostgresSample{
		PerSecond: float64(len(all)) / took.Seconds(),
		Latency:   all[len(all)/2],
		P99:       all[len(all)*99/100],
		Share:     float64(slices.Max(shares)) / float64(slices.Min(shares)),
		Log:       float64(written) / float64(len(all)),
	}
}

// PostgresSizes holds the figures of a PostgresRun that do not depend on time.
type PostgresSizes struct {
	Key     float64 // bytes that a key takes in the table with its index, after a single call for each key
	InPlace float64 // the share of updates that left the index as it was (PostgreSQL calls them HOT); 0 if there was no update
}

// Sizes closes the run, and returns its sizes.
func (r *PostgresRun) Sizes(ctx context.Context) (PostgresSizes, error) {
	r.Close()
	share, err := r.server.inPlace(ctx, r.spec.table, r.spec.Name)
	return PostgresSizes{Key: float64(r.size) / float64(r.work.Keys), InPlace: share}, err
}
