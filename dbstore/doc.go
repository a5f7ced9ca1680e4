// Package dbstore keeps the state of limiters in a database, so that several processes share one limit. A [Store] needs little of
// the database: a [Backend] that keeps rows of bytes, and changes a row only if nobody else has changed it in the meantime. The
// module pgstore has a Backend for PostgreSQL.
//
// The database does not decide. The Store decides in this process, with the code that decides for a [ratelimit.MemoryStore], on the
// value of the row that it saw last. The Backend then writes the new value if the row still has the old one. If the row has another
// value, the Store decides again, on that value. So each key gets exactly what its algorithm promises, whatever the number of
// processes, and no process holds a lock in the database between two calls.
//
// A Store is safe for concurrent use by multiple goroutines. Callers that arrive while a transaction runs share the next transaction.
package dbstore
