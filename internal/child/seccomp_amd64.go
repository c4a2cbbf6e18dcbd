//go:build linux

package child

import "golang.org/x/sys/unix"

// auditArch is the number of this processor for filters of system calls.
const auditArch = unix.AUDIT_ARCH_X86_64
