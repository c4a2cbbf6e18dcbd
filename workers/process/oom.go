package process

import (
	"time"

	"millrace/stream"
)

// oomTime is the time during which a killed child counts as a process killed by the kernel for lack of memory: a
// process with much memory ends slowly.
const oomTime = 10 * time.Second

// oom notices kills by the kernel for lack of memory. The kernel reports only a count of the processes.
type oom struct {
	file  string         // that counts them; "" = none
	count int64          // as of the last look
	last  stream.Instant // time of the last increase seen; 0 = never
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

// recent reports whether a process killed now was probably killed for lack of memory.
func (o *oom) recent(now stream.Instant) bool {
	o.look(o.file, oomCount(o.file), now)
	return o.last != 0 && now.Sub(o.last) < oomTime
}

// lookForOOM records the number of processes killed by the kernel so far.
func (p *process) lookForOOM() {
	file := oomFile("/", p.proc.Pid())
	count := oomCount(file)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counted { // the cgroup of an ended process is gone
		p.oom.look(file, count, stream.Now())
	}
}
