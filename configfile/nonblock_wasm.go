//go:build js || wasip1

package configfile

// nonblock is not there.
const nonblock = 0
