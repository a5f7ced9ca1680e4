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

// A Watcher applies a file to a limiter whenever the file changes. [Open] makes one; so does a
// literal with a Path and a Limiter, whose Run then applies the file as it is first.
//
// It reads the file and compares what is in it. It asks for no time stamps, which a copy may
// keep, and for no events, which a network file system does not send. The path is followed anew
// each time, so it may lead through symbolic links that are replaced.
//
// Whatever is wrong with the file, the rules of the limiter stay as they are. What was refused is
// tried again when the file changes, or by Look. What is applied replaces all rules, also those
// that code has added; see [File.Apply] for what stays.
//
// The fields must not be changed once a method has been called. The methods are safe for
// concurrent use by multiple goroutines.
type Watcher struct {
	Path    string                 // the file
	Limiter *ratelimit.RateLimiter // whose rules are replaced
	Every   time.Duration          // how often Run reads the file, give or take a tenth; 0 means 5 s
	Log     *slog.Logger           // told of each new content of the file, once; nil means slog.Default()

	looking sync.Mutex // held while the file is read and applied
	seen    string     // the sight that was dealt with last; guarded by looking
	dealt   int        // how many were; guarded by looking

	mu     sync.Mutex
	status Status // guarded by mu
}

// A Status says what a [Watcher] has done.
type Status struct {
	// Hash is the SHA-256 hash of the file that was applied last, in hexadecimal digits. It
	// is empty if none was.
	Hash string

	// Applied is when that was. It is zero if none was.
	Applied time.Time

	// Err is what was wrong with the file when it was read or applied last, as [Load] and
	// [File.Apply] return it, or nil.
	Err error

	// Loads and Failures are how often a file was applied, and how often one was refused or
	// could not be read. A file that has not changed counts only if Look has applied it.
	Loads, Failures int
}

const (
	usualEvery = 5 * time.Second
	longEvery  = math.MaxInt64 / 2

	// A file that is written in place is read half done. So it is applied when two reads
	// in a row find the same. If it never rests, what it had last is taken.
	restAfter = 250 * time.Millisecond
	maxReads  = 20
)

// Run looks at the file until ctx ends, and then returns the error of ctx. It first looks at
// once. It applies a file that has changed when two reads 250 ms apart find the same in it. If 20
// reads in a row all differ, it applies the newest that it can.
//
// Run returns at once, with an error that matches [ratelimit.ErrInvalidConfig], if w cannot
// work. It starts no goroutine.
func (w *Watcher) Run(ctx context.Context) error {
	if err := w.invalid(); err != nil {
		return err
	}
	for ctx.Err() == nil {
		w.settle(ctx)
		sleep(ctx, w.pause())
	}
	return ctx.Err()
}

// Look reads the file now and applies it, also if it has not changed, and whatever the rules are
// that code has added since. It is for a signal such as SIGHUP, which says that the file is
// ready: Look reads it once. If anything is wrong, the rules stay, and Look returns what it is,
// as [Load] and [File.Apply] do.
//
// While the file is being applied by another call, Look waits for that. So it must not be called
// by the [ratelimit.BuildFunc] of an algorithm in the file.
func (w *Watcher) Look() error {
	if err := w.invalid(); err != nil {
		return err
	}
	r := w.look()
	w.tell(context.Background(), r)
	return r.err
}

// Status returns what w has done so far.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// invalid returns what is wrong with the fields of w.
func (w *Watcher) invalid() error {
	var problems []error
	if w.Path == "" {
		problems = append(problems, &ratelimit.ConfigError{Field: "watcher.path", Value: `""`, Reason: "must be the path of a file"})
	}
	if w.Limiter == nil {
		problems = append(problems, &ratelimit.ConfigError{Field: "watcher.limiter", Value: "nil", Reason: "must be made by ratelimit.New or configfile.Open"})
	}
	if w.Every < 0 {
		problems = append(problems, &ratelimit.ConfigError{Field: "watcher.every", Value: w.Every, Reason: "must not be negative; 0 means " + usualEvery.String()})
	}
	return errors.Join(problems...)
}

// pause returns how long Run waits between two looks: Every, give or take a tenth, so that many
// processes do not all read at the same time.
func (w *Watcher) pause() time.Duration {
	every := usualEvery
	if w.Every > 0 {
		every = min(w.Every, longEvery)
	}
	return every - every/10 + rand.N(every/5+1)
}

