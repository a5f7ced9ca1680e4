package engine

// Counts is embedded by the configuration C of an algorithm whose states S are counts of granted
// units: a count means the same under any limit, and does not drain at a rate. It has the methods
// of [Algorithm] that are the same for all of these.
type Counts[S, C any] struct{}

// Resize leaves the state as it is.
func (Counts[S, C]) Resize(*S, C) {}

// Fills reports false: a change of the limit changes no count.
func (Counts[S, C]) Fills(C) bool { return false }

// Slower reports false: at any rate with the same window, units leave at the same instants.
func (Counts[S, C]) Slower(C) bool { return false }
