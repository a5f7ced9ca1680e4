// Package apart puts faults into the source of packages, one fault at a time, and requires that the tests find each fault. A
// copy of the source with one fault is a mutant. The package verify compiles the mutants of the root module into one program.
// The packages that apart tests, such as grpclimit, belong to other modules, so it compiles each mutant by itself. It has only
// tests.
package apart
