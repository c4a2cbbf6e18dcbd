package child

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// noTrace is true after the kernel has refused ptrace to a child.
var noTrace atomic.Bool

// startStopped starts a process that stops before its first instruction, until the calling thread calls resume. Where
// the kernel refuses ptrace, the process does not stop, or, with strict, startStopped fails.
func startStopped(mark, path string, args []string, attr *os.ProcAttr, strict bool) (proc *os.Process,
	resume func() error, err error) {
	if strict || !noTrace.Load() {
		if proc, resume, err = startTraced(mark, path, args, attr); !errors.Is(err, unix.EPERM) {
			return proc, resume, err
		}
		if strict {
			return nil, nil, fmt.Errorf("%w: limits before the start of a program need ptrace, which a filter of "+
				"system calls, a debugger of this process, or kernel.yama.ptrace_scope may refuse", err)
		}
	}
	if proc, err = startMarked(mark, path, args, attr); err == nil {
		noTrace.Store(true)
	}
	return proc, func() error { return nil }, err
}

// startTraced is startStopped with ptrace. The error is EPERM where the kernel refuses ptrace.
//
// A traced process stops at each signal, even at a signal that the process ignores. Before the end of its exec, nobody
// could resume the process, and the start would never return. The process therefore blocks all signals, except for the
// SIGTRAP of the exec, until resume. SIGSTOP cannot be blocked, see watchStart.
func startTraced(mark, path string, args []string, attr *os.ProcAttr) (*os.Process, func() error, error) {
	var own, blocked unix.Sigset_t
	for i := range blocked.Val {
		blocked.Val[i] = ^blocked.Val[i]
	}
	blocked.Val[0] &^= 1 << (unix.SIGTRAP - 1)
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &blocked, &own); err != nil {
		return nil, nil, fmt.Errorf("signals: %w", err)
	}
	attr.Sys.Ptrace = true
	end := watchStart(path)
	proc, err := startMarked(mark, path, args, attr) // inherits the mask of the thread
	stuck := end()
	attr.Sys.Ptrace = false
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &own, nil) // fails only for an unknown SIG_SETMASK
	if err != nil {
		return nil, nil, err
	}
	if stops(proc.Pid) {
		return proc, func() error { return detach(proc.Pid, &own) }, nil
	}
	state, err := proc.Wait()
	forget(proc.Pid)
	if err != nil {
		return nil, nil, err
	}
	ended := state.Sys().(syscall.WaitStatus).Signal()
	switch {
	case ended == unix.SIGSYS: // from a filter of system calls
		return nil, nil, unix.EPERM
	case stuck:
		return nil, nil, errors.New("another process has stopped the program before its start: try again")
	}
	return nil, nil, &ExitError{Name: args[0], Code: state.ExitCode(), Signal: ended}
}

// startPause is the time between two looks at a start.
const startPause = 10 * time.Millisecond

// watchStart looks for a stop of the next child of the calling thread, before the exec of the program at path, until
// end: SIGSTOP and the SIGTRAP of another process cannot be blocked. Only the calling thread could resume the child,
// and the thread waits for the exec. The child is killed, and end returns true. Garbage collection waits for the start,
// and would stop the looks, too; a short startPause makes this unlikely.
func watchStart(path string) (end func() bool) {
	thread, ended := unix.Gettid(), make(chan struct{})
	var stuck atomic.Bool
	timer := time.AfterFunc(startPause, func() {
		program, err := os.Stat(path)
		self, err2 := os.Stat("/proc/self/exe")
		if err != nil || err2 != nil || os.SameFile(program, self) {
			return // the exec cannot be seen
		}
		for {
			list, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", thread))
			for _, f := range strings.Fields(string(list)) {
				if pid, err := strconv.Atoi(f); err == nil {
					killStuck(pid, self, &stuck)
				}
			}
			select {
			case <-ended:
				return
			case <-time.After(startPause):
			}
		}
	})
	return func() bool {
		timer.Stop()
		close(ended)
		return stuck.Load()
	}
}

// killStuck sets stuck, and kills the process, if a child has stopped and has still the program self.
func killStuck(pid int, self os.FileInfo, stuck *atomic.Bool) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if st, err := readStat(pid); err != nil || st.state != 't' {
		return
	}
	if program, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid)); err != nil || !os.SameFile(program, self) {
		return
	}
	stuck.Store(true)
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

// stops waits until a traced process stops, and returns false if the process ends before.
func stops(pid int) bool {
	const trapped = 4 // CLD_TRAPPED
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return info.Code == trapped
}

// detach lets a stopped process go on with the mask of signals. The process may have been killed.
func detach(pid int, mask *unix.Sigset_t) error {
	const kernelMask = 8 // bytes of the kernel's mask
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_SETSIGMASK, uintptr(pid), kernelMask,
		uintptr(unsafe.Pointer(mask)), 0, 0)
	err := error(nil)
	if errno != 0 {
		err = errno
	} else {
		err = unix.PtraceDetach(pid)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ptrace: %w", err)
	}
	return nil
}
