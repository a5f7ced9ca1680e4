package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Store keeps the state of limiters outside this process, so that several processes share one limit. [WithStore] gives it to a limiter.
// The module redisstore has a Store for Redis and Valkey, [MemoryStore] is one for tests, and package ratelimittest checks your own.
//
// A Store decides by its own clock. It must limit the duration of its calls itself: this package sets no
// deadline. It must be safe for concurrent use by multiple goroutines.
//
// A Store may have further methods: those of [StoreSupporter], [StoreAccepter], [StoreSettler], [StoreReplayer], [StorePartitioner],
// [StoreDenier], [StorePardoner] and [StoreOverrider]. Its errors may have the methods of [StoreErrorAnswered], [StoreErrorParts],
// [StoreErrorCall], [StoreErrorClass] and [StoreErrorLater]. To have the compiler check this, write for example
//
//	var _ ratelimit.StoreSettler = (*MyStore)(nil)
type Store interface {
	// Take decides on all asks together and returns a Result for each, in the same order. It charges every ask if every ask without Shadow
	// has enough units left; otherwise it charges none. Each Result is what the ask would get alone. No two asks name the same state.
	//
	// If the states lie on several nodes, a decision that is denied may reserve units for the time of one round trip.
	//
	// A denial is a Result, never an error. After an error, the asks may or may not have been charged. If ctx has ended
	// the call, the error must match the error of ctx.
	Take(ctx context.Context, asks []Ask) ([]Result, error)

	// Reset makes the state that each ask names as if it had never been used. It ignores N.
	Reset(ctx context.Context, asks []Ask) error
}

// An Ask tells a [Store] what it needs to decide on one request by one rule.
type Ask struct {
	// Rule, Key and Algorithm together name the state: two asks name the same state if and only if all three are equal.
	// Rule and Key may have any bytes, so no separator can join them unambiguously.
	//
	// Rule is the name of the limiter, see [WithName]. For a rule of a [RateLimiter], a colon and the name of the rule
	// follow it, such as "shop:search"; then, if the rule has a [Rule.Unit], a zero byte and this Unit.
	Rule, Key string

	// Client is the client that the state belongs to, or empty if it belongs to more than one. A Store may keep the
	// states of one Client together, such as by a hash tag in a cluster. All asks for one state have the same Client.
	Client string

	// Algorithm is one of the five that [Algorithms] lists, or AlgorithmInFlight if Accepts of the Store has accepted it. A
	// charge by AlgorithmInFlight lasts until a Settle with an N of 0, but at most for the Per of its Rate. A Settle with a
	// larger N makes the charge last for Per from then on; if the charge is over already, the error matches ErrSettled.
	Algorithm Algorithm

	// Rate is the limit from this ask on. If the state was last charged at another Rate, the slower of the two rates
	// applies to the time between that charge and this ask. docs/stores.md says when a denied ask changes the state.
	Rate Rate

	// N is how many units to take, all or none: at most 2^50. With 0, the ask takes nothing and gets the answer for one
	// unit; if that is a denial, the other asks of the call take nothing either.
	N int

	// Shadow is true for an ask of a rule in [ModeShadow] or [ModeAdvise]. Such an ask never causes another ask to be
	// denied. It is charged if it has enough units left and the asks without Shadow are charged.
	Shadow bool

	// Warmup makes the limit of a new state lower at first, as [Rule.Warmup] does for a key. The Store keeps the state
	// for asks with a Warmup apart from the state for asks without a Warmup.
	Warmup Warmup

	// Look is true for an ask that takes nothing, but gets the same Result as if it took N units: Remaining and
	// ResetAfter, too, are those after the N units. Either all asks of one call have Look, or none.
	Look bool

	// Receipt is a number for this charge, by which Settle can give units back; 0 if no units can be given back. The
	// number is new for each charge of the state. After 1,024 newer charges of the state, Settle may give nothing back.
	Receipt uint64

	// HoldFor is how long the charge can be given back, by the Store's clock: a microsecond to 366 days, or 0 without a Receipt.
	HoldFor time.Duration

	// Penalty is the rule's [Rule.Penalty]. In the same step as the decision, the Store counts a denial as a strike and, after
	// too many strikes, blocks the state. A denial by a block has [ReasonPenalty]. Strikes and blocks are kept apart from the
	// state, for as long as they can change an answer: at least until the block ends. Reset forgets them.
	Penalty Penalty

	// NoStrike is true if a denial of this ask is no strike, because the request waits and will be sent again. A denial is no strike
	// either if the ask has Look, Shadow or an N of 0, or if the ask would be granted alone.
	NoStrike bool

	// Charged is set only for Settle: the N of the Ask that made the charge. In Settle, N is how many units were used.
	Charged int
}

