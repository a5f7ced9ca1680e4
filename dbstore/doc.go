// Package dbstore keeps the state of limiters in a database, so that several processes share one limit. A [Store] needs little of
// the database: a [Backend] that keeps rows of bytes, and changes rows that nobody else has changed. The module pgstore has one for
// PostgreSQL.
//
// The database does not decide. The Store decides in this process, with the code that decides for a [ratelimit.MemoryStore], on the
// value of the row that it saw last. The Backend then writes the new value if the row still has the old one. If it has not, the
// Store decides again on the value that it has now. So each key gets exactly what its algorithm promises, whatever the
// number of processes, and no process holds a lock in the database between two calls.
//
// A Store is safe for concurrent use by multiple goroutines. Callers that come while a transaction runs share the next one.
package dbstore
