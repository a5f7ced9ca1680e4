package configfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Watcher applies a file to a limiter whenever the content of the file changes. [Open] returns one. A
// struct literal with a Path and a Limiter works too; its Run begins by applying the file.
//
// The Watcher reads the file at intervals and compares its content. It does not rely on time stamps,
// which a copy may preserve, or on events, which network file systems do not send. It resolves symbolic
// links in the path at each read, so links may be replaced.
//
// If the file has problems, the limiter keeps its rules. The Watcher tries a refused file again when the
// file changes, or when Reload is called. When a file is applied, it replaces all rules, including the
// rules that were added in code. [File.Apply] says what the rules and keys keep.
//
// The fields must not be changed once a method has been called. The methods are safe for
// concurrent use by multiple goroutines.
type Watcher struct {
	Path    string                 // the path of the file
	Limiter *ratelimit.RateLimiter // the limiter whose rules are replaced
	Every   time.Duration          // the interval between reads, varied by up to a tenth; 0 means 5 s
	Log     *slog.Logger           // gets a line for each new content of the file; nil means slog.Default()

	// Check gets the rules of a file before they are applied. They have the form in which
	// [ratelimit.RateLimiter.Rules] returns the rules of a limiter. If Check returns an error, the file is
	// refused, and its rules do not replace the current ones. For example, the method CheckRules of an
	// httplimit.Middleware returns a Check that refuses a rule which would limit nothing. Check must not call
	// Reload. If Check is nil, every valid file is applied.
	Check func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error

	applying sync.Mutex // held while the file is read and applied
	seen     string     // identifies the content or error that was handled last; guarded by applying
	dealt    int        // how often a content was applied or refused, or an error recorded; guarded by applying

	mu     sync.Mutex
	status Status // guarded by mu
}

// A Status reports what a [Watcher] has done.
type Status struct {
	// Hash is the SHA-256 hash, in hexadecimal digits, of the content that was applied last.
	// It is empty if no file was applied yet.
	Hash string

	// Applied is the time at which a file was applied last. It is zero if no file was applied
	// yet.
	Applied time.Time

	// Err is the error of [Load], [File.Apply] or Watcher.Check from the last attempt to apply the
	// file. It is nil if the file was applied, or if its content is again the content that was applied last.
	Err error

	// Loads counts how often a file was applied. Failures counts how often a file was refused
	// or could not be read. Reads by Run that find the same content again are not counted.
	Loads, Failures int
}

const (
	defaultEvery = 5 * time.Second
	longEvery    = math.MaxInt64 / 2 // the longest interval: the method pause makes it up to a tenth longer, without overflow

	// A read can find a file half written. So a new content is applied only when two reads in a row find
	// it. The time between these reads is restAfter. If maxReads reads are made, and no two in a row find
	// the same content, the newest valid content is applied.
	restAfter = 250 * time.Millisecond
	maxReads  = 20
)

// Run reads the file, first at once and then at intervals, until ctx ends. It then returns the error of
// ctx. It applies a new content of the file when two reads 250 ms apart find the same content. If each
// of 20 reads finds another content than the read before, Run applies the newest valid one.
//
// If the fields of w are invalid, Run returns at once with an error that matches
// [ratelimit.ErrInvalidConfig]. It starts no goroutine.
func (w *Watcher) Run(ctx context.Context) error {
	if err := w.invalid(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		w.readUntilStable(ctx)
		sleep(ctx, w.pause())
	}
	return ctx.Err()
}

// Reload reads the file once and applies it, even if it has not changed. It replaces rules that were
// added in code meanwhile. Call Reload when the file is complete, such as on the signal SIGHUP. If the
// file has problems, the limiter keeps its rules, and Reload returns the errors of [Load], [File.Apply]
// and Check.
//
// Reload waits while another call is applying the file. A [ratelimit.BuildFunc] for an algorithm in the
// file must not call Reload, because that call would wait forever.
func (w *Watcher) Reload() error {
	if err := w.invalid(); err != nil {
		return err
	}
	r := w.reload()
	w.tell(context.Background(), r)
	return r.err
}

