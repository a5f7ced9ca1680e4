//go:build js || wasip1

package configfile

// nonblock is 0, because this platform has no flag for opening a file without waiting.
const nonblock = 0
