//go:build unix && !linux

package child

import (
	"os"
	"syscall"
	"time"
)

func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the end of the child. There is no portable way to wait without reaping. So the rest of the group is
// not killed when the leader ends on its own, and a signal sent during the reaping may reach another process.
func (p *Process) reap() (*os.ProcessState, error) {
	state, err := p.proc.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended(state)
	return state, err
}

func cpuClock(int) time.Duration { return 0 }

func runDelay(int) (time.Duration, bool) { return 0, false }

func growPipe(*os.File, int) {}
