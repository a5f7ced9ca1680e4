package ratelimit

import (
	"context"
	"errors"
	"fmt"
)

// A Store keeps the state of limiters outside this process, so that several
// processes share it.
//
// It decides by its own clock, and bounds its own calls: nothing here sets a
// deadline for it. It must be safe for concurrent use by multiple goroutines.
//
// A Store may also have a method Supports(Algorithm, Rate) error. Then what it can
// not decide exactly is refused when a rule is made or changed.
//
// A Store of parts that fail independently, such as the nodes of a cluster, may have a
// method Part(Ask) int. It says which part has the state that the ask names, from 0 to
// 63; other numbers count by their lowest six bits. It is called for each ask, is quick,
// and goes by what names the state. Then a [RateLimiter] whose store answers for some
// parts asks for those on, and leaves to its failure policies only decisions with an ask
// about a part that does not answer. An error of Take or Reset may have a method
// Parts() []int, which [errors.As] finds, that says which parts have failed. Without it,
// or if it names none that were asked, all that were asked have.
//
// A Store that knows of denials without asking anybody may have a method
// Denied(Ask) (Result, bool). It answers an ask by itself that is sure to be denied, and
// else reports false, having done nothing. A [RateLimiter] calls it first where that
// saves it most of its own work: for a request of one rule without tiers.
type Store interface {
	// Take charges all asks, no two of which are about the same state, or in
	// the end none, and answers each as if it were alone. It charges none if any of them, shadows aside, does not fit.
	// An ask whose N is 0 looks: it answers as for one unit and is charged
	// nothing. Where the state of one decision lies on several nodes, a
	// denied decision may hold units for one round trip.
	//
	// A denial is an answer, never an error. An error means that nothing is
	// known about any of the asks; one that comes of ctx must match ctx's.
	Take(ctx context.Context, asks []Ask) ([]Result, error)

	// Reset makes the keys of asks as good as new. It ignores their N.
	Reset(ctx context.Context, asks []Ask) error
}

// An Ask is what one rule wants of a [Store].
type Ask struct {
	// Rule and Key name the state: the same pair, and Algorithm, is the
	// same state. Both are any bytes, and not to be joined by a separator.
	Rule, Key string

	// Client is whom the state is about, or empty where it is about more
	// than one. Asks about one Client may be kept together, such as under a
	// hash tag of a cluster. The same state is always asked for with the same
	// Client.
	Client string

	// Algorithm is one of the five of this package.
	Algorithm Algorithm

	// Rate is in force from this ask on. If it is not the one that the state
	// was last charged under, the time since counts at the slower of the two.
	Rate Rate

	// N is how many units to take, all or none; 0 looks.
	N int

	// Shadow makes an ask that never denies the others. It is charged if it
	// fits and they do.
	Shadow bool
}

// A denier is a store that knows of denials.
type denier interface{ Denied(a Ask) (Result, bool) }

// supportsOf returns the method of s that says what it cannot do, or nil.
func supportsOf(s Store) func(Algorithm, Rate) error {
	if s, ok := s.(interface {
		Supports(Algorithm, Rate) error
	}); ok {
		return s.Supports
	}
	return nil
}

// notSupported is what a store's own reason follows.
const notSupported = "is not supported by the store: "

// storeError returns err as an error that matches ErrStore.
func storeError(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}
