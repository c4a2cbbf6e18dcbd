package child

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Usage returns what the child and its descendants use now, nothing after the child's end. Descendants in other
// sessions count after Adopt. Counting ends above most.Tasks. Memory that several processes share counts once if the
// cheaper sum, in which such memory counts for each process, is above most.Memory.
func (p *Process) Usage(most Usage) (u Usage) {
	pids := p.tree(func(pid int) bool {
		tasks, private, shared := usageOf(pid)
		u.Tasks, u.Memory, u.Shared = u.Tasks+tasks, u.Memory+private+shared, u.Shared+shared
		return u.Tasks <= most.Tasks
	}, most.Tasks)
	if u.Memory <= most.Memory || u.Tasks > most.Tasks {
		return u
	}
	u.Memory, u.Shared = 0, 0
	for _, pid := range pids {
		private, shared := ownMemory(pid)
		u.Memory, u.Shared = u.Memory+private+shared, u.Shared+shared
	}
	return u
}

// tree visits the child and its descendants until visit returns false, and returns the visited, and for each process
// at most about most children.
func (p *Process) tree(visit func(pid int) bool, most int) (pids []int) {
	p.mu.Lock()
	ended := p.reaped
	p.mu.Unlock()
	if ended {
		return nil
	}
	pids = append([]int{p.pid}, p.escaped()...)
	if p.holder != nil {
		pids = append(pids, childrenOf(p.holder.Pid, most)...)
	}
	for i := 0; i < len(pids) && visit(pids[i]); i++ {
		pids = append(pids, childrenOf(pids[i], most)...)
	}
	return pids
}

// Unnamed returns the bytes of files without a name that the child and at most most descendants have open: in memory
// (memfd and tmpfs), and on disks. The kernel hides the files of some processes, such as not dumpable ones, from an
// unprivileged user.
func (p *Process) Unnamed(most int) (memory, disk uint64) {
	type inode struct{ device, number uint64 }
	seen := map[inode]bool{}
	p.tree(func(pid int) bool {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		f, err := os.Open(dir)
		if err != nil {
			return true
		}
		names, _ := f.Readdirnames(-1)
		_ = f.Close()
		for _, name := range names {
			var st unix.Stat_t
			path := dir + "/" + name
			if unix.Stat(path, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG ||
				seen[inode{uint64(st.Dev), st.Ino}] {
				continue
			}
			seen[inode{uint64(st.Dev), st.Ino}] = true
			var on unix.Statfs_t
			if unix.Statfs(path, &on) == nil && on.Type == unix.TMPFS_MAGIC {
				memory += uint64(st.Blocks) * 512
			} else {
				disk += uint64(st.Blocks) * 512
			}
		}
		most--
		return most >= 0
	}, most)
	return memory, disk
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

// usageOf returns the number of threads of a process, its private memory, and all of the memory that the process shares
// with others.
func usageOf(pid int) (tasks int, private, shared uint64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return int(field(text, "Threads:")), (field(text, "RssAnon:") + field(text, "VmSwap:")) << 10,
		field(text, "RssShmem:") << 10
}

// ownMemory returns the private memory of a process, and its part of the memory shared with other processes.
func ownMemory(pid int) (private, shared uint64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		_, private, shared = usageOf(pid)
		return private, shared
	}
	return (field(text, "Pss_Anon:") + field(text, "SwapPss:")) << 10, field(text, "Pss_Shmem:") << 10
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
