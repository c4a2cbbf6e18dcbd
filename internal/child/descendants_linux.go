package child

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A process started by a child in a new session is not in the child's group. When its parent ends, the kernel makes
// the process a child of the nearest ancestor that adopts orphans, or of init. Adopt makes this process adopt
// orphans.

const (
	markName   = "_MILLRACE_CHILD="
	endPause   = 100 * time.Microsecond // between two looks at the descendants
	reapPause  = 50 * time.Millisecond  // at least, between two looks for ended orphans
	maxEnviron = 4 << 20                // most bytes read of a process's variables
)

// endLimit is the time for the end of the descendants of an ended child. Tests on a busy machine take longer.
var endLimit = 5 * time.Second

// children are the children of this process started by Start.
var children = struct {
	starting sync.RWMutex // held for reading from the start of a child until its entry in marks
	mu       sync.Mutex
	marks    map[int]string // of unreaped children, by process id
	adopts   atomic.Bool
	ending   sync.Mutex // held while orphans are looked for
}{marks: map[int]string{}}

// serverMark is the common beginning of the marks of this process's children: the namespace of process ids, the id,
// and the start time of this process, to distinguish a later process with the same id.
var serverMark = sync.OnceValue(func() string {
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	st, _ := readStat(os.Getpid())
	return fmt.Sprintf("%s/%d/%s/", namespace, os.Getpid(), st.start)
})

// newMark returns a mark that distinguishes the descendants of a child. A program cannot guess the marks of other
// children. The calling thread must not be confined.
func newMark() string { return serverMark() + rand.Text() }

// startMarked starts a process and enters the process in children, so that nobody takes the process for an orphan.
func startMarked(mark, path string, args []string, attr *os.ProcAttr) (*os.Process, error) {
	marked := *attr
	marked.Env = append(slices.Clip(attr.Env), markName+mark)
	children.starting.RLock()
	defer children.starting.RUnlock()
	proc, err := os.StartProcess(path, args, &marked)
	if err == nil {
		children.mu.Lock()
		children.marks[proc.Pid] = mark
		children.mu.Unlock()
	}
	return proc, err
}

// forget removes a reaped child.
func forget(pid int) {
	children.mu.Lock()
	delete(children.marks, pid)
	children.mu.Unlock()
}

