// Package books lets package dbstore use the engine of a MemoryStore, which the root package does not export. The root
// package stores a function in the variable [Of]. The function returns the engine. Only this module can use the variable.
package books

import "github.com/ratelimit-go/ratelimit/internal/engine"

// Of returns the Book of a *ratelimit.MemoryStore. The root package sets it.
var Of func(store any) *engine.Book