// An Attempt tells [StoreReplayer.Once] which request the asks belong to.
type Attempt struct {
	// Client and ID are the fields Client and ID of the [Request].
	Client, ID string

	// TTL is how long the answer is kept: from a microsecond to 366 days.
	TTL time.Duration

	// Look is true if Once must change nothing: it takes no units, records no grant and counts no use of a record.
	Look bool
}

// A StoreSupporter is a [Store] that does not support every rate.
type StoreSupporter interface {
	// Supports returns nil if the Store can decide exactly by this algorithm and rate, and otherwise why it cannot.
	// A rule or limiter with an unsupported rate cannot be made, and a rule cannot be changed to such a rate.
	Supports(a Algorithm, r Rate) error
}

// A StoreAccepter is a [Store] that can use the fields Warmup, Look, Receipt, HoldFor and Penalty of an [Ask], and
// [Rate.Window]. Any other Store gets only asks in which these fields are zero.
type StoreAccepter interface {
	// Accepts returns nil if the Store can decide on asks with this Algorithm, Rate, Warmup, Look, Receipt, HoldFor
	// and Penalty, and otherwise the reason why not. It is called when a rule is made or changed, before Supports.
	Accepts(a Ask) error
}

// A StoreSettler is a [Store] whose charges can be changed afterwards. [RateLimiter.Reserve] needs one, and so does a
// [RateLimiter] with a Store and a custom [Limiter].
type StoreSettler interface {
	StoreAccepter

	// Settle changes the charge that the Receipt of each ask names, from Charged units to N.
	//
	// If N < Charged, the state is afterwards as if only N units had been charged. But Settle gives nothing back and
	// returns nil if the charge was settled before, if its HoldFor is over, or if the state was reset or forgotten since.
	// So the call may be repeated after an error. If N > Charged, Settle charges N-Charged units now, even past the
	// limit and even in the cases above; limiters never repeat such a call. The asks have no HoldFor and no Shadow.
	Settle(ctx context.Context, asks []Ask) error
}

// A StoreReplayer is a [Store] that charges a request with a [Request.ID] only once.
type StoreReplayer interface {
	// Once decides as Take does. But if asks with the same Rule, Key, Algorithm, N and Shadow, in any order, were
	// granted before for the same Client and ID, and the TTL of that call is not over, Once charges nothing. It
	// returns the Results of that grant and true; it subtracts the time since the grant from ResetAfter and Delay.
	//
	// To charge and to record the grant must be one step: of two calls at the same time, one charges and the other
	// finds the grant. A Store may forget grants, the oldest first, and it returns one grant at most 100 times. After
	// that, it decides on the asks again, and a new grant replaces the old one. Denials are not recorded, and a Reset
	// does not remove a grant. An ask with an N of 0 is decided as in Take, and charged nothing.
	Once(ctx context.Context, once Attempt, asks []Ask) (results []Result, replayed bool, err error)
}

// A StorePartitioner is a [Store] of parts that fail independently, such as the nodes of a cluster. While some parts do
// not answer, a [RateLimiter] goes on to call the Store for the others.
type StorePartitioner interface {
	// Part returns the number of the part that holds the state of the ask: 0 to 63. Of any other number, the lowest
	// six bits count. Part is called for each ask, so it must be quick. It may use only Rule, Key, Algorithm and Client.
	Part(a Ask) int
}

// A StoreDenier is a [Store] that sometimes knows, without a call of the server, that an ask would be denied.
type StoreDenier interface {
	// Denied returns the denial of the ask and true, or false if the Store knows of no denial. Denied changes nothing. A
	// limiter without an [Observer] calls Denied before Take for a request to which a single rule without tiers applies.
	Denied(a Ask) (res Result, denied bool)
}

// A StorePardoner is a [Store] that can end the blocks of rules with a [Penalty].
type StorePardoner interface {
	// Pardon ends the block of the state that each ask names, and forgets its strikes and how long its last block was. It
	// gives no units back. A state without strikes stays as it is.
	Pardon(ctx context.Context, asks []Ask) error
}