// Adopt makes this process the parent of orphaned descendants of its children, and so ends these descendants with the
// child and reaps them. Adopt changes the whole process: a program that adopts must start all processes by Start, or
// in its own process group. The adoption lasts until this process ends; the end of ctx stops the reaping of orphans
// that end by themselves.
func Adopt(ctx context.Context) error {
	if _, err := directChildren(); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list of children: %w: use a kernel with CONFIG_PROC_CHILDREN, or another machine", err)
	} else if err != nil {
		return fmt.Errorf("list of children: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl: %w", err)
	}
	children.adopts.Store(true)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	go func() {
		defer signal.Stop(ended)
		for {
			select {
			case <-ended:
				visitOrphans(0, time.Time{})
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

// endOrphans kills the descendants of ended children, and returns how many are left after endLimit. A stopped process
// starts no process, and counts for RLIMIT_NPROC, so that all orphans with their groups are stopped before the first is
// killed. Descendants of orphans in other groups run until they are orphans.
func endOrphans() (left int) {
	if !children.adopts.Load() {
		return 0
	}
	began := time.Now()
	for _, phase := range []struct {
		send unix.Signal
		by   time.Time
	}{{unix.SIGSTOP, began.Add(endLimit / 2)}, {unix.SIGKILL, began.Add(endLimit)}} {
		for left = 1; left > 0 && time.Now().Before(phase.by); {
			if left = visitOrphans(phase.send, phase.by); left > 0 {
				time.Sleep(endPause)
			}
		}
	}
	return left
}

// visitOrphans reaps ended orphans, and sends SIGSTOP or SIGKILL to the groups of orphans whose child has ended; 0 =
// no signal. The result is the number of orphans that got the signal, with the reaped and those not visited by the end
// of the time: their children may have become orphans since the listing.
func visitOrphans(send unix.Signal, by time.Time) (found int) {
	children.ending.Lock()
	defer children.ending.Unlock()
	own := traitsOf("self")
	// The kernel appends new orphans. A program that starts processes in turn is alive in the last orphan.
	for i, pid := range slices.Backward(orphans()) {
		if send != 0 && time.Now().After(by) {
			return found + i + 1
		}
		group, err := unix.Getpgid(pid)
		if err != nil {
			continue
		}
		if group == unix.Getpgrp() && !descends(pid, own) {
			continue
		}
		if of, _ := unix.Wait4(pid, nil, unix.WNOHANG, nil); of == pid {
			found++
			continue
		}
		if send == 0 {
			continue
		}
		st, err := readStat(pid)
		if err != nil || st.parent != os.Getpid() || st.state == 'Z' || send == unix.SIGSTOP && st.state == 'T' ||
			!abandoned(pid, own) {
			continue
		}
		// Nobody else reaps the orphan, so that its ids belong to no other process and group. All processes of a group
		// get a signal at once: no process can start another one meanwhile. A process may have joined the group of
		// another child in the same session.
		if session, err := unix.Getsid(0); err == nil && st.session != session && st.group > 1 {
			_ = unix.Kill(-st.group, send)
		}
		_ = unix.Kill(pid, send)
		found++
	}
	return found
}

// orphans returns the children of this process not started by Start.
func orphans() (pids []int) {
	children.starting.Lock()
	defer children.starting.Unlock()
	all, err := directChildren()
	if err != nil {
		return nil
	}
	children.mu.Lock()
	defer children.mu.Unlock()
	for _, pid := range all {
		if _, ok := children.marks[pid]; !ok {
			pids = append(pids, pid)
		}
	}
	return pids
}

// traits are what all children get at the start, and no descendant without rights can remove: root's unconfined
// programs can. The limit of file locks, which Linux does not use, is less than the limit of this process: 0 for
// contained children, because no program can change 0, and otherwise less by 1.
type traits struct {
	locks      uint64 // the hard limit
	noNewPrivs bool
}

func traitsOf(pid string) traits {
	_, hard, _ := locksOf(pid)
	return traits{hard, noNewPrivs(pid)}
}

// descends reports whether a process in the group of this process, running or ended, descends from a child, so that the
// process was not started by other means than Start.
func descends(pid int, own traits) bool {
	_, hard, _ := locksOf(strconv.Itoa(pid))
	return hard < own.locks
}

// abandoned reports whether an orphan descends from an ended child. An orphan without a mark of this process is
// recognised by a trait. Such an orphan may also descend from a running child.
func abandoned(pid int, own traits) bool {
	if mark := markOf(pid); strings.HasPrefix(mark, serverMark()) {
		return !lives(mark)
	}
	its := traitsOf(strconv.Itoa(pid))
	return its.locks < own.locks || its.noNewPrivs && !own.noNewPrivs
}

// locksOf returns the soft and the hard limit of file locks of a process, which may belong to another user, or have
// ended.
func locksOf(pid string) (soft, hard uint64, err error) {
	soft, hard = math.MaxUint64, math.MaxUint64 // unlimited
	text, err := os.ReadFile("/proc/" + pid + "/limits")
	_, after, _ := bytes.Cut(text, []byte("\nMax file locks "))
	if f := bytes.Fields(after[:min(len(after), 60)]); len(f) > 1 { // soft limit, hard limit, unit
		for i, to := range []*uint64{&soft, &hard} {
			if n, err := strconv.ParseUint(string(f[i]), 10, 64); err == nil {
				*to = n
			}
		}
	}
	return soft, hard, err
}

// noNewPrivs reports whether a process cannot gain rights by executing programs.
func noNewPrivs(pid string) bool {
	text, _ := os.ReadFile("/proc/" + pid + "/status")
	return bytes.Contains(text, []byte("\nNoNewPrivs:\t1\n"))
}

// markParent marks this process as the parent of children, for hasParent in other processes: the soft limit of file
// locks is less than the hard limit.
var markParent = sync.OnceValue(func() error {
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
		return fmt.Errorf("limit of locks: %w", err)
	}
	if own.Cur >= own.Max && own.Max > 0 {
		own.Cur = own.Max - 1
		if err := unix.Setrlimit(unix.RLIMIT_LOCKS, &own); err != nil {
			return fmt.Errorf("limit of locks: %w", err)
		}
	}
	return nil
})

// hasParent reports whether an ancestor of a process starts children, as markParent says, or is unknown. Contained
// programs cannot pretend to be such an ancestor: the soft limit is not below the hard limit 0.
func hasParent(pid int) bool {
	for {
		st, err := readStat(pid)
		if err != nil || st.parent == 0 || st.parent == os.Getpid() {
			return true
		}
		soft, hard, err := locksOf(strconv.Itoa(st.parent))
		switch {
		case err == nil && soft < hard:
			return true
		case st.parent == 1: // may be unreadable
			return false
		case err == nil:
			pid = st.parent
		default: // has ended, or is unreadable
			if now, err := readStat(pid); err != nil || now.parent == st.parent {
				return true
			}
		}
	}
}

// lives reports whether the child of a mark runs. The child may belong to another process.
func lives(mark string) bool {
	if strings.HasPrefix(mark, serverMark()) {
		children.mu.Lock()
		defer children.mu.Unlock()
		for _, m := range children.marks {
			if m == mark {
				return true
			}
		}
		return false
	}
	f := strings.Split(mark, "/")
	namespace, _, _ := strings.Cut(serverMark(), "/")
	if len(f) != 4 || f[0] != namespace {
		return true // unknown here
	}
	pid, err := strconv.Atoi(f[1])
	if err != nil {
		return true
	}
	st, err := readStat(pid)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return st.state != 'Z' && (f[2] == "" || st.start == f[2])
}

// markOf returns the mark of a process; "" = no readable mark.
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

// KillOrphans kills the processes left by the children of a process that has ended in any way, even by SIGKILL, and
// returns their names. KillOrphans finds processes of this user and this namespace of process ids that have kept the
// child's variables, and all descendants of contained children. As in endOrphans, the processes are stopped first.
func KillOrphans(ctx context.Context) (killed []string, err error) {
	k := killer{own: traitsOf("self"), names: map[int]string{}}
	began, left := time.Now(), 0
	for _, phase := range []struct {
		send unix.Signal
		by   time.Time
	}{{unix.SIGSTOP, began.Add(endLimit / 2)}, {unix.SIGKILL, began.Add(endLimit)}} {
		// Stopped processes must not stay, so that a failure and the end of ctx skip no phase.
		for left = 1; left > 0 && time.Now().Before(phase.by); {
			if left, err = k.visitAll(ctx, phase.send, phase.by); left > 0 {
				time.Sleep(endPause)
			}
		}
	}
	if left > 0 && err == nil {
		err = fmt.Errorf("%d processes of killed programs could not be ended", left)
	}
	if err == nil {
		err = ctx.Err()
	}
	for _, pid := range slices.Sorted(maps.Keys(k.names)) {
		killed = append(killed, fmt.Sprintf("%s (%d)", k.names[pid], pid))
	}
	return killed, err
}

// killer kills processes that ended processes have left.
type killer struct {
	own   traits
	names map[int]string // of killed processes, by process id
}

// visitAll sends SIGSTOP or SIGKILL to all left processes, until a time. The result is the number of processes that got
// the signal. After the end of ctx, no further process is stopped.
func (k *killer) visitAll(ctx context.Context, send unix.Signal, by time.Time) (found int, err error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return 0, err
	}
	defer func() { _ = proc.Close() }()
	list, err := proc.Readdirnames(-1)
	for _, name := range list {
		pid, wrong := strconv.Atoi(name)
		if wrong != nil || pid == os.Getpid() {
			continue
		}
		if send == unix.SIGSTOP && ctx.Err() != nil {
			return 0, nil
		}
		got, wrong := k.visit(pid, send)
		if wrong != nil {
			err = wrong
		} else if got {
			found++
		}
	}
	return found + k.visitNewest(ctx, by), err
}

// visitNewest stops the newest processes of contained children until no such process is left, or until a time, and
// returns the number of processes: a program that starts processes in turn, each of which ends, is not in a list of
// processes.
func (k *killer) visitNewest(ctx context.Context, by time.Time) (found int) {
	const around, looks = 6, 100
	for look := 0; look < looks && ctx.Err() == nil && time.Now().Before(by); look++ {
		text, err := os.ReadFile("/proc/loadavg")
		f := bytes.Fields(text)
		if err != nil || len(f) < 5 {
			return found
		}
		last, _ := strconv.Atoi(string(f[4]))
		for pid := last + around; pid > last-around; pid-- {
			if pid > 1 && k.stopNew(pid) {
				found++
				look = 0
			}
		}
	}
	return found
}

// stopNew stops a process before the slow isLeft, because the process may live for microseconds. A process whose parent
// descends from a child, or starts children, is no orphan, and is not stopped.
func (k *killer) stopNew(pid int) bool {
	if !k.contained(pid) {
		return false
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	if !ofThisUser(pid) {
		return false
	}
	st, err := readStat(pid)
	if err != nil || strings.IndexByte("ZTt", st.state) >= 0 {
		return false
	}
	soft, hard, err := locksOf(strconv.Itoa(st.parent))
	if hard < k.own.locks || err == nil && soft < hard || unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0) != nil {
		return false
	}
	if k.isLeft(pid) {
		return true
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	return false
}

// visit sends a signal to a process if the process is left, and returns true if the process needed the signal.
func (k *killer) visit(pid int, send unix.Signal) (bool, error) {
	if !ofThisUser(pid) { // root can read the variables of all users' processes
		return false, nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false, nil
	}
	defer func() { _ = unix.Close(fd) }()
	st, err := readStat(pid)
	if err != nil || st.state == 'Z' || send == unix.SIGSTOP && st.state == 'T' || !k.isLeft(pid) {
		return false, nil
	}
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	// The signal goes to no other process that has got the id since PidfdOpen.
	if err := unix.PidfdSendSignal(fd, send, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = nil
		}
		return false, err
	}
	if send == unix.SIGKILL {
		k.names[pid] = strings.TrimSpace(string(comm))
	}
	return true, nil
}

// isLeft reports whether a process descends from a child of an ended process. Descendants of contained children may
// have any variables.
func (k *killer) isLeft(pid int) bool {
	if k.contained(pid) && noNewPrivs(strconv.Itoa(pid)) && !hasParent(pid) {
		return true
	}
	mark := markOf(pid)
	return mark != "" && !strings.HasPrefix(mark, serverMark()) && !lives(mark)
}

// contained reports whether a process has the limit of locks of a contained child.
func (k *killer) contained(pid int) bool {
	_, locks, err := locksOf(strconv.Itoa(pid))
	return k.own.locks > 1 && locks == 0 && err == nil
}

// ofThisUser reports whether a process belongs to the user of this process. The owner of the files in /proc is root for
// some processes of the user.
func ofThisUser(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, after, _ := bytes.Cut(text, []byte("\nUid:"))
	f := bytes.Fields(after[:min(len(after), 60)]) // real, effective
	return len(f) > 1 && string(f[1]) == strconv.Itoa(os.Geteuid())
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
	state                  byte
	parent, group, session int
	start                  string // clock ticks after the start of the machine
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
	for i, to := range []*int{&s.parent, &s.group, &s.session} {
		if *to, err = strconv.Atoi(f[1+i]); err != nil {
			return s, err
		}
	}
	return s, nil
}
