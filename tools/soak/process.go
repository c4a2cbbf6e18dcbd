package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// resident returns the resident bytes of a process, without child processes.
func resident(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("resident memory can be read on Linux only: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseUint(f[1], 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
}

// descriptors returns the number of open file descriptors of a process.
func descriptors(pid int) int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(list)
}

// descendant is a process below another process.
type descendant struct {
	pid     int
	start   string // start time in kernel ticks since the boot: pid and start identify the process
	command string // arguments, separated by spaces
}

// alive returns the processes that have not ended.
func alive(list []descendant) (left []descendant) {
	for _, d := range list {
		if f := statOf(d.pid); f != nil && f[startField] == d.start {
			left = append(left, d)
		}
	}
	return left
}

// Fields of statOf: the state, the parent, and when the process started.
const (
	stateField  = 0
	parentField = 1
	startField  = 19
)

// statOf returns the fields of /proc/PID/stat after the name of a process; nil for an ended process, including a
// zombie.
func statOf(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// The name, in brackets, may hold anything.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(f) <= startField || f[stateField] == "Z" {
		return nil
	}
	return f
}

// descendants lists the processes below root, except zombies.
func descendants(root int) (below []descendant) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	children := map[int][]descendant{}
	for _, path := range stats {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		f := statOf(pid)
		if err != nil || f == nil {
			continue
		}
		if parent, err := strconv.Atoi(f[parentField]); err == nil {
			children[parent] = append(children[parent], descendant{pid: pid, start: f[startField]})
		}
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, d := range children[next[0]] {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.pid))
			d.command = strings.TrimSpace(string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))
			below = append(below, d)
			next = append(next, d.pid)
		}
	}
	return below
}

// entries lists the contents of a folder, including nested folders.
func entries(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != dir {
			all = append(all, path)
		}
		return nil
	})
	return all
}
