package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process that a child has started in a session of its own is in no group of the child. When its parent ends, the kernel makes
// it a child of the next ancestor that adopts orphans, or of init. Adopt makes this process that ancestor.

const (
	markName   = "_MILLRACE_CHILD="
	endLimit   = 2 * time.Second       // for the end of the descendants of a child that has ended
	endPause   = time.Millisecond      // between two looks at them
	reapPause  = 50 * time.Millisecond // at least, between two looks for ended orphans
	maxEnviron = 4 << 20               // bytes of the variables of a process that are read
)

// family are the children of this process that Start has started.
var family = struct {
	starting sync.RWMutex // held for reading from the start of a child until it is entered
	mu       sync.Mutex
	marks    map[int]string // of children that are not reaped, by process id
	started  uint64
	adopts   atomic.Bool
	ending   sync.Mutex // held while orphans are looked for
}{marks: map[int]string{}}

// serverMark is what the marks of all children of this process begin with: the namespace of process ids, the id, and when this
// process started, so that a later process with the same id is another one.
var serverMark = sync.OnceValue(func() string {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	st, _ := readStat(os.Getpid())
	return fmt.Sprintf("%s/%d/%s/", namespace, os.Getpid(), st.start)
})

// newMark returns what tells the descendants of a child from those of others. The calling thread must not be confined.
func newMark() string {
	family.mu.Lock()
	defer family.mu.Unlock()
	family.started++
	return serverMark() + strconv.FormatUint(family.started, 10)
}

// startMarked starts a process and enters it, so that it is not taken for an orphan.
func startMarked(mark, path string, args []string, attr *os.ProcAttr) (*os.Process, error) {
	attr.Env = append(attr.Env, markName+mark)
	family.starting.RLock()
	defer family.starting.RUnlock()
	proc, err := os.StartProcess(path, args, attr)
	if err == nil {
		family.mu.Lock()
		family.marks[proc.Pid] = mark
		family.mu.Unlock()
	}
	return proc, err
}

// forget removes a child that was reaped.
func forget(pid int) {
	family.mu.Lock()
	delete(family.marks, pid)
	family.mu.Unlock()
}

