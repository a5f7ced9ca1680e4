// Package recipes has a short program text for each page of docs/recipes.md: who the client is, how
// routers name their routes, and what services wish for. Each is compiled, and driven by a test.
package recipes
