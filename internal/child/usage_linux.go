package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Usage returns what the child and its descendants use now, nothing after the child's end. Descendants in other
// sessions count after Adopt. Counting ends above most.Tasks. Memory that several processes share counts once if the
// cheaper sum, in which such memory counts for each process, is above most.Memory.
func (p *Process) Usage(most Usage) (u Usage) {
	p.mu.Lock()
	ended := p.reaped
	p.mu.Unlock()
	if ended {
		return u
	}
	pids := append([]int{p.pid}, p.escaped()...)
	for i := 0; i < len(pids) && u.Tasks <= most.Tasks; i++ {
		tasks, memory := usageOf(pids[i])
		u.Tasks, u.Memory = u.Tasks+tasks, u.Memory+memory
		pids = append(pids, childrenOf(pids[i], most.Tasks)...)
	}
	if u.Memory <= most.Memory || u.Tasks > most.Tasks {
		return u
	}
	u.Memory = 0
	for _, pid := range pids {
		u.Memory += ownMemory(pid)
	}
	return u
}

// escaped returns the descendants that became children of this process, see Adopt. A descendant that has cleared its
// variables may belong to any child.
func (p *Process) escaped() (pids []int) {
	if !children.adopts.Load() {
		return nil
	}
	children.mu.Lock()
	mark := children.marks[p.pid]
	children.mu.Unlock()
	for _, pid := range orphans() {
		st, err := readStat(pid)
		if of := markOf(pid); err == nil && (of == mark || of == "" && st.group != os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// childrenOf returns the children of a process, or a part if they are more than most.
func childrenOf(pid, most int) (pids []int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range threads {
		text, _ := os.ReadFile(file)
		for _, f := range bytes.Fields(text) {
			if child, err := strconv.Atoi(string(f)); err == nil && len(pids) <= most {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// usageOf returns the number of threads of a process, and its memory, including memory shared with other processes.
func usageOf(pid int) (tasks int, memory uint64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	memory = (field(text, "RssAnon:") + field(text, "RssShmem:") + field(text, "VmSwap:")) << 10
	return int(field(text, "Threads:")), memory
}

// ownMemory returns the memory of a process, with its part of memory shared with other processes.
func ownMemory(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		_, memory := usageOf(pid)
		return memory
	}
	return (field(text, "Pss_Anon:") + field(text, "Pss_Shmem:") + field(text, "SwapPss:")) << 10
}

// field returns the number of a line of a file of /proc; 0 = none.
func field(text []byte, name string) uint64 {
	_, after, _ := bytes.Cut(text, []byte("\n"+name))
	f := bytes.Fields(after[:min(len(after), 40)])
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(string(f[0]), 10, 64)
	return n
}
