// Package books lets package dbstore use the engine of a MemoryStore: it has a function of the root package that other
// packages of the module cannot import by name.
package books

import "github.com/ratelimit-go/ratelimit/internal/engine"

// Of returns the Book of a *ratelimit.MemoryStore. The root package sets it.
var Of func(store any) *engine.Book
