//go:build !unix

package pgserver

import "syscall"

// User returns how to start a process as the present user.
func User() (as *syscall.SysProcAttr, uid, gid int, err error) { return nil, 0, 0, nil }
