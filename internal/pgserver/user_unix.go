//go:build unix

package pgserver

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// User returns how to start a process that is not root, because PostgreSQL refuses to run as root. The attributes are nil if this process
// is not root. User also returns the user and the group to whom the files of the process must belong.
func User() (as *syscall.SysProcAttr, uid, gid int, err error) {
	if os.Getuid() != 0 {
		return nil, os.Getuid(), os.Getgid(), nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
			return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, uid, gid, nil
		}
	}
	return nil, 0, 0, none("user for it, and root cannot run it")
}
