// Package frameworks runs one table of tests over net/http, chi and the web frameworks for which there are adapters,
// and compares the answers byte for byte. It has only tests, and a benchmark of another limiter for gin.
package frameworks
