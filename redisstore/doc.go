// Package redisstore keeps the state of rate limiters in Redis or Valkey, so that several
// processes enforce one limit together.
//
// A [Store] decides a request against any number of rules in one round trip: a script runs
// on the server, reads the server's clock, and charges all the rules or none. Its decisions
// are those of a limiter in memory, exact to the microsecond.
//
// A Store uses a client that the caller made: of a single server, of Sentinel or of a
// Cluster. In a Cluster, all rules about one client of the service are kept in one slot.
// Where the keys of a decision lie in several slots, the Store runs one script for each
// slot, all at the same time; if one of them denies, it gives back what the others have
// charged. For that one round trip a denied decision holds units, and other requests may be
// denied because of it.
//
// If the reply to a call is lost, the call may have been charged. The Store repeats a call
// only if the server has certainly not run it. A failure can therefore make the limit
// stricter, but never looser.
//
// If a stored state was written at a time slightly ahead of the server's clock, the state
// does not change until the clock has caught up, as in memory. If it is further ahead than
// a full bucket takes to drain, or than two windows, the clock must have been wrong when
// the state was written: the next request for units, granted or denied, moves the state to
// the present time, and the units that were used stay used.
//
// A Store is safe for concurrent use by multiple goroutines.
package redisstore
