// Package books lets package dbstore use the engine of a MemoryStore, which the root package does not export. The root
// package stores a function in the variable [Of]. The function returns the engine. Only this module can use the variable.
package books

import "github.com/ratelimit-go/ratelimit/internal/engine"

// Of returns the Book of a *ratelimit.MemoryStore. The root package sets Of. If the parameter checked is set, the store does not check the
// asks that it gets from then on. Package dbstore checks them once, before it calls the database, and may decide on them several times.
var Of func(store any, checked bool) *engine.Book