// A StoreOverrider is a [Store] that keeps the [Override] list of limiters, for all processes; see [WithOverrides].
type StoreOverrider interface {
	// SetOverrides sets all overrides in o, which are valid, or none, for the limiters with this name. An override with an
	// Effect replaces the one that has the same Client or IP, Effect, and Rules in any order. An override without an Effect
	// removes all overrides of its Client or IP or, if it has Rules, only those with the same Rules. If a list would have
	// more than 10,000 overrides that have not ended yet, the error matches ErrInvalidConfig.
	SetOverrides(ctx context.Context, limiter string, o []Override) error

	// OverridesSince returns what has changed in the list since the given version, which an earlier call has returned.
	// The zero version means that no list is known.
	OverridesSince(ctx context.Context, limiter string, since OverrideVersion) (OverrideChange, error)
}

// An OverrideVersion is the version of the [Override] list of a limiter in a [Store].
type OverrideVersion struct {
	List   uint64 // identifies the list: after the store was emptied, a new list has another number
	Number uint64 // grows with each change of the list
}

// An OverrideChange is what [StoreOverrider.OverridesSince] returns.
type OverrideChange struct {
	Version OverrideVersion // the version of the list now
	Whole   bool            // whether Set is the whole list, instead of what has changed
	Set     []Override      // the overrides that were set, in the order in which they were set
	Lifted  []Override      // the overrides that were lifted: their Client or IP, Effect and Rules
	Now     time.Time       // the time of the Store, with which the Until of an override is compared
}

// A StoreErrorAnswered is an error of a [Store] that may come from a healthy server. [errors.As] finds it.
type StoreErrorAnswered interface {
	// Answered reports whether the server has answered. If so, the error concerns only the asks of the failed call: the
	// [FailurePolicy] answers for these asks, and the Store counts as healthy.
	Answered() bool
}

// A StoreErrorParts is an error of a [StorePartitioner] that says which parts have failed. [errors.As] finds it.
type StoreErrorParts interface {
	// Parts returns the numbers of the parts that have failed. If it returns no part of this call, all parts of the
	// call count as failed, as with any other error.
	Parts() []int
}

// A StoreErrorCall is an error of a [Store] that several callers may get for one failed call. [errors.As] finds it.
type StoreErrorCall interface {
	// Call returns a number, not 0, that is the same for all callers of one failed call, which then counts as one failure.
	Call() uint64
}

// A StoreErrorClass is an error of a [Store] that says what kind of failure it is. [errors.As] finds it.
type StoreErrorClass interface {
	// ErrorClass returns one of a few names, such as "timeout", in lower-case letters, digits and "_". Other names count as "other".
	ErrorClass() string
}

// A StoreErrorLater is the error of a [Store] if ctx has ended while the call goes on. [errors.As] finds it.
type StoreErrorLater interface {
	// Later makes the Store call the function f once, after the call of the server has ended or reached its time limit.
	// The Store holds no lock while f runs. f gets the server call's error or nil, or the context's error if no call was made.
	Later(f func(err error))
}

// revocableAsk has the Receipt and HoldFor of a charge that must be given back if a custom limiter denies the request.
var revocableAsk = Ask{Receipt: 1, HoldFor: time.Second}

// supportsOf returns a function that asks s whether it can decide on an Ask. It returns nil if there is no store.
func supportsOf(s Store) func(a Ask) error {
	if s == nil {
		return nil
	}
	accepting, accepts := s.(StoreAccepter)
	supporting, supports := s.(StoreSupporter)
	return func(a Ask) (err error) {
		switch {
		case accepts:
			err = accepting.Accepts(a)
		case a.Rate.Window != "":
			err = errors.New("it has no Accepts, to say that it knows a Window")
		}
		if err == nil && supports {
			err = supporting.Supports(a.Algorithm, a.Rate)
		}
		return err
	}
}

// unsupported returns an error if the store cannot decide on the Ask a. The error says that a.Rate, the value of the field at
// this path, is not supported. The parameter supports is a function that asks the store, or nil if the store supports everything.
func unsupported(path string, supports func(a Ask) error, a Ask) error {
	if supports == nil {
		return nil
	}
	if err := supports(a); err != nil {
		return &ConfigError{path, a.Rate, "is not supported by the store: " + err.Error()}
	}
	return nil
}

// settles returns an error, for Reserve, if the store cannot give units back, and nil otherwise.
func settles(st Store) error {
	if _, ok := st.(StoreSettler); ok || st == nil {
		return nil
	}
	missing := "Settle(context.Context, []Ask) error"
	if _, ok := st.(interface {
		Settle(context.Context, []Ask) error
	}); ok {
		missing = "Accepts(Ask) error"
	}
	return &ConfigError{"store", fmt.Sprintf("%T", st), "must have a method " + missing + ": units are to be reserved"}
}
