package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// set sets the limits of a process that was just started, and the trait of contained children.
func (l Limits) set(pid int, contained bool) error {
	setTo := func(resource int, name string, limit unix.Rlimit) error {
		if err := unix.Prlimit(pid, resource, &limit, nil); err != nil {
			return fmt.Errorf("limit of %s: %w", name, err)
		}
		return nil
	}
	set := func(resource int, name string, n uint64) error {
		return setTo(resource, name, unix.Rlimit{Cur: n, Max: n})
	}
	// most sets a limit to n, or to the inherited hard limit if lower: only root may raise a hard limit.
	most := func(resource int, name string, n uint64) error {
		var own unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &own); err != nil {
			return fmt.Errorf("limit of %s: %w", name, err)
		}
		return set(resource, name, min(n, own.Max))
	}
	var err error
	if l.AddressSpace > 0 {
		err = most(unix.RLIMIT_AS, "address space", l.AddressSpace)
	}
	if err == nil && l.Data > 0 {
		err = most(unix.RLIMIT_DATA, "memory", l.Data)
	}
	if err == nil && l.FileSize > 0 {
		err = most(unix.RLIMIT_FSIZE, "file size", l.FileSize)
	}
	if err == nil && l.Files > 0 {
		err = most(unix.RLIMIT_NOFILE, "descriptors", l.Files)
	}
	if err == nil && l.Tasks > 0 {
		err = most(unix.RLIMIT_NPROC, "processes", l.Tasks+tasksOfUser())
	}
	if err == nil && l.NoWrites {
		err = set(unix.RLIMIT_FSIZE, "file size", 0)
	}
	if err == nil { // core dumps contain secrets. With 0, the kernel would still pipe them to a core_pattern program.
		err = most(unix.RLIMIT_CORE, "core dumps", 1)
	}
	if _, own, _ := locksOf("self"); err == nil && own > 1 { // see traits
		locks := own - 1
		if contained {
			locks = 0
		}
		err = most(unix.RLIMIT_LOCKS, "locks", locks)
	}
	if err == nil && l.CPU > 0 {
		seconds := uint64((l.CPU + time.Second - 1) / time.Second)
		var own unix.Rlimit
		if err = unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &own); err == nil {
			err = setTo(unix.RLIMIT_CPU, "processor time",
				unix.Rlimit{Cur: min(seconds, own.Max), Max: min(seconds+1, own.Max)})
		}
	}
	if err == nil && l.Nice > 0 {
		err = setNice(pid, l.Nice)
	}
	return err
}

// tasksOfUser returns the number of processes and threads of this user.
func tasksOfUser() (n uint64) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range all {
		if pid, err := strconv.Atoi(filepath.Base(path)); err == nil && ofThisUser(pid) {
			tasks, _, _ := usageOf(pid)
			n += uint64(tasks)
		}
	}
	return n
}

// setNice lowers the priority of a process that was just started and leads a group: setting the group changes all
// threads at once, setting the process does not.
func setNice(pid, by int) error {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err == nil {
		err = unix.Setpriority(unix.PRIO_PGRP, pid, 20-own+by) // the system call returns 20 minus the nice value
	}
	if err != nil {
		return fmt.Errorf("priority: %w", err)
	}
	return nil
}

// NearLimit reports whether the child has come within an eighth of Limits.AddressSpace. A program without memory need
// not end.
func (p *Process) NearLimit() bool {
	if p.space == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return false
	}
	_, after, _ := bytes.Cut(text, []byte("VmPeak:"))
	f := bytes.Fields(after)
	if len(f) == 0 {
		return false
	}
	peak, err := strconv.ParseUint(string(f[0]), 10, 64) // KiB
	return err == nil && peak<<10 >= p.space-p.space/8
}
