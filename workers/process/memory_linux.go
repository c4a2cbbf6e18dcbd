package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFamily bounds the examined processes of one program.
const maxFamily = 256

var pageSize = int64(os.Getpagesize())

// processTree is a process with its descendants.
type processTree []int

// processTreeOf finds the descendants of pid. processTreeOf reads a file for each thread of the processes.
func processTreeOf(pid int) processTree {
	f := processTree{pid}
	for i := 0; i < len(f) && i < maxFamily; i++ {
		dir := "/proc/" + strconv.Itoa(f[i]) + "/task"
		tasks, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, t := range tasks[:min(len(tasks), maxFamily)] {
			for _, child := range strings.Fields(read(dir + "/" + t.Name() + "/children")) {
				if id, err := strconv.Atoi(child); err == nil {
					f = append(f, id)
				}
			}
		}
	}
	return f[:min(len(f), maxFamily)]
}

// residentBytes returns the resident memory of the process tree, without the shared pages of the descendants.
func (f processTree) residentBytes() (n int64) {
	for i, pid := range f {
		fields := strings.Fields(read("/proc/" + strconv.Itoa(pid) + "/statm"))
		if len(fields) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(fields[1], 10, 64)
		shared, _ := strconv.ParseInt(fields[2], 10, 64)
		if i > 0 { // shared pages: mapped files, such as libraries, and shared memory
			resident -= min(shared, resident)
		}
		n += resident * pageSize
	}
	return n
}

// keepDescriptors keeps descriptors inherited by the server, or opened by a library, from started processes: Go's own
// descriptors are closed there anyway.
func keepDescriptors() {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, f := range list {
		if fd, err := strconv.Atoi(f.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func read(path string) string {
	b, _ := os.ReadFile(path) // missing for an ended process
	return string(b)
}

// oomFile returns the file with the count of processes killed by the kernel for lack of memory: the file of the
// memory cgroup of process pid, which also counts its processes killed for lack of the machine's memory; otherwise
// the machine's file. "" = none. root is / except in tests.
func oomFile(root string, pid int) string {
	groups := filepath.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(read(filepath.Join(root, "proc", strconv.Itoa(pid), "cgroup"))) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		var mounts []string
		name := "memory.events"
		switch {
		case fields[0] == "0" && fields[1] == "":
			mounts = []string{groups, filepath.Join(groups, "unified")}
		case slices.Contains(strings.Split(fields[1], ","), "memory"):
			mounts, name = []string{filepath.Join(groups, "memory")}, "memory.oom_control"
		}
		for _, mount := range mounts {
			for _, path := range []string{fields[2], ""} { // a container may see its own cgroup as the root
				if file := filepath.Join(mount, path, name); oomCount(file) >= 0 {
					return file
				}
			}
		}
	}
	if file := filepath.Join(root, "proc/vmstat"); oomCount(file) >= 0 {
		return file
	}
	return ""
}

// oomCount returns the count in file, or -1.
func oomCount(file string) int64 {
	for line := range strings.Lines(read(file)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}
