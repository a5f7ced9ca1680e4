// Package redisstore keeps the state of limiters in Redis or Valkey, so that
// several processes share it.
//
// A [Store] takes a decision of any number of rules in one script, which runs on
// the server by the server's clock: one round trip, all charged or none. It decides
// as limiters in memory do, exactly, to the microsecond.
//
// It runs on a client of the caller's: of a single server, of Sentinel or of a
// Cluster. In a Cluster, rules about one client are kept in one slot. Rules whose
// keys are in several slots are one script for each slot, at once; when one of them
// denies, what the others have charged is given back. Until then, one round trip, a
// denied decision holds units that others may be denied.
//
// A call that fails may have charged, where its reply was lost: it is never made
// twice unless it is sure not to have run. Failures deny too much, never too little.
//
// A state whose time is a little ahead of the server's clock stands still until that
// has caught up, as in memory. One that is further ahead than a full bucket takes to
// drain, or than two windows, was written by a clock that was wrong: an ask for
// units brings it to now, granted or not, and what was used stays used.
//
// A Store is safe for concurrent use by multiple goroutines.
package redisstore