// Status returns what w has done so far.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// invalid returns an error if fields of w are invalid.
func (w *Watcher) invalid() error {
	var problems []error
	if w.Path == "" {
		problems = append(problems, &ratelimit.ConfigError{Field: "watcher.path", Value: `""`, Reason: "must be the path of a file"})
	}
	if w.Limiter == nil {
		problems = append(problems, &ratelimit.ConfigError{Field: "watcher.limiter", Value: "nil",
			Reason: "must be made by ratelimit.New or configfile.Open"})
	}
	if w.Every < 0 {
		problems = append(problems, &ratelimit.ConfigError{Field: "watcher.every", Value: w.Every,
			Reason: "must not be negative; 0 means " + defaultEvery.String()})
	}
	return errors.Join(problems...)
}

// pause returns how long Run waits before the next read: Every, varied at random by up to a tenth, so
// that many processes do not read at the same time.
func (w *Watcher) pause() time.Duration {
	every := defaultEvery
	if w.Every > 0 {
		every = min(w.Every, longEvery)
	}
	return every - every/10 + rand.N(every/5+1)
}

// sleep waits for d, or until ctx ends. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// opened records that the limiter was made from a file with this content.
func (w *Watcher) opened(data []byte) {
	s := sightOf(data, nil)
	w.seen = s.id
	w.status = Status{Hash: s.hash, Applied: time.Now(), Loads: 1}
}

// A sight is the outcome of one read of the file: its content or an error.
type sight struct {
	id   string // two sights with the same content or error have the same id
	hash string // the SHA-256 hash of data; empty if the file could not be read
	data []byte
	err  error // why the file could not be read, or nil
}

