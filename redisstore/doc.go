// Package redisstore keeps the state of rate limiters in Redis or Valkey, so that several
// processes enforce one limit together.
//
// A [Store] decides a request against any number of rules in one round trip: a script runs
// on the server, reads the server's clock, and charges all the rules or none. Its decisions
// are the same as those of a limiter in memory, exact to the microsecond.
//
// A Store uses a Redis client that the caller made: for a single server, for Sentinel or for a
// Cluster. In a Cluster, all states of one [ratelimit.Request.Client] are in one slot. If the
// keys of a decision are in several slots, the Store runs one script for each slot, all at the
// same time. If one of the scripts denies the request, the Store gives back the units that the
// other scripts have charged. Until then, for one round trip, other requests may be denied because
// these units are charged.
//
// If the reply to a call is lost, the call may have been charged. The Store repeats a call
// only if the server has certainly not run it. A failure can therefore make the limit
// stricter, but never looser.
//
// A stored state may be ahead of the server's clock, for example because the clock was set back. A
// state that is only a little ahead does not change until the clock has caught up, as in memory. A
// state is far ahead if it is ahead by more than the time in which a full bucket drains, or by more
// than two windows. In that case the clock must have been wrong when the state was written, and the
// next request for units, granted or denied, moves the state to the present time. The units that
// were used stay used.
//
// A Store is safe for concurrent use by multiple goroutines.
package redisstore
