package process

import (
	"time"

	"millrace/stream"
)

// oomTime is how long after the kernel has ended a process for want of memory a child that was
// killed counts as that process: one with much memory takes its time to end.
const oomTime = 10 * time.Second

// oom looks whether the kernel ends processes for want of memory. It says only how many, and not which.
type oom struct {
	file  string         // that counts them; "" = none
	count int64          // as of the last look
	last  stream.Instant // when there were more than at the look before; 0 = never
}

// look takes note of the count of a file.
func (o *oom) look(file string, count int64, now stream.Instant) {
	switch {
	case file != o.file: // the process was moved to another cgroup
		o.file, o.count = file, count
	case count > o.count:
		o.count, o.last = count, now
	}
}

// recent reports whether a process that is killed now is probably killed for want of memory.
func (o *oom) recent(now stream.Instant) bool {
	o.look(o.file, oomCount(o.file), now)
	return o.last != 0 && now.Sub(o.last) < oomTime
}

// lookForOOM takes note of the processes that the kernel has ended so far.
func (p *process) lookForOOM() {
	file := oomFile("/", p.proc.Pid())
	count := oomCount(file)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counted { // otherwise it has no cgroup any more
		p.oom.look(file, count, stream.Now())
	}
}