func sightOf(data []byte, err error) sight {
	if err != nil {
		return sight{id: "error: " + err.Error(), err: err}
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	return sight{id: hash, hash: hash, data: data}
}

// readUntilStable reads the file until two reads in a row find the same content, and applies this content if it is new.
func (w *Watcher) readUntilStable(ctx context.Context) {
	var found reads
	for n := range maxReads {
		if n > 0 && !sleep(ctx, restAfter) {
			return
		}
		r, done := w.read(&found, n == maxReads-1)
		if r != nil {
			w.tell(ctx, r)
		}
		if done {
			return
		}
	}
}

// reads collects the sights (the outcomes of reads) of one call of readUntilStable.
type reads struct {
	sights []sight
	dealt  int // Watcher.dealt at the first of these reads; if Watcher.dealt has changed, Reload has handled the file since
}

// read reads the file once for readUntilStable, and adds the outcome (a sight) to found. The second
// parameter is true if no other read follows. If read handles an outcome, so that the file is applied or
// refused, r says what was done; otherwise r is nil. If done is true, readUntilStable stops.
func (w *Watcher) read(found *reads, last bool) (r *result, done bool) {
	w.applying.Lock()
	defer w.applying.Unlock()
	s := sightOf(read(w.Path))
	switch {
	case s.id == w.seen:
		return nil, true
	case s.hash != "" && s.hash == w.Status().Hash:
		return w.again(s), true
	case found.dealt != w.dealt: // Reload has handled the file in between, so start again with an empty list
		*found = reads{dealt: w.dealt}
	}
	atRest := len(found.sights) > 0 && found.sights[len(found.sights)-1].id == s.id
	found.sights = append(found.sights, s)
	switch {
	case atRest:
		return w.deal(s), true
	case last:
		return w.newest(found.sights), true
	}
	return nil, false
}

// newest applies the newest valid file among sights (the outcomes of reads). If no file is valid, newest
// records the error of the newest sight.
func (w *Watcher) newest(sights []sight) *result {
	for _, s := range slices.Backward(sights) {
		if f, err := w.parse(s); err == nil {
			if r := w.apply(s, f); r.err == nil {
				return w.note(r)
			}
		}
	}
	return w.deal(sights[len(sights)-1])
}

// The method again handles a file that had a problem, and now has the content that was applied last. It
// records that the problem is over, but does not apply the content a second time, because that would
// remove the rules that were added in code meanwhile.
func (w *Watcher) again(s sight) *result {
	w.seen = s.id
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Err = nil
	return &result{sight: s, again: true}
}

// reload reads the file once, and applies it.
func (w *Watcher) reload() *result {
	w.applying.Lock()
	defer w.applying.Unlock()
	return w.deal(sightOf(read(w.Path)))
}

// A result says what was done with one sight (the outcome of one read of the file).
type result struct {
	sight
	err     error // why the file was not applied; nil if it was applied
	isNew   bool  // whether the content or the read error differs from what was handled before
	again   bool  // whether the limiter already had this content, so that it was not applied a second time
	changes changes

	overrides int // number of overrides in the content
}

// deal handles the sight s, the outcome of one read of the file: it applies the content and records
// the result. The caller holds w.applying.
func (w *Watcher) deal(s sight) *result {
	f, err := w.parse(s)
	if err != nil {
		return w.note(&result{sight: s, err: err})
	}
	return w.note(w.apply(s, f))
}

// parse returns the File with the content in s, the outcome of one read. If the read has failed, parse
// returns its error.
func (w *Watcher) parse(s sight) (*File, error) {
	if s.err != nil {
		return nil, s.err
	}
	return Parse(w.Path, s.data)
}

// apply applies the file f, which was parsed from the content of s, the outcome of one read. The caller
// holds w.applying.
func (w *Watcher) apply(s sight, f *File) *result {
	before := named(w.Limiter)
	err := f.applyIf(w.Limiter, w.Check)
	r := &result{sight: s, err: err, overrides: len(f.overrides)}
	if err == nil {
		r.changes = changesOf(before, named(w.Limiter))
	}
	return r
}

// note records the result r in the status of w. The caller holds w.applying.
func (w *Watcher) note(r *result) *result {
	r.isNew = r.id != w.seen
	w.seen = r.id
	w.dealt++
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Err = r.err
	if r.err != nil {
		w.status.Failures++
		return r
	}
	w.status.Loads++
	w.status.Hash, w.status.Applied = r.hash, time.Now()
	return r
}

// tell logs the result r if the content or the error of the file is new, if the file has recovered from
// an error, or if rules have changed.
func (w *Watcher) tell(ctx context.Context, r *result) {
	log := w.Log
	if log == nil {
		log = slog.Default()
	}
	switch {
	case r.again:
		log.LogAttrs(ctx, slog.LevelInfo, "ratelimit: the file is again what was applied",
			slog.String("file", w.Path), slog.String("hash", r.hash))
	case r.err != nil && r.isNew:
		var problems []string
		all := parts(r.err)
		for _, err := range all[:min(len(all), maxLogged)] {
			problems = append(problems, err.Error())
		}
		log.LogAttrs(ctx, slog.LevelError, "ratelimit: the file is refused, the rules stay",
			slog.String("file", w.Path), slog.String("hash", r.hash), slog.Int("problems", len(all)), slog.Any("errors", problems))
	case r.err == nil && (r.isNew || !r.changes.none()):
		attrs := []slog.Attr{slog.String("file", w.Path), slog.String("hash", r.hash), slog.Any("added", describe(r.changes.added)),
			slog.Any("removed", describe(r.changes.removed)), slog.Any("changed", describe(r.changes.changed))}
		if r.overrides > 0 {
			attrs = append(attrs, slog.Int("overrides", r.overrides))
		}
		log.LogAttrs(ctx, slog.LevelInfo, "ratelimit: the file is applied", attrs...)
	}
}
