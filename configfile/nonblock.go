//go:build !js && !wasip1

package configfile

import "syscall"

// nonblock makes the opening of a named pipe not wait for who writes to it.
const nonblock = syscall.O_NONBLOCK
