package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the child, kills the other processes of its group, and returns its exit status.
func (p *Process) reap() (*os.ProcessState, error) {
	// WNOWAIT keeps the ended leader as a zombie, so that the kernel cannot reuse its pid and group id before the
	// group is killed.
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	state, err := p.proc.Wait()
	p.ended(state)
	return state, err
}

// cpuClock returns the processor time of an unreaped process; 0 = unreadable.
func cpuClock(pid int) time.Duration {
	var used unix.Timespec
	// CPUCLOCK_SCHED of the kernel: user and kernel mode, to the nanosecond
	const sched = 2
	if err := unix.ClockGettime(int32(^pid<<3|sched), &used); err != nil { // see clock_getcpuclockid(3)
		return 0
	}
	return time.Duration(used.Nano())
}

// runDelay returns the run delay of an unreaped process, see proc_pid_schedstat(5), and whether a thread has the state
// R; 0 and false = unreadable.
func runDelay(pid int) (sum time.Duration, runnable bool) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, thread := range threads {
		var ran, waited time.Duration
		b, _ := os.ReadFile(thread + "/schedstat")
		if n, _ := fmt.Sscan(string(b), &ran, &waited); n == 2 {
			sum += waited
		}
		b, _ = os.ReadFile(thread + "/stat")
		_, state, _ := bytes.Cut(b, []byte(") "))
		runnable = runnable || bytes.HasPrefix(state, []byte("R "))
	}
	return sum, runnable
}

// growPipe requests a pipe of size bytes. The kernel refuses large pipes to an ordinary user who has many, so
// growPipe then tries smaller sizes. With a small pipe the child is slower, but this is no error.
func growPipe(f *os.File, size int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		for ; size > 64<<10; size /= 2 {
			if _, err := unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size); err == nil {
				return
			}
		}
	})
}
