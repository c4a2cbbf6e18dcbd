package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the end of the child, kills what is left of its group, and takes its exit status.
func (p *Process) reap() (*os.ProcessState, error) {
	// WNOWAIT leaves the dead leader as a zombie, so its pid and group id cannot have been given to anybody
	// else when the group is killed.
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	state, err := p.proc.Wait()
	p.reaped = true
	return state, err
}

// growPipe asks for a pipe of size bytes. The kernel refuses an ordinary user who holds many large pipes
// already, so smaller ones are tried; without a larger pipe the child is slower, and nothing fails.
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