// Adopt makes this process the parent of the descendants of its children whose own parent has ended, so that they are ended with
// the child and reaped. It is for a program that starts its processes by Start only, or in its own process group: it changes the
// whole process. It holds until this process ends; ctx ends the reaping of orphans that end by themselves.
func Adopt(ctx context.Context) error {
	if _, err := directChildren(); err != nil {
		return fmt.Errorf("list of children: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	family.adopts.Store(true)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		defer signal.Stop(ended)
		for {
			select {
			case <-ended:
				visitOrphans(false)
			case <-ctx.Done():
				return
			}
			select { // many children may end at once
			case <-time.After(reapPause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// endOrphans ends the descendants of children that have ended, and waits for their end, but not for long.
func endOrphans() {
	if !family.adopts.Load() {
		return
	}
	for by := time.Now().Add(endLimit); visitOrphans(true) > 0 && time.Now().Before(by); {
		time.Sleep(endPause)
	}
}

// visitOrphans reaps orphans that have ended and, with kill, kills those whose child has ended. It returns how many it has
// killed or reaped: their children may have become orphans since the orphans were listed.
func visitOrphans(kill bool) (ended int) {
	family.ending.Lock()
	defer family.ending.Unlock()
	own := os.Getpid()
	for _, pid := range orphans() {
		st, err := readStat(pid)
		if err != nil || st.parent != own || st.group == unix.Getpgrp() { // the last: what this program has started otherwise
			continue
		}
		switch {
		case st.state == 'Z':
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			ended++
		case kill && abandoned(pid):
			_ = unix.Kill(pid, unix.SIGKILL) // its id is its own until it is reaped, here
			ended++
		}
	}
	return ended
}

// orphans returns the children of this process that Start has not started.
func orphans() (pids []int) {
	family.starting.Lock()
	defer family.starting.Unlock()
	all, err := directChildren()
	if err != nil {
		return nil
	}
	family.mu.Lock()
	defer family.mu.Unlock()
	for _, pid := range all {
		if _, ok := family.marks[pid]; !ok {
			pids = append(pids, pid)
		}
	}
	return pids
}

// abandoned reports whether an orphan descends from a child that has ended. An orphan that has cleared its variables is recognised
// by no_new_privs, which all children have from the start. Where this process has no_new_privs too, the orphan is recognised by the
// children's limit of core dumps. Without its variables, an orphan may also descend from a child that runs.
func abandoned(pid int) bool {
	if mark := markOf(pid); mark != "" {
		return !lives(mark)
	}
	if !noNewPrivs("self") && noNewPrivs(strconv.Itoa(pid)) {
		return true
	}
	var own, its unix.Rlimit
	if unix.Prlimit(0, unix.RLIMIT_CORE, nil, &own) != nil || unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &its) != nil {
		return false
	}
	return its == childCore && own != childCore
}

// noNewPrivs reports whether a process cannot get rights by its programs.
func noNewPrivs(pid string) bool {
	text, _ := os.ReadFile("/proc/" + pid + "/status")
	return bytes.Contains(text, []byte("\nNoNewPrivs:\t1\n"))
}

// lives reports whether the child of a mark runs, which may be that of another process.
func lives(mark string) bool {
	if strings.HasPrefix(mark, serverMark()) {
		family.mu.Lock()
		defer family.mu.Unlock()
		for _, m := range family.marks {
			if m == mark {
				return true
			}
		}
		return false
	}
	f := strings.Split(mark, "/")
	namespace, _, _ := strings.Cut(serverMark(), "/")
	if len(f) != 4 || f[0] != namespace {
		return true // which cannot be known here
	}
	pid, err := strconv.Atoi(f[1])
	if err != nil {
		return true
	}
	st, err := readStat(pid)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return f[2] == "" || st.start == f[2]
}

// markOf returns the mark of a process; "" = it has none that can be read.
func markOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || len(text) > maxEnviron {
		return ""
	}
	for v := range bytes.SplitSeq(text, []byte{0}) {
		if mark, ok := bytes.CutPrefix(v, []byte(markName)); ok {
			return string(mark)
		}
	}
	return ""
}

// KillLeft kills processes that descend from children of a process that has ended, by SIGKILL or otherwise, and returns their names.
// It finds those of this user and this namespace of process ids that have kept the variables of the child.
func KillLeft(ctx context.Context) (killed []string, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }()
	list, err := proc.Readdirnames(-1)
	for _, name := range list {
		pid, wrong := strconv.Atoi(name)
		if wrong != nil || pid == os.Getpid() {
			continue
		}
		if ctx.Err() != nil {
			return killed, ctx.Err()
		}
		if !ofThisUser(pid) { // root can read the variables of all users' processes
			continue
		}
		mark := markOf(pid)
		if mark == "" || strings.HasPrefix(mark, serverMark()) || lives(mark) {
			continue
		}
		fd, wrong := unix.PidfdOpen(pid, 0)
		if wrong != nil {
			continue
		}
		if markOf(pid) == mark { // it is still the process that was looked at
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if wrong = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); wrong == nil {
				killed = append(killed, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(comm)), pid))
			} else if !errors.Is(wrong, unix.ESRCH) {
				err = wrong
			}
		}
		_ = unix.Close(fd)
	}
	return killed, err
}

// ofThisUser reports whether a process belongs to the user of this process.
func ofThisUser(pid int) bool {
	var st unix.Stat_t
	return unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && int(st.Uid) == os.Geteuid()
}

// directChildren returns the process ids of the children of this process.
func directChildren() (pids []int, err error) {
	const dir = "/proc/self/task"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, t := range threads {
		text, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if errors.Is(err, fs.ErrNotExist) && t.Name() != strconv.Itoa(os.Getpid()) || errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for _, f := range bytes.Fields(text) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// stat is a part of /proc/PID/stat.
type stat struct {
	state         byte
	parent, group int
	start         string // clock ticks after the start of the machine
}

func readStat(pid int) (s stat, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name, in brackets, may hold anything
	if len(f) < 20 {
		return s, fmt.Errorf("/proc/%d/stat: %d fields, want 20 or more", pid, len(f))
	}
	s.state, s.start = f[0][0], f[19]
	s.parent, err = strconv.Atoi(f[1])
	if err == nil {
		s.group, err = strconv.Atoi(f[2])
	}
	return s, err
}
