package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/docker/go-units"

	"millrace/internal/child"
	"millrace/internal/processors"
)

// Flags of limits, for errors.
const (
	FlagMemory    = "--max-memory"
	FlagDisk      = "--max-disk"
	FlagProcesses = "--max-processes"
)

// Limits bound a program together with the started processes. 0 = the default.
type Limits struct {
	Memory    int64 // bytes
	Disk      int64 // bytes that are added to the folders in which the program writes
	Processes int   // with threads
}

// Defaults returns the default limits: half of the memory of this machine, 20 GiB, and 4096 processes.
func Defaults() Limits {
	memory, _ := processors.MemoryLimit()
	return Limits{Memory: cmp.Or(memory/2, 8<<30), Disk: 20 << 30, Processes: 4096}
}

func (l Limits) orDefaults() Limits {
	d := Defaults()
	return Limits{cmp.Or(l.Memory, d.Memory), cmp.Or(l.Disk, d.Disk), cmp.Or(l.Processes, d.Processes)}
}

// stack is the memory that a thread reserves, and seldom uses.
const stack = 8 << 20

// reserved is the memory that a process may reserve: all memory, and the stacks of all threads.
func (l Limits) reserved() int64 { return l.Memory + int64(min(l.Processes, 1<<20))*stack }

// apply sets the limits that the kernel keeps. No file is larger than all files together.
func (l Limits) apply(to *child.Limits) {
	to.Strict, to.Data, to.FileSize, to.Tasks = true, uint64(l.reserved()), uint64(l.Disk), uint64(l.Processes)
}

func (l Limits) memoryError() error {
	return fmt.Errorf("needs more than %s of memory: raise %s", size(l.Memory), FlagMemory)
}

func (l Limits) diskError() error {
	return fmt.Errorf("writes more than %s to the disk: raise %s", size(l.Disk), FlagDisk)
}

func leftError(n int) error {
	return fmt.Errorf("has %d processes that could not be ended: stop them (ps -ef), and do not run this application",
		n)
}

func (l Limits) processesError() error {
	return fmt.Errorf("has more than %d processes and threads: raise %s", l.Processes, FlagProcesses)
}

// lookPause is the time between two looks at a program.
const lookPause = 200 * time.Millisecond

// watch ends a program that exceeds its limits.
type watch struct {
	Limits
	folders []string // where the program writes
	before  int64    // bytes in the folders
	closed  int      // files and folders there that could not be read
}

func newWatch(l Limits, folders []string) *watch {
	w := &watch{Limits: l}
	for _, path := range folders {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		w.folders = append(w.folders, filepath.Clean(path))
	}
	slices.Sort(w.folders) // a folder comes before its contents
	w.folders = slices.Compact(w.folders)
	w.folders = slices.DeleteFunc(slices.Clone(w.folders), func(path string) bool {
		return slices.ContainsFunc(w.folders, func(in string) bool {
			return strings.HasPrefix(path, strings.TrimSuffix(in, "/")+"/")
		})
	})
	w.before, w.closed = w.size()
	return w
}

// run looks at the program until ctx ends or the program exceeds a limit, which is the result.
func (w *watch) run(ctx context.Context, process *child.Process) error {
	most := child.Usage{Tasks: w.Processes, Memory: uint64(w.Memory)}
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for measure := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		u := process.Usage(most)
		switch {
		case u.Tasks > most.Tasks:
			return w.processesError()
		case u.Memory > most.Memory:
			return w.memoryError()
		}
		if began := time.Now(); began.After(measure) {
			memory, disk := process.Unnamed(most.Tasks)
			switch {
			case u.Memory-u.Shared+max(u.Shared, memory) > most.Memory: // shared memory may be of these files
				return w.memoryError()
			case w.full(int64(disk)):
				return w.diskError()
			}
			measure = time.Now().Add(20 * time.Since(began)) // many files take a while
		}
	}
}

// full reports whether the folders, with the bytes of files without a name, have grown by more than the limit, or have
// more folders than before that cannot be read and may have any size.
func (w *watch) full(unnamed int64) bool {
	size, closed := w.size()
	return size-w.before+unnamed > w.Disk || closed > w.closed
}

// entrySize is counted at least for each file and folder.
const entrySize = 4 << 10

// size returns the bytes that the folders take on the disk, and the number of files and folders that cannot be read.
func (w *watch) size() (sum int64, closed int) {
	for _, path := range w.folders {
		_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = d.Info()
			}
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
					closed++
				}
				return nil
			}
			taken := int64(0)
			if of, ok := info.Sys().(*syscall.Stat_t); ok {
				taken = of.Blocks * 512 / max(int64(of.Nlink), 1)
			}
			sum += max(taken, entrySize)
			return nil
		})
	}
	return sum, closed
}

var (
	noMemory = regexp.MustCompile(`MemoryError|Cannot allocate memory|[Oo]ut of memory|bad_alloc|memory exhausted`)
	noThread = regexp.MustCompile(`can't start new thread|failed to create new OS thread|Cannot fork|` +
		`Resource temporarily unavailable`)
	noFile = regexp.MustCompile(`File too large|File size limit exceeded`)
)

// hint names the limit of the kernel that may be the reason for a failure; "" = none.
func (l Limits) hint(failure error, output string) string {
	exit := (*child.ExitError)(nil)
	if !errors.As(failure, &exit) {
		return ""
	}
	end := output[max(0, len(output)-4<<10):]
	switch {
	case exit.Signal == syscall.SIGXFSZ || exit.Code == 128+int(syscall.SIGXFSZ), noFile.MatchString(end):
		return fmt.Sprintf("a file may have %s: %s raises the limit", size(l.Disk), FlagDisk)
	case noMemory.MatchString(end):
		return fmt.Sprintf("a process may reserve %s of memory: %s raises the limit", size(l.reserved()), FlagMemory)
	case noThread.MatchString(end):
		return fmt.Sprintf("%d processes and threads may run, and each process may reserve %s of memory: %s and %s "+
			"raise the limits; programs that this user starts meanwhile count, too", l.Processes, size(l.reserved()),
			FlagProcesses, FlagMemory)
	}
	return ""
}

func size(n int64) string { return units.BytesSize(float64(n)) }
