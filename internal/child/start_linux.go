package child

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noTrace is true after the kernel has refused ptrace to a child.
var noTrace atomic.Bool

// startStopped starts a process that stops before its first instruction, until the calling thread calls resume. Where
// the kernel refuses ptrace, the process does not stop, or, with strict, startStopped fails.
func startStopped(mark, path string, args []string, attr *os.ProcAttr, strict bool) (proc *os.Process,
	resume func() error, err error) {
	resume = func() error { return nil }
	if strict || !noTrace.Load() {
		attr.Sys.Ptrace = true
		if proc, err = startMarked(mark, path, args, attr); err == nil {
			if stops(proc.Pid) {
				return proc, func() error { return detach(proc.Pid) }, nil
			}
			_, _ = proc.Wait() // ended by a filter
			forget(proc.Pid)
			err = unix.EPERM
		}
		if !errors.Is(err, unix.EPERM) {
			return nil, nil, err
		}
		if strict {
			return nil, nil, fmt.Errorf("%w: limits before the start of a program need ptrace, which a filter of "+
				"system calls, a debugger of this process, or kernel.yama.ptrace_scope may refuse", err)
		}
		attr.Sys.Ptrace = false
	}
	if proc, err = startMarked(mark, path, args, attr); err == nil {
		noTrace.Store(true)
	}
	return proc, resume, err
}

// stops waits until a traced process stops, and returns false if the process ends before.
func stops(pid int) bool {
	const trapped = 4 // CLD_TRAPPED
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return info.Code == trapped
}

// detach lets a stopped process go on. The process may have been killed.
func detach(pid int) error {
	if err := unix.PtraceDetach(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ptrace: %w", err)
	}
	return nil
}
