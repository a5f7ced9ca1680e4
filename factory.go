package ratelimit

// A Factory makes limiters of config maps.
type Factory struct{}
