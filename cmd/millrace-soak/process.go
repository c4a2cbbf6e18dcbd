package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// resident returns the bytes of a process in memory, without those of its children.
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

// descendant is a process below another one.
type descendant struct {
	pid     int
	command string // its arguments, separated by spaces
}

// descendants lists the processes below one. Zombies do not count.
func descendants(root int) (below []descendant) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	children := map[int][]int{}
	for _, path := range stats {
		text, _ := os.ReadFile(path) // the process may have ended
		// The name, in brackets, may hold anything.
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(f) < 2 || f[0] == "Z" {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, err2 := strconv.Atoi(f[1])
		if err == nil && err2 == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, pid := range children[next[0]] {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			below = append(below, descendant{pid, strings.TrimSpace(string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})))})
			next = append(next, pid)
		}
	}
	return below
}

// entries lists what is in a folder and in those below it.
func entries(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != dir {
			all = append(all, path)
		}
		return nil
	})
	return all
}
