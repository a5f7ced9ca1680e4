// Package recipes has the code of docs/recipes.md: how to find out who the client is, how to limit the
// routes of several routers, and what else services often need. A test runs each recipe.
package recipes