// sleep waits for d, or until ctx ends. It reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// opened notes that the limiter was made of a file with this content.
func (w *Watcher) opened(data []byte) {
	s := sightOf(data, nil)
	w.seen = s.id
	w.status = Status{Hash: s.hash, Applied: time.Now(), Loads: 1}
}

// A sight is what one read of the file has found.
type sight struct {
	id   string // equal to that of another sight if both have found the same
	hash string // of the data; empty if there are none
	data []byte
	err  error // why the file cannot be read
}

func sightOf(data []byte, err error) sight {
	if err != nil {
		return sight{id: "error: " + err.Error(), err: err}
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	return sight{id: hash, hash: hash, data: data}
}

// settle reads the file until two reads in a row find the same. If that is new, it is applied.
func (w *Watcher) settle(ctx context.Context) {
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

// reads are what the reads of one settle have found.
type reads struct {
	sights []sight
	dealt  int // Watcher.dealt when the first was made
}

// read is one read of settle, beside those that have found what is in found. It returns what
// came of the file, if that was dealt with, and whether settle is done.
func (w *Watcher) read(found *reads, last bool) (r *result, done bool) {
	w.looking.Lock()
	defer w.looking.Unlock()
	s := sightOf(read(w.Path))
	switch {
	case s.id == w.seen:
		return nil, true
	case s.hash != "" && s.hash == w.Status().Hash:
		return w.again(s), true
	case found.dealt != w.dealt: // Look has been faster: what was read before is old
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

// newest deals with the newest of sights that can be applied or, if there is none, with the
// newest of all.
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

// again notes that the file, after an error, is again what was applied last. It is not applied
// once more: that would only take away what code has added since.
func (w *Watcher) again(s sight) *result {
	w.seen = s.id
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Err = nil
	return &result{sight: s, again: true}
}

// look reads the file and deals with what it finds.
func (w *Watcher) look() *result {
	w.looking.Lock()
	defer w.looking.Unlock()
	return w.deal(sightOf(read(w.Path)))
}

// A result is what came of one content of the file.
type result struct {
	sight
	err     error // why it was not applied
	isNew   bool  // it is not what was dealt with before
	again   bool  // it is what was applied last, and nothing was done
	changes changes
}

// deal applies s, and notes what came of it. w.looking is held.
func (w *Watcher) deal(s sight) *result {
	f, err := w.parse(s)
	if err != nil {
		return w.note(&result{sight: s, err: err})
	}
	return w.note(w.apply(s, f))
}

// parse returns the File of s.
func (w *Watcher) parse(s sight) (*File, error) {
	if s.err != nil {
		return nil, s.err
	}
	return Parse(w.Path, s.data)
}

// apply applies f, which is the File of s. w.looking is held.
func (w *Watcher) apply(s sight, f *File) *result {
	before := named(w.Limiter)
	err := f.Apply(w.Limiter)
	r := &result{sight: s, err: err}
	if err == nil {
		r.changes = changesOf(before, named(w.Limiter))
	}
	return r
}

// note notes r in the status. w.looking is held.
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

// maxLogged is how many problems, and how many names of each kind, a log line has.
const maxLogged = 10

// tell logs r if its content is new, or if it has changed the rules.
func (w *Watcher) tell(ctx context.Context, r *result) {
	log := w.Log
	if log == nil {
		log = slog.Default()
	}
	switch {
	case r.again:
		log.LogAttrs(ctx, slog.LevelInfo, "ratelimit: the file is again what was applied", slog.String("file", w.Path), slog.String("hash", r.hash))
	case r.err != nil && r.isNew:
		var problems []string
		all := parts(r.err)
		for _, err := range all[:min(len(all), maxLogged)] {
			problems = append(problems, err.Error())
		}
		log.LogAttrs(ctx, slog.LevelError, "ratelimit: the file is refused, the rules stay", slog.String("file", w.Path), slog.String("hash", r.hash),
			slog.Int("problems", len(all)), slog.Any("errors", problems))
	case r.err == nil && (r.isNew || !r.changes.none()):
		log.LogAttrs(ctx, slog.LevelInfo, "ratelimit: the file is applied", slog.String("file", w.Path), slog.String("hash", r.hash),
			slog.Any("added", shown(r.changes.added)), slog.Any("removed", shown(r.changes.removed)), slog.Any("changed", shown(r.changes.changed)))
	}
}
