//go:build !js && !wasip1

package configfile

import "syscall"

// nonblock is a flag for opening a file. With it, opening a named pipe does not wait for a writer.
const nonblock = syscall.O_NONBLOCK
