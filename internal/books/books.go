// Package books lets package dbstore use the engine of a MemoryStore. The root package does not export this engine. It
// stores a function that returns the engine in the variable [Of], which only packages of this module can use.
package books

import "github.com/ratelimit-go/ratelimit/internal/engine"

// Of returns the Book of a *ratelimit.MemoryStore. The root package sets Of. If the parameter checked is set, the store does not check the
// asks that it gets from then on. Package dbstore checks them once, before it calls the database, and may decide on them several times.
var Of func(store any, checked bool) *engine.Book
